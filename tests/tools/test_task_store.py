"""The database of the tasks when it is damaged, of another version, removed, or not to be trusted."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest
from task_bench import caller, opened, tasks_folder

from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.toolcalls import TaskStatus


def database(root: Path) -> Path:
    return tasks_folder(root) / "tasks.sqlite3"


async def test_a_damaged_database_is_put_aside_and_a_new_one_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database(tmp_path / "p").parent.mkdir(parents=True)
    database(tmp_path / "p").write_bytes(b"no database at all" * 1000)
    async with opened(tmp_path / "p") as bench:
        assert (await bench.ended(await bench.submit())).status is TaskStatus.DONE
    assert "is damaged" in caplog.text
    (aside,) = database(tmp_path / "p").parent.glob("*.damaged-*")
    assert aside.read_bytes().startswith(b"no database")


async def test_when_the_folder_is_removed_a_new_one_is_begun(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        gone = await bench.ended(await bench.submit())
        shutil.rmtree(database(tmp_path / "p").parent)
        with pytest.raises(NotFound):
            await bench.tasks.get(gone.id, 0, caller())
        task = await bench.submit()
        assert (await bench.ended(task)).status is TaskStatus.DONE
    async with opened(tmp_path / "p") as bench:
        assert [each.id for each in await bench.tasks.list(None, caller())] == [task.id]


async def test_a_row_that_nobody_can_read_costs_that_task_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        spoilt, other = await bench.park(), await bench.park()
    with sqlite3.connect(database(tmp_path / "p")) as connection:
        connection.execute("UPDATE tasks SET entry = ? WHERE id = ?", (b"\xff{", spoilt.id))
    connection.close()
    async with opened(tmp_path / "p") as bench:
        await bench.tasks.decide(other.id, "approve", None, "", caller())
        assert (await bench.ended(other)).status is TaskStatus.DONE
        assert [task.id for task in await bench.tasks.list(None, caller())] == [other.id]
        with pytest.raises(TavernError, match="cannot be read"):
            await bench.tasks.get(spoilt.id, 0, caller())


async def test_a_task_that_cannot_be_written_at_its_end_is_written_when_it_can(tmp_path: Path) -> None:
    async with opened(tmp_path / "p") as bench:
        task = await bench.submit(until=str(tmp_path / "go"))
        await bench.is_at(task, TaskStatus.RUNNING)
        locking = sqlite3.connect(database(tmp_path / "p"), isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")
        (tmp_path / "go").touch()
        while len(bench.noted()) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        assert locking.execute("SELECT status FROM tasks").fetchall() == [("running",)]
        assert [note[1] for note in bench.noted()] == ["began", "ended"]
        locking.execute("COMMIT")
        locking.close()
        assert (await bench.ended(task)).status is TaskStatus.DONE
