"""Databases that are damaged: what is found, what is kept of them, and what those who have them open see."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures, repetitions

from tavern_host.audit.store import SqliteAuditStore, now
from tavern_host.storage.sqlite import DatabaseThread, Schema
from tavern_operations.database_check import check_databases

FIRST = (
    "CREATE TABLE parents (seq INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE children (parent INTEGER NOT NULL REFERENCES parents (seq), body TEXT NOT NULL)",
    "CREATE INDEX children_of ON children (parent)",
    "CREATE TABLE words (word TEXT, number INTEGER, PRIMARY KEY (word, number)) WITHOUT ROWID",
)
SECOND = ("ALTER TABLE parents ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",)
OLD, NEW = Schema("some.sqlite3", (FIRST,)), Schema("some.sqlite3", (FIRST, SECOND))
DERIVED = Schema("some.sqlite3", (FIRST,), is_derived=True)
ROWS = 2000
PAGE = 4096
log = logging.getLogger("tests.damage")


def _fill(connection: sqlite3.Connection) -> None:
    for number in range(ROWS):
        connection.execute("INSERT INTO parents (seq, name) VALUES (?, ?)", (number, f"parent {number}"))
        connection.execute("INSERT INTO children VALUES (?, ?)", (number, f"{number} {'x' * 60}"))
        connection.execute("INSERT INTO words VALUES (?, ?)", (f"word {number:05}", number))


async def _made(folder: Path) -> Path:
    thread = DatabaseThread(folder, OLD, log, "test: making")
    await thread.write(_fill)
    await thread.close()
    return folder / OLD.file


def _damage(path: Path, place: int, length: int = PAGE, seed: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place : place + length] = random.Random(seed).randbytes(len(content[place : place + length]))
    path.write_bytes(content)


def _page_with(path: Path, text: bytes) -> int:
    """Return where the page begins that has a text in the middle of the file."""
    return path.read_bytes().index(text) // PAGE * PAGE


def _aside(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.damaged-*") if not path.name.endswith(("-wal", "-shm"))]


async def _rows(thread: DatabaseThread, select: str) -> list[tuple[object, ...]]:
    return await thread.read(lambda connection: connection.execute(select).fetchall(), [])


async def _checked(folder: Path, schema: Schema, *selects: str, write: str = "SELECT 1") -> list[Any]:
    """Check a folder's databases; return what is selected of one that is opened then, after something is written."""
    check_databases(folder, threading.Event())
    thread = DatabaseThread(folder, schema, log, "test: reading")
    await thread.write(lambda connection: connection.execute(write).rowcount)
    found = [await _rows(thread, select) for select in selects]
    await thread.close()
    return found


async def test_a_damaged_page_loses_its_rows_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = await _made(tmp_path)
    _damage(path, _page_with(path, b"1000 xxx"))
    _damage(path, _page_with(path, b"1500 xxx"))

    selects = (
        "SELECT body FROM children",
        "SELECT note, count(*) FROM parents GROUP BY 1",
        "SELECT count(*) FROM words",
    )
    read, notes, words = await _checked(tmp_path, NEW, *selects)
    bodies = [body.split()[0] for (body,) in read]
    assert ROWS - 250 < len(bodies) < ROWS - 50
    assert {"0", "1250", "1999"} < set(bodies)
    assert not {"1000", "1500"} & set(bodies)
    assert (notes, words) == ([("none", ROWS)], [(ROWS,)])
    (aside,) = _aside(tmp_path)
    found, rescued = (record.getMessage() for record in caplog.records)
    assert found.startswith(f"{path} is damaged (")
    assert found.endswith(f": it is kept as {aside.name}, and a new one is begun")
    assert rescued == f"{path}: {2 * ROWS + len(bodies)} rows could be read of the damaged file, and are in the new one"


async def test_rows_that_lost_what_they_refer_to_are_left_out(tmp_path: Path) -> None:
    path = await _made(tmp_path)
    while b"parent 1000" in path.read_bytes():  # in the table, and in the index of names
        _damage(path, _page_with(path, b"parent 1000"))

    insert = "INSERT INTO parents VALUES (5000, 'new')"
    read = await _checked(tmp_path, OLD, "SELECT seq FROM parents", "SELECT parent FROM children", write=insert)
    parents, children = ({number for (number,) in rows} for rows in read)
    assert 1000 not in parents
    assert children == parents - {5000}, "each child has its parent, and no other was lost"


