"""Hosts that stop: what they leave to the next one, and what they interrupt."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from helpers.held_time import HeldClock
from helpers.waiting import until
from task_bench import caller, opened, tasks_folder

from tavern_host.contracts.errors import Conflict
from tavern_tools.api.toolcalls import TaskStatus, ToolErrorType
from tavern_tools.tasks.approvals import decided
from tavern_tools.tasks.store import SqliteTaskStore


async def test_a_stopping_host_interrupts_and_the_next_resumes(tmp_path: Path, held_clock: HeldClock) -> None:
    async with opened(tmp_path / "p", maxRunningTasks=3) as bench:
        held = await bench.submit(hold=str(tmp_path / "go"), name="held")  # taken, but its call has not begun
        running = [await bench.submit(seconds=60, name="running", **more) for more in ({"steps": 2}, {"stubborn": 60})]
        waiting, asked = await bench.submit(name="waiting"), await bench.park(name="asked")
        late = await bench.park(seconds=0.3, name="late")  # the time for a decision passes without a host, too
        await bench.began(2)

        async def has_reported() -> bool:
            return (await bench.get(running[0])).progress == 1.0

        await until(has_reported, "all progress is told")
    held_clock.advance(0.3)
    (tmp_path / "go").touch()
    async with opened(tmp_path / "p") as bench:
        for task, progress in zip(running, (1.0, None), strict=True):
            interrupted: Any = await bench.ended(task)
            assert (interrupted.status, interrupted.progress) == (TaskStatus.INTERRUPTED, progress)
            assert interrupted.result.error.type is ToolErrorType.INTERRUPTED
        assert (await bench.ended(late)).status is TaskStatus.REFUSED
        for task in (held, waiting):
            assert (await bench.ended(task)).status is TaskStatus.DONE
        await bench.decide(asked, "approve")
        assert (await bench.ended(asked)).status is TaskStatus.DONE
    assert sorted(note[:2] for note in bench.noted()) == [
        *(["asked", "began"], ["asked", "ended"], ["held", "began"], ["held", "ended"], ["running", "began"]),
        *(["running", "began"], ["running", "was cancelled"], ["running", "was cancelled"], ["waiting", "began"]),
        ["waiting", "ended"],
    ]


async def test_a_host_for_one_command_runs_its_own_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        theirs = await bench.park()
    async with opened(tmp_path / "p", serving=False) as bench:
        await bench.decide(theirs, "approve")
        assert (await bench.ended(await bench.submit(name="own"))).status is TaskStatus.DONE
        own = await bench.park(name="own")
        await bench.decide(own, "approve")
        assert (await bench.ended(own)).status is TaskStatus.DONE
        assert ((await bench.get(theirs)).status, bench.count("began")) == (TaskStatus.PENDING, {"own": 2})
    async with opened(tmp_path / "p") as bench:
        assert (await bench.ended(theirs)).status is TaskStatus.DONE


async def test_a_decision_is_audited_by_the_next_host(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", serving=False) as bench:
        task = await bench.park()
        # as a process does that is killed before it writes the audit log
        store = SqliteTaskStore(tasks_folder(tmp_path / "p"), "host_killed", logging.getLogger())
        row: Any = await store.get(task.id)
        await store.decide(task.id, decided(row.approval, "refuse", caller("user:gone"), "", edited=False), None)
        await store.close()
    for _ in range(2):
        async with opened(tmp_path / "p") as bench:
            await until(lambda bench=bench: bench.audited(task), "the decision is audited")
            with pytest.raises(Conflict, match="refused already, by user:gone"):
                await bench.decide(task, "approve")
    assert [(entry["actor"], entry["action"]) for entry in bench.audited(task)] == [
        ("user:gone", "toolApproval.refused")
    ]
