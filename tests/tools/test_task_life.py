"""What becomes of a task: it runs, reports, ends, is cancelled, waits for its turn, is kept, and is forgotten."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.waiting import until, until_idle
from task_bench import TOOL, TaskBench, caller, opened, tasks_folder, tool

from tavern_host import clock
from tavern_host.common.redaction import masked, unmasked
from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError
from tavern_host.contracts.settings import MASK
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus, ToolErrorType
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.parameters import Parameters
from tavern_tools.tasks.execution import GRACE
from tavern_tools.tasks.progress import PROGRESS_EVERY


async def test_a_task_gives_its_result_when_it_ends(tasks: TaskBench) -> None:
    gives = {"雪": None, "half": "\ud800", "big": 2**80, "deep": [[[{"a": 0.1}]]]}
    task = await tasks.submit(seconds=0.1, gives=gives)
    assert (task.status, task.tool_id, task.attempt) == (TaskStatus.PENDING, TOOL, 0)
    ended = await tasks.ended(task)
    assert (ended.status, ended.attempt) == (TaskStatus.DONE, 1)
    assert (ended.result.structured, ended.result.task_id) == (gives, task.id)
    assert ended.started_at is not None and ended.finished_at is not None and ended.expires_at is not None
    assert (ended.expires_at - ended.finished_at).days == 7
    failed = await tasks.ended(await tasks.submit(fails="no such luck"))
    assert (failed.status, failed.result.error.type) == (TaskStatus.ERROR, ToolErrorType.EXECUTION)
    assert "no such luck" in failed.result.error.message


async def test_progress_is_told_now_and_then(tasks: TaskBench) -> None:
    began = clock.monotonic()
    task = await tasks.submit(steps=20)  # one each 50 ms
    ended = await tasks.ended(task)
    took = clock.monotonic() - began
    await until_idle()
    told = [each["progress"] for each in tasks.told(task) if each["status"] == "running" and "progress" in each]
    assert 1 <= len(told) <= took / PROGRESS_EVERY + 2
    assert told == sorted(told)
    assert (ended.progress, ended.progress_text) == (1.0, "step 20")
    rows: Any = [
        *((7, "x" * 10_000, 1.0, "x" * 500), (-1, "half \ud800", 0.0, "half ?"), (float("nan"), "雪\n", None, "雪\n"))
    ]
    for share, says, *kept in rows:
        ended = await tasks.ended(await tasks.submit(share=share, says=says))
        assert [ended.status, ended.progress, ended.progress_text] == [TaskStatus.DONE, *kept]


async def test_a_cancelled_call_stops_ends_or_is_abandoned(tasks: TaskBench) -> None:
    rows: Any = [
        # how long a call goes on when it is told to stop, how the task ends
        (0, TaskStatus.CANCELLED, "it was cancelled by user:ann"),
        (30, TaskStatus.CANCELLED, "it was cancelled by user:ann; it did not end when asked to"),
        (GRACE / 2, TaskStatus.DONE, None),
    ]
    for number, (stubborn, status, message) in enumerate(rows):
        task = await tasks.submit(seconds=60, stubborn=stubborn, gives="kept")
        await tasks.is_at(task, TaskStatus.RUNNING)
        await tasks.began(2 * number + 1)
        await tasks.tasks.cancel(task.id, caller("user:ann"))
        ended = await tasks.ended(task)
        assert (ended.status, ended.result.structured) == (status, None if message else "kept")
        if message:
            assert (ended.result.error.type, ended.result.error.message) == (ToolErrorType.CANCELLED, message)
        assert [what for _, what, _ in tasks.noted()][-2 - (message is None) :][:2] == ["began", "was cancelled"]


async def test_running_open_and_large_tasks_are_limited(tmp_path: Path) -> None:
    limits = {"maxRunningTasks": 2, "maxOpenTasks": 6, "maxTaskResultKilobytes": 10}
    async with opened(tmp_path / "p", **limits) as bench:
        until = str(tmp_path / "go")
        several = [await bench.submit(seconds=0.1, until=until, name=str(number)) for number in range(5)]
        await bench.park()
        with pytest.raises(ToolFailure) as refused:
            await bench.submit()
        assert refused.value.type is ToolErrorType.RESOURCE
        assert (await bench.tasks.cancel(several[4].id, caller())).status is TaskStatus.CANCELLED
        large = await bench.submit(size=20_000)
        (tmp_path / "go").touch()
        for task in [*several, large]:
            await bench.ended(task)
        ended = await bench.get(large)
        assert (ended.status, ended.result.error.type) == (TaskStatus.ERROR, ToolErrorType.RESOURCE)
        assert ended.result.error.details == {"outcome": "done"}
    notes = [(name, what) for name, what, _ in bench.noted() if name]
    assert [name for name, what in notes if what == "began"] == ["0", "1", "2", "3"]
    running = [1 if what == "began" else -1 for _, what in notes]
    assert max(sum(running[:end]) for end in range(len(running) + 1)) == 2


async def test_tasks_are_listed_to_those_who_may_see_them(tasks: TaskBench) -> None:
    mine, large = await tasks.submit(), await tasks.submit(size=100_000)
    await tasks.ended(mine)
    await tasks.ended(large)
    theirs = await tasks.park(who="agent:painter")

    async def found(who: str = "user:operator", **asked: Any) -> list[str]:
        return [task.id for task in await tasks.tasks.list(TaskFilter(**asked), caller(who))]

    newest = await tasks.tasks.list(TaskFilter(limit=3), caller())
    assert [(task.id, task.result is None) for task in newest] == [
        (theirs.id, True),
        (large.id, True),
        (mine.id, False),
    ]
    assert (await tasks.get(large)).result is not None
    assert (await found(statuses=["done"]))[:2] == [large.id, mine.id]
    assert await found(principal="agent:painter") == [theirs.id]
    assert (await found(tool="acme:*"))[:3] == [theirs.id, large.id, mine.id]
    assert await found(limit=1, offset=1) == [large.id]
    assert await found(tool="[a]cme:*") == await found(tool="\ud800", principal="'; DROP TABLE tasks") == []
    # agents and plugins see their own alone, and what is not there is told alike
    assert await found("agent:painter") == [theirs.id]
    assert (await tasks.tasks.get(theirs.id, 0, caller("agent:painter"))).id == theirs.id
    assert theirs.id in await found("system:host")
    with Failures() as failures:
        for who, wanted in (
            *(("agent:painter", mine.id), ("plugin:painter", theirs.id), ("user:operator", "task_nowhere")),
            *(("user:operator", odd) for odd in ("", "\ud800", "'", "x" * 100_000)),
        ):
            with failures.row((who, wanted[:20])):
                with pytest.raises(NotFound):
                    await tasks.tasks.get(wanted, 0, caller(who))
                with pytest.raises(NotFound):
                    await tasks.tasks.cancel(wanted, caller(who))


# --- how they are kept ----------------------------------------------------------------------------


async def test_ended_tasks_are_forgotten_in_time(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        assert await bench.tasks.list(None, caller()) == []
        assert not tasks_folder(tmp_path / "p").exists()
        ended = [await bench.ended(await bench.submit(size=700_000)) for _ in range(3)]
        waiting = await bench.park()
    async with opened(tmp_path / "p", keepTasksMegabytes=1) as bench:  # the oldest when all take too much

        async def left() -> list[str] | None:
            found = [task.id for task in await bench.tasks.list(None, caller())]
            return found if len(found) <= 2 else None

        assert await until(left, "the oldest tasks are forgotten") == [waiting.id, ended[-1].id]
    async with opened(tmp_path / "p", keepTasksDays=0) as bench:
        with pytest.raises(NotFound):
            await bench.get(ended[-1])
        assert [task.id for task in await bench.tasks.list(None, caller())] == [waiting.id]
        connection = sqlite3.connect(tasks_folder(tmp_path / "p") / "tasks.sqlite3")
        await until(lambda: connection.execute("SELECT count(*) FROM tasks").fetchone() == (1,), "one row is left")
        connection.close()


async def test_tasks_survive_a_damaged_or_absent_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tasks_folder(tmp_path / "p")
    folder.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    async with opened(tmp_path / "p") as bench:
        with pytest.raises(TavernError, match="symbolic link"):  # what cannot be kept is not accepted
            await bench.submit()
    assert ([*(tmp_path / "elsewhere").iterdir()], bench.noted()) == ([], [])
    folder.unlink()
    folder.mkdir()
    database = folder / "tasks.sqlite3"
    database.write_bytes(b"no database at all" * 1000)
    async with opened(tmp_path / "p") as bench:
        gone = await bench.ended(await bench.submit())
        assert "is damaged" in caplog.text
        (aside,) = folder.glob("*.damaged-*")
        assert aside.read_bytes().startswith(b"no database")
        shutil.rmtree(folder)
        with pytest.raises(NotFound):
            await bench.get(gone)
        spoilt, other = await bench.park(), await bench.park()
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE tasks SET entry = ? WHERE id = ?", (b"\xff{", spoilt.id))
    connection.close()
    async with opened(tmp_path / "p") as bench:  # a row that nobody can read costs that task alone
        await bench.decide(other, "approve")
        assert (await bench.ended(other)).status is TaskStatus.DONE
        assert [task.id for task in await bench.tasks.list(None, caller())] == [other.id]
        with pytest.raises(TavernError, match="cannot be read"):
            await bench.get(spoilt)


async def test_an_end_is_written_when_it_can_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path / "p") as bench:
        task = await bench.submit(until=str(tmp_path / "go"))
        await bench.is_at(task, TaskStatus.RUNNING)
        database = sqlite3.connect(tasks_folder(tmp_path / "p") / "tasks.sqlite3", isolation_level=None)
        fails = "BEFORE UPDATE ON tasks WHEN new.is_final BEGIN SELECT RAISE(ABORT, 'out of paper'); END"
        database.execute(f"CREATE TRIGGER refuse {fails}")
        (tmp_path / "go").touch()
        await until(lambda: caplog.text.count("out of paper") == 3, "writing is tried again and again")
        assert [note[1] for note in bench.noted()] == ["began", "ended"]
        assert (await bench.get(task)).status is TaskStatus.RUNNING
        database.execute("DROP TRIGGER refuse")
        database.close()
        assert (await bench.ended(task)).status is TaskStatus.DONE


# --- secrets --------------------------------------------------------------------------------------


async def test_secrets_reach_calls_and_nobody_else(tmp_path: Path) -> None:
    folder, secret = tasks_folder(tmp_path / "p"), "hunter2-hunter2"
    async with opened(tmp_path / "p") as bench:
        task = await bench.submit(apiKey=secret)
        ended = await bench.ended(task)
        assert bench.noted()[0] == ["", "began", secret]
        assert task.arguments["apiKey"] == ended.arguments["apiKey"] == MASK
        marked = tool(name={"type": "string", "format": "password"}, size={"type": "integer", "writeOnly": True})
        task = await bench.submit(what=marked, name=secret, size=3, seconds=0)
        await bench.ended(task)
        assert task.arguments == {"log": str(bench.log), "name": MASK, "size": MASK, "seconds": 0}
        await bench.tasks.cancel((await bench.park(apiKey=secret)).id, caller())
        assert secret not in str(bench.events)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
        assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    kept = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert TOOL.encode() in kept
    assert secret.encode() not in kept


REAL = {"url": "a", "apiKey": "x", "list": [{"token": "y"}, {"token": "z"}]}
SHOWN: Any = [
    ({"password": "x", "Passwort": "y"}, {"password": MASK, "Passwort": MASK}),
    ({"a": {"b": [{"api_key": "x"}]}}, {"a": {"b": [{"api_key": MASK}]}}),
    ({"headers": [{"name": "Authorization", "value": "x"}]}, {"headers": [{"name": "Authorization", "value": MASK}]}),
    *(
        ({"token": {"id": 1}}, {"token": MASK}),
        ({"密码": "x"}, {"密码": MASK}),
        ({"ＰＡＳＳＷＯＲＤ": "x"}, {"ＰＡＳＳＷＯＲＤ": MASK}),
    ),
    ({"maxTokens": 12, "token": "", "secret": None, "usePassword": True}, None),
]
MOVED = [{"url": MASK}, {"url": "a", "other": {"apiKey": MASK}}, {"list": [{"token": MASK}]}, {"list": MASK}]


def test_masks_stand_for_secrets_where_these_stood() -> None:
    for value, shown in SHOWN:
        assert masked(value) == (value if shown is None else shown)
    assert unmasked({**masked(REAL), "url": "b"}, REAL) == {**REAL, "url": "b"}
    for edited in MOVED:
        with pytest.raises(InvalidInput, match="where no secret stands"):
            unmasked(edited, REAL)
    assert (
        Parameters({}).secrets
        == Parameters({"properties": {"a": True, "b": {"writeOnly": "yes"}}}).secrets
        == frozenset()
    )
