"""Backups while others write, and a restore that dies halfway."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures, repetitions
from helpers.survival import Child, say
from test_backup import copied, state_of, tree, write

from tavern_host.audit.store import SqliteAuditStore
from tavern_host.cli.terminal import run
from tavern_host.contracts.audit import AuditLimits

DATABASES = 16


def write_in_turn(paths: list[Path]) -> None:
    """Write one number after the other into all databases."""
    connections = [sqlite3.connect(path, timeout=30, isolation_level=None) for path in paths]
    for number in itertools.count(1):
        for connection in connections:
            connection.execute("UPDATE t SET n = ?", (number,))
        if number == 1:
            say("begun")


async def test_databases_are_copied_as_at_one_moment(project: Path, tmp_path: Path) -> None:
    """Databases are written in turn: no copy has the write of a later one without those of all before it."""
    paths = [project / ".tavern" / "acme" / f"{number:02}.sqlite3" for number in range(DATABASES)]
    paths[0].parent.mkdir()
    paths[0].with_name("link.db").symlink_to(paths[0].name)
    for path in paths:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (0);")
    async with Child(write_in_turn, paths) as writer:
        assert await writer.said() == "begun"
        seen = [numbers(project, tmp_path / str(attempt)) for attempt in range(repetitions(3, 30))]
        await writer.killed()
    assert [row for row in seen if row != sorted(row, reverse=True) or row[0] - row[-1] > 1] == []
    assert seen[-1][0] > 0


def numbers(project: Path, folder: Path) -> list[int]:
    """Make a backup and return the numbers in its databases."""
    found = []
    for copy in sorted((copied(project, folder) / "project" / ".tavern" / "acme").iterdir()):
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            found.append(connection.execute("SELECT n FROM t").fetchone()[0])
    assert len(found) == DATABASES
    return found


def test_an_audit_log_that_rotates_meanwhile_is_whole(project: Path, tmp_path: Path) -> None:
    log, anchor = project / ".tavern" / "audit" / "audit.sqlite3", state_of(project) / "audit.json"
    stores = [SqliteAuditStore(log, anchor, AuditLimits(days=days)) for days in (1, *[36500] * 4)]
    entry = ("1970-01-01T00:00:00+00:00", b'"actor":"a","action":"b.c"}')

    def step(number: int) -> None:
        # On a busy machine a backup may hold the log for longer than a store waits; the host tries again, too.
        assert any(stores[number % len(stores)].append([entry]) is None for _ in range(10))

    def append() -> None:
        for number in itertools.count(2):
            step(number)
            if end.wait(0.002):
                return

    step(0)
    step(1)
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool, Failures() as failures:
        appending = pool.submit(append)
        try:
            for attempt in range(repetitions(5, 30)):
                copy = copied(project, tmp_path / str(attempt))
                with failures.row(attempt):
                    state = copy / "state" / "audit.json"
                    check = SqliteAuditStore(copy / "project" / log.relative_to(project), state).verify()
                    assert check.problem is None
                    assert check.entries > 0
        finally:
            end.set()
        appending.result()
    for store in stores:
        store.close()
    assert list(log.parent.glob("*.db"))


def restore_and_die(nth: int, saved: Path) -> None:
    """Restore a backup; the process ends before the nth file or folder of it gets its place."""
    rename, left = Path.rename, itertools.count(1)

    def dying(path: Path, target: Path) -> Path:
        if "restor" in f"{path}{target}" and next(left) == nth:
            os._exit(9)
        return rename(path, target)

    Path.rename = dying  # type: ignore[method-assign, assignment]
    run(["restore", str(saved)])


@pytest.mark.parametrize("nth", [2, 3, 4])
async def test_a_half_replaced_project_is_not_opened(nth: int, project: Path, saved: Path) -> None:
    (project / "files" / "link").unlink()  # links are in no backup
    before = tree(project / "plugins", project / "files")
    write(project / "files" / "new.txt", "new")

    async with Child(restore_and_die, nth, saved) as child:
        await child.ended(9)

    ran = await asyncio.to_thread(tavern, "--project", project, "plugins", "list")
    assert (ran.code, f"a restore of {project} has not ended" in ran.error) == (2, True)
    assert (await asyncio.to_thread(tavern, "restore", saved)).code == 0
    assert (await asyncio.to_thread(tavern, "--project", project, "plugins", "list")).code == 0
    assert tree(project / "plugins", project / "files") == before
