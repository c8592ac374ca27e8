"""Tasks when a host stops, and when several hosts work on one project."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from task_bench import Child, TaskBench, caller, opened

from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.toolcalls import TaskStatus, ToolErrorType


async def test_when_a_host_stops_what_ran_is_interrupted_and_what_waited_goes_on_in_the_next(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", maxRunningTasks=1) as bench:
        running = await bench.submit(seconds=60, steps=2, name="running")
        waiting = await bench.submit(name="waiting")
        asked = await bench.park(name="asked")
        await bench.is_at(running, TaskStatus.RUNNING)
        while not bench.noted():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    async with opened(tmp_path / "p") as bench:
        interrupted = await bench.tasks.get(running.id, 0, caller())
        assert (await bench.ended(waiting)).status is TaskStatus.DONE
        await bench.tasks.decide(asked.id, "approve", None, "", caller())
        assert (await bench.ended(asked)).status is TaskStatus.DONE

    assert interrupted.status is TaskStatus.INTERRUPTED
    assert interrupted.progress == 1.0
    assert interrupted.result.error.type is ToolErrorType.INTERRUPTED
    assert [note[:2] for note in bench.noted()] == [
        ["running", "began"],
        ["running", "was cancelled"],
        ["waiting", "began"],
        ["waiting", "ended"],
        ["asked", "began"],
        ["asked", "ended"],
    ]


async def test_a_host_stops_in_time_although_calls_do_not_end(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        tasks = [await bench.submit(seconds=60, stubborn=60) for _ in range(5)]
        for task in tasks:
            await bench.is_at(task, TaskStatus.RUNNING)
        while len(bench.noted()) < 5:
            await asyncio.sleep(0.01)
    async with opened(tmp_path / "p") as bench:
        for task in tasks:
            assert (await bench.ended(task)).status is TaskStatus.INTERRUPTED


async def test_a_host_for_one_command_takes_nothing_up(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        task = await bench.park()
    async with opened(tmp_path / "p", serving=False) as bench:
        await bench.tasks.decide(task.id, "approve", None, "", caller())
        after = await bench.tasks.get(task.id, 1.0, caller())
        assert after.status is TaskStatus.PENDING
        assert bench.noted() == []
    async with opened(tmp_path / "p") as bench:
        assert (await bench.ended(task)).status is TaskStatus.DONE


async def test_a_host_for_one_command_carries_out_its_own_tasks(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", serving=False) as bench:
        assert (await bench.ended(await bench.submit())).status is TaskStatus.DONE
        task = await bench.park()
        await bench.tasks.decide(task.id, "approve", None, "", caller())
        assert (await bench.ended(task)).status is TaskStatus.DONE


async def test_the_time_for_a_decision_goes_on_while_no_host_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        task = await bench.park(seconds=0.3)
    await asyncio.sleep(0.4)
    async with opened(tmp_path / "p") as bench:
        assert (await bench.ended(task)).status is TaskStatus.REFUSED
    assert bench.noted() == []


@pytest.mark.parametrize("serving", [True, False])
async def test_a_second_host_leaves_the_tasks_of_a_living_one_alone(tmp_path: Path, serving: bool) -> None:
    child = Child(
        tmp_path / "p",
        """
running, waiting = await bench.submit(seconds=2, name="running"), await bench.park(name="waiting")
await bench.is_at(running, TaskStatus.RUNNING)
say([running.id, waiting.id])
say((await bench.ended(running)).status)
say((await bench.ended(waiting)).status)
""",
    )
    try:
        assert await child.said() == "ready"
        running, waiting = await child.said()
        async with opened(tmp_path / "p", serving=serving) as bench:
            seen = await bench.tasks.get(running, 1.0, caller())
            assert seen.status in (TaskStatus.RUNNING, TaskStatus.DONE)  # done where this host was slow to begin
            await bench.tasks.decide(waiting, "approve", None, "", caller())
            assert (await bench.ended(waiting)).status is TaskStatus.DONE
            assert (await bench.ended(running)).status is TaskStatus.DONE
        assert [await child.said(), await child.said()] == ["done", "done"]
    finally:
        child.kill()
    assert sorted(note[:2] for note in bench.noted()) == [
        ["running", "began"],
        ["running", "ended"],
        ["waiting", "began"],
        ["waiting", "ended"],
    ]


async def test_a_task_is_cancelled_from_another_process(tmp_path: Path) -> None:
    child = Child(
        tmp_path / "p",
        """