async def test_databases_damaged_anywhere_are_used_again(tmp_path: Path) -> None:
    whole = (await _made(tmp_path / "whole")).read_bytes()
    chance = random.Random(7)
    insert = "INSERT INTO parents VALUES (9999, 'n', '')"
    selects = ("SELECT name FROM parents WHERE seq = 9999", "PRAGMA integrity_check", "PRAGMA foreign_key_check")
    with Failures() as failures:
        for seed in range(repetitions(8, 200)):
            folder = tmp_path / str(seed)
            folder.mkdir()
            path = folder / OLD.file
            place = chance.randrange(len(whole))
            path.write_bytes(whole[:place] if seed % 3 == 0 else whole)
            if seed % 3:
                _damage(path, place, chance.choice([40, 5000, 50_000]), seed)
            with failures.row(f"seed {seed}, place {place}"):
                assert await _checked(folder, NEW, *selects, write=insert) == [[("n",)], [("ok",)], []]
                assert not list(folder.glob("*.unread*"))


async def test_who_has_a_damaged_database_open_goes_on(tmp_path: Path) -> None:
    path = await _made(tmp_path)
    _damage(path, _page_with(path, b"1000 xxx"))
    thread = DatabaseThread(tmp_path, OLD, log, "test: using")
    await thread.write(lambda connection: connection.execute("INSERT INTO parents VALUES (5000, 'before')").rowcount)
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    checking = threading.Thread(target=check_databases, args=(tmp_path, threading.Event()))
    checking.start()
    holder.execute("INSERT INTO parents VALUES (6000, 'meanwhile')")
    holder.execute("COMMIT")
    checking.join()
    await thread.write(lambda connection: connection.execute("INSERT INTO parents VALUES (7000, 'after')").rowcount)
    holder.close()

    found = await _rows(thread, "SELECT name FROM parents WHERE seq >= 5000")
    await thread.close()
    assert found == [("before",), ("meanwhile",), ("after",)]


async def test_a_derived_database_begins_empty(tmp_path: Path) -> None:
    path = await _made(tmp_path)
    _damage(path, _page_with(path, b"1000 xxx"))
    assert await _checked(tmp_path, DERIVED, "SELECT count(*) FROM parents") == [[(0,)]]
    assert len(_aside(tmp_path)) == 1


async def test_rows_are_copied_after_a_kill_while_they_were(tmp_path: Path) -> None:
    path = await _made(tmp_path)
    _damage(path, _page_with(path, b"1000 xxx"))
    check_databases(tmp_path, threading.Event())
    path.unlink()  # moved aside, and killed before there was a new one
    assert await _checked(tmp_path, OLD, "SELECT count(*) FROM parents") == [[(ROWS,)]]


async def test_a_sound_database_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = await _made(tmp_path)
    elsewhere = tmp_path / "elsewhere.sqlite3"
    elsewhere.symlink_to(path)
    (tmp_path / "folder.sqlite3").mkdir()
    before = path.read_bytes()
    check_databases(tmp_path, threading.Event())
    check_databases(tmp_path / "absent", threading.Event())
    assert (path.read_bytes(), _aside(tmp_path), caplog.records) == (before, [], [])


def test_a_damaged_audit_log_shows_its_gap(tmp_path: Path) -> None:
    store = SqliteAuditStore(tmp_path / "audit.sqlite3", tmp_path / "audit.json")
    fields = b'"actor":"system:host","action":"test.%d","subject":"","details":{"text":"%s"}}'
    for first in (0, 100):
        entries = [(now(), fields % (number, b"x" * 200)) for number in range(first, first + 100)]
        assert store.append(entries) is None
    store.close()
    path = tmp_path / "audit.sqlite3"
    _damage(path, _page_with(path, b"test.100"))

    check_databases(tmp_path, threading.Event())
    with pytest.raises(OSError, match="it was damaged; what can be read of it is copied with the next entry"):
        store.tail(10)
    assert store.append([(now(), fields % (200, b"new"))]) is None
    actions = [entry.action for entry in store.tail(1000)]
    check = store.verify()
    store.close()

    assert "test.100" not in actions
    assert {"test.0", "test.199", "test.200"} < set(actions)
    assert check.problem is not None
    assert "an entry was deleted or inserted" in check.problem
