"""The run store with files that are damaged, foreign, newer, out of reach or too many."""

from __future__ import annotations

import logging
import random
import sqlite3
from pathlib import Path

import pytest
from helpers.repetition import repetitions
from helpers.run_entries import accepted, finished
from runs_bench import opened

from tavern_engine.api.executions import RunFilter
from tavern_host.contracts.errors import Conflict, Misconfigured, TavernError


def damaged(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if ".damaged-" in path.name and not path.name.endswith(("-wal", "-shm"))]


async def ids(folder: Path) -> list[str]:
    async with opened(folder) as store:
        return [run.id for run in await store.list_runs(RunFilter())]


async def test_a_file_that_is_no_database_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for content in (b"not a database" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000):
        caplog.clear()
        folder = tmp_path / str(len(content))
        folder.mkdir()
        (folder / "runs.sqlite3").write_bytes(content)
        async with opened(folder) as store:
            await accepted(store, "run_1")
        assert await ids(folder) == ["run_1"]
        (aside,) = damaged(folder)
        assert aside.read_bytes() == content
        (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert "runs.sqlite3 is damaged" in line.message
        assert f"it is kept as {aside.name}, and a new one is begun" in line.message


async def test_a_damaged_database_is_replaced_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as store:
        await finished(store, *(f"run_{i}" for i in range(300)))
    path = tmp_path / "runs.sqlite3"
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + random.Random(1).randbytes(len(whole) - 4096))

    async with opened(tmp_path) as store:
        with pytest.raises(TavernError, match="runs.sqlite3: database disk image is malformed"):
            await store.list_runs(RunFilter())
        await accepted(store, "new")
        assert [run.id for run in await store.list_runs(RunFilter())] == ["new"]

    assert len(damaged(tmp_path)) == 1


async def test_the_store_works_with_any_damaged_database(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await finished(store, *(f"run_{i}" for i in range(100)))
    sound = (tmp_path / "runs.sqlite3").read_bytes()
    for seed in range(repetitions(2, 20)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        chance, whole = random.Random(seed), bytearray(sound)
        place = chance.randrange(len(whole))
        if seed % 2:
            del whole[place:]
        else:
            whole[place : place + 3000] = chance.randbytes(len(whole[place : place + 3000]))
        (folder / "runs.sqlite3").write_bytes(whole)
        async with opened(folder) as store:
            for attempt in range(5):
                try:
                    await store.list_runs(RunFilter(limit=1000))
                    await store.claim("w", 30)
                    await accepted(store, f"new_{attempt}")
                    assert (await store.get(f"new_{attempt}")).id == f"new_{attempt}"
                except (TavernError, Conflict) as error:
                    assert str(folder) in error.message or "damaged" in error.message
            assert "new_4" in [run.id for run in await store.list_runs(RunFilter(limit=1000))]


async def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await accepted(store, "run_1")
    with sqlite3.connect(tmp_path / "runs.sqlite3") as connection:
        connection.execute("PRAGMA user_version = 99")
    async with opened(tmp_path) as store:
        for _ in range(2):
            with pytest.raises(Misconfigured, match=r"runs.sqlite3 was written by another version .* of version 99"):
                await store.list_runs(RunFilter())
            with pytest.raises(Misconfigured, match="move the file away to begin a new one"):
                await accepted(store, "run_2")
    assert damaged(tmp_path) == []


async def test_a_database_removed_in_use_is_recreated(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await accepted(store, "run_1")
        await store.list_runs(RunFilter())
        for path in tmp_path.glob("runs.sqlite3*"):
            path.unlink()
        await accepted(store, "run_2")
        assert [run.id for run in await store.list_runs(RunFilter())] == ["run_2"]


async def test_a_folder_that_cannot_be_used_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder" / "runs.sqlite3").mkdir(parents=True)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "runs.sqlite3").symlink_to(tmp_path / "elsewhere" / "runs.sqlite3")
    reasons = {
        "file": "file: File exists",
        "file/runs": "Not a directory",
        "link": "link: it is a symbolic link, and nothing is kept behind one",
        "folder": "runs.sqlite3: it is not a regular file",
        "linked": "runs.sqlite3: it is a symbolic link, and nothing is kept behind one",
    }
    for name, reason in reasons.items():
        async with opened(tmp_path / name) as store:
            with pytest.raises(TavernError) as caught:
                await store.claim("w", 30, run_id="x") or await accepted(store, "run_1")
            assert reason in caught.value.message, name
            assert str(tmp_path) in caught.value.message
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_damaged_records_hold_up_no_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as first:
        await accepted(first, "broken", "odd", "sound", worker="first")
    with sqlite3.connect(tmp_path / "runs.sqlite3") as connection:
        connection.execute("UPDATE runs SET entry = x'7b' WHERE id = 'broken'")
        connection.execute("UPDATE runs SET status = 'odd', submitted = 1 << 62 WHERE id = 'odd'")
    async with opened(tmp_path) as store:
        assert (await store.claim("w", 30)).id == "sound"
        with pytest.raises(TavernError, match="the record of the run broken is damaged"):
            await store.get("broken")
        shown = {run.id: (run.status, run.resumable) for run in await store.list_runs(RunFilter())}
        assert (shown["broken"], shown.keys()) == (("error", False), {"broken", "sound"})
        assert "the record of the run odd is damaged" in caplog.text
        assert await store.delete("broken") is True
