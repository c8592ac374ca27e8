"""What becomes of a task: it runs, reports, ends, is cancelled, waits for its turn, and is forgotten in the end."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from task_bench import TOOL, TaskBench, caller, opened, tasks_folder

from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.toolcalls import TaskFilter, TaskStatus, ToolErrorType
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.tasks.progress import PROGRESS_EVERY


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[TaskBench]:
    async with opened(tmp_path / "p") as made:
        yield made


async def test_a_task_is_accepted_at_once_and_its_result_can_be_waited_for(bench: TaskBench) -> None:
    task = await bench.submit(seconds=0.1, gives={"n": [1, None, "雪"]})
    assert (task.status, task.tool_id, task.attempt) == (TaskStatus.PENDING, TOOL, 0)

    ended = await bench.ended(task)

    assert ended.status is TaskStatus.DONE
    assert ended.result.structured == {"n": [1, None, "雪"]}
    assert ended.result.task_id == task.id
    assert ended.started_at is not None and ended.finished_at is not None and ended.expires_at is not None
    assert (ended.expires_at - ended.finished_at).days == 7
    assert ended.attempt == 1


async def test_of_many_reports_of_progress_a_few_a_second_are_told_and_the_last_one_is_kept(bench: TaskBench) -> None:
    began = time.monotonic()
    task = await bench.submit(steps=20)  # one each 50 ms
    ended = await bench.ended(task)
    took = time.monotonic() - began
    await asyncio.sleep(0)
    told = [each for each in bench.told(task) if each["status"] == "running" and "progress" in each]
    assert 1 <= len(told) <= took / PROGRESS_EVERY + 2
    assert [each["progress"] for each in told] == sorted(each["progress"] for each in told)
    assert (ended.progress, ended.progress_text) == (1.0, "step 20")


async def test_a_call_that_raises_is_an_error_of_the_task(bench: TaskBench) -> None:
    ended = await bench.ended(await bench.submit(fails="no such luck"))
    assert ended.status is TaskStatus.ERROR
    assert ended.result.error.type is ToolErrorType.EXECUTION
    assert "no such luck" in ended.result.error.message


async def test_a_running_task_that_is_cancelled_stops_and_says_by_whom(bench: TaskBench) -> None:
    task = await bench.submit(seconds=60)
    await bench.is_at(task, TaskStatus.RUNNING)
    while not bench.noted():
        await asyncio.sleep(0.01)

    cancelled = await bench.tasks.cancel(task.id, caller("user:ann"))

    assert cancelled.status is TaskStatus.CANCELLED
    assert cancelled.result.error.type is ToolErrorType.CANCELLED
    assert cancelled.result.error.message == "it was cancelled by user:ann"
    assert [what for _, what, _ in bench.noted()] == ["began", "was cancelled"]


async def test_a_call_that_does_not_end_when_it_is_told_to_is_given_up(bench: TaskBench) -> None:
    task = await bench.submit(seconds=60, stubborn=30)
    await bench.is_at(task, TaskStatus.RUNNING)
    while not bench.noted():
        await asyncio.sleep(0.01)
    cancelled = await bench.tasks.cancel(task.id, caller())
    assert cancelled.status is TaskStatus.CANCELLED
    assert cancelled.result.error.message.endswith("; it did not end when asked to")


async def test_a_call_that_ends_in_spite_of_being_cancelled_is_done(bench: TaskBench) -> None:
    task = await bench.submit(seconds=60, stubborn=0.05, gives="kept")
    await bench.is_at(task, TaskStatus.RUNNING)
    while not bench.noted():
        await asyncio.sleep(0.01)
    after = await bench.tasks.cancel(task.id, caller())
    assert after.status is TaskStatus.DONE
    assert after.result.structured == "kept"


async def test_tasks_run_at_once_up_to_the_setting_and_wait_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", maxRunningTasks=2) as bench:
        until = str(tmp_path / "go")
        tasks = [await bench.submit(seconds=0.15, until=until, name=str(number)) for number in range(5)]
        waiting = await bench.tasks.cancel(tasks[4].id, caller())
        (tmp_path / "go").touch()
        for task in tasks:
            await bench.ended(task)
    assert waiting.status is TaskStatus.CANCELLED
    notes = [(name, what) for name, what, _ in bench.noted()]
    assert [name for name, what in notes if what == "began"] == ["0", "1", "2", "3"]
    running = most = 0
    for _, what in notes:
        running += 1 if what == "began" else -1
        most = max(most, running)
    assert most == 2


async def test_a_task_too_many_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", maxOpenTasks=2) as bench:
        tasks = [await bench.submit(seconds=5), await bench.park()]
        with pytest.raises(ToolFailure) as refused:
            await bench.submit()
        assert refused.value.type is ToolErrorType.RESOURCE
        await bench.tasks.cancel(tasks[1].id, caller())
        await bench.submit()


async def test_a_result_that_is_too_large_is_not_kept_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path / "p", maxTaskResultKilobytes=10) as bench:
        ended = await bench.ended(await bench.submit(size=20_000))
    assert ended.status is TaskStatus.ERROR
    assert ended.result.error.type is ToolErrorType.RESOURCE
    assert ended.result.error.details == {"outcome": "done"}


async def test_lists_show_the_newest_first_and_leave_out_large_results(bench: TaskBench) -> None:
    small, large = await bench.submit(), await bench.submit(size=100_000)
    await bench.ended(small)
    await bench.ended(large)
    listed = await bench.tasks.list(None, caller())
    whole = await bench.tasks.get(large.id, 0, caller())
    assert [(task.id, task.result is None) for task in listed] == [(large.id, True), (small.id, False)]
    assert whole.result is not None


async def test_tasks_are_found_by_status_tool_and_caller(bench: TaskBench) -> None:
    mine = await bench.ended(await bench.submit())
    theirs = await bench.park(who="agent:writer")

    async def found(**asked: Any) -> list[str]:
        return [task.id for task in await bench.tasks.list(TaskFilter(**asked), caller())]

    assert await found(statuses=["done"]) == [mine.id]
    assert await found(principal="agent:writer") == [theirs.id]
    assert await found(tool="acme:*") == [theirs.id, mine.id]
    assert await found(tool="[a]cme:*") == []
    assert await found(limit=1, offset=1) == [mine.id]
    assert await found(tool="\ud800", principal="'; DROP TABLE tasks") == []


async def test_agents_and_plugins_see_their_own_tasks_alone(bench: TaskBench) -> None:
    mine, other = await bench.submit(who="agent:writer", seconds=5), await bench.submit(who="plugin:acme")
    writer = caller("agent:writer")
    assert [task.id for task in await bench.tasks.list(None, writer)] == [mine.id]
    assert (await bench.tasks.get(mine.id, 0, writer)).id == mine.id
    for asked in (bench.tasks.get(other.id, 0, writer), bench.tasks.cancel(other.id, writer)):
        with pytest.raises(NotFound):
            await asked
    with pytest.raises(NotFound):
        await bench.tasks.get(mine.id, 0, caller("plugin:writer"))
    assert len(await bench.tasks.list(None, caller("system:host"))) == 2


async def test_a_task_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        for wanted in ("task_nowhere", "", "\ud800", "'", "x" * 100_000):
            with pytest.raises(NotFound):
                await bench.tasks.get(wanted, 1, caller())
        assert await bench.tasks.list(None, caller()) == []
        assert not tasks_folder(tmp_path / "p").exists()


async def test_ended_tasks_are_forgotten_after_their_time(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        ended = await bench.ended(await bench.submit())
        waiting = await bench.park()
    async with opened(tmp_path / "p", keepTasksDays=0) as bench:
        with pytest.raises(NotFound):
            await bench.tasks.get(ended.id, 0, caller())
        assert [task.id for task in await bench.tasks.list(None, caller())] == [waiting.id]
        connection = sqlite3.connect(tasks_folder(tmp_path / "p") / "tasks.sqlite3")
        while connection.execute("SELECT count(*) FROM tasks").fetchone() != (1,):
            await asyncio.sleep(0.05)
        connection.close()


async def test_the_oldest_ended_tasks_are_forgotten_when_all_take_too_much(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        tasks = [await bench.ended(await bench.submit(size=700_000)) for _ in range(3)]
    async with opened(tmp_path / "p", keepTasksMegabytes=1) as bench:
        while len(left := await bench.tasks.list(None, caller())) > 1:
            await asyncio.sleep(0.05)
        assert [task.id for task in left] == [tasks[-1].id]


async def test_arguments_of_any_kind_reach_the_call_as_they_were_given(bench: TaskBench) -> None:
    given = {"gives": {"雪": None, "half": "\ud800", "big": 2**80, "deep": [[[{"a": 0.1}]]]}}
    ended = await bench.ended(await bench.submit(**given))
    assert ended.result.structured == given["gives"]


async def test_progress_of_any_kind_does_no_harm(bench: TaskBench) -> None:
    rows: Any = [
        (7, "x" * 10_000, 1.0, "x" * 500),
        (-1, "half \ud800", 0.0, "half ?"),
        (float("nan"), "雪\n", None, "雪\n"),
    ]
    for share, says, *kept in rows:
        ended = await bench.ended(await bench.submit(share=share, says=says, seconds=0.1))
        assert ended.status is TaskStatus.DONE
        assert [ended.progress, ended.progress_text] == kept


async def test_where_a_task_cannot_be_kept_it_is_not_accepted(tmp_path: Path) -> None:
    folder = tasks_folder(tmp_path / "p")
    folder.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    async with opened(tmp_path / "p") as bench:
        with pytest.raises(TavernError, match="symbolic link"):
            await bench.submit()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert bench.noted() == []