task = await bench.submit(seconds=60)
await bench.is_at(task, TaskStatus.RUNNING)
say(task.id)
say((await bench.ended(task)).result.error.message)
""",
    )
    try:
        assert await child.said() == "ready"
        task_id = await child.said()
        async with opened(tmp_path / "p", serving=False) as bench:
            cancelled = await bench.tasks.cancel(task_id, caller("user:ann"))
        assert cancelled.status is TaskStatus.CANCELLED
        assert await child.said() == "it was cancelled by user:ann"
    finally:
        child.kill()


async def test_pages_of_one_host_see_what_another_does(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        first = await bench.ended(await bench.submit())
        child = Child(tmp_path / "p", "say((await bench.ended(await bench.submit(seconds=1))).id)")
        try:
            assert await child.said() == "ready"
            task_id = await child.said()
            while not any(each["status"] == "done" for each in bench.told(task_id)):
                await asyncio.sleep(0.05)
        finally:
            child.kill()
    assert bench.told(first)[-1]["status"] == "done"


async def test_of_two_processes_that_decide_one_wins(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        tasks = [await bench.park(name=str(n)) for n in range(10)]
        code = f"""
won = 0
for task_id in {[task.id for task in tasks]!r}:
    try:
        await bench.tasks.decide(task_id, "approve", None, "", caller("user:child"))
        won += 1
    except Exception as error:
        assert type(error).__name__ == "Conflict", error
say(won)
"""
        children = [Child(tmp_path / "p", code, serving=False) for _ in range(2)]
        try:
            for child in children:
                assert await child.said() == "ready"
            won = [await child.said() for child in children]
        finally:
            for child in children:
                child.kill()
        assert sum(won) == 10
        for task in tasks:
            assert (await bench.ended(task)).status is TaskStatus.DONE
    assert sorted(name for name, what, _ in bench.noted() if what == "began") == sorted(map(str, range(10)))


async def test_a_decision_is_in_the_audit_log_although_its_process_was_killed_before_it_wrote_it(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "p", serving=False) as bench:
        task = await bench.park()
        child = Child(
            tmp_path / "p",
            f"""
import logging
from tavern_tools.tasks.approvals import decided
from tavern_tools.tasks.store import SqliteTaskStore
store = SqliteTaskStore(tasks_folder(bench.host.project.root), "host_child", logging.getLogger())
row = await store.get("{task.id}")
await store.decide("{task.id}", decided(row.approval, "refuse", caller("user:child"), "", edited=False), None)
say("decided")
await asyncio.sleep(60)
""",
            serving=False,
        )
        assert await child.said() == "ready"
        assert await child.said() == "decided"
        child.kill()
    async with opened(tmp_path / "p") as bench:
        while await _refusals(bench) == []:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert await _refusals(bench) == ["user:child"]
        with pytest.raises(Conflict, match="refused already, by user:child"):
            await bench.tasks.decide(task.id, "approve", None, "", caller())


async def _refusals(bench: TaskBench) -> list[str]:
    from tavern_host.contracts.audit import AUDIT

    entries = await bench.host.services.get(AUDIT).tail(100)
    return [entry.actor for entry in entries if entry.action == "toolApproval.refused"]


async def test_what_a_stopped_process_had_is_not_taken_up(tmp_path: Path) -> None:
    child = Child(tmp_path / "p", "task = await bench.submit(seconds=60)\nsay(task.id)\nawait bench.ended(task)")
    try:
        assert await child.said() == "ready"
        task_id = await child.said()
        os.kill(child.process.pid, signal.SIGSTOP)
        async with opened(tmp_path / "p") as bench:
            seen = await bench.tasks.get(task_id, 1.5, caller())
        assert not seen.status.is_final
    finally:
        os.kill(child.process.pid, signal.SIGCONT)
        child.kill()
