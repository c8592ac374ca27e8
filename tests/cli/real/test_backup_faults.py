"""Backups while others write, and a restore that dies halfway."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures, repetitions
from test_backup import copied, state_of, tree, write

from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditLimits

DATABASES = 16

WRITER = """
import itertools, sqlite3, sys
connections = [sqlite3.connect(path, timeout=30, isolation_level=None) for path in sys.argv[1:]]
for number in itertools.count(1):
    for connection in connections:
        connection.execute("UPDATE t SET n = ?", (number,))
    if number == 1:
        print(flush=True)
"""


def test_databases_are_copied_as_at_one_moment(project: Path, tmp_path: Path) -> None:
    """Databases are written in turn: no copy has the write of a later one without those of all before it."""
    paths = [project / ".tavern" / "acme" / f"{number:02}.sqlite3" for number in range(DATABASES)]
    paths[0].parent.mkdir()
    paths[0].with_name("link.db").symlink_to(paths[0].name)
    for path in paths:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (0);")
    with subprocess.Popen([sys.executable, "-c", WRITER, *map(str, paths)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()  # it has begun
            seen = [numbers(project, tmp_path / str(attempt)) for attempt in range(repetitions(3, 30))]
        finally:
            writer.kill()
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


DIES = """
import os, pathlib, sys
from tavern_host.cli.terminal import run

rename, left = pathlib.Path.rename, int(sys.argv[1])

def dying(path, target):
    global left
    if "restor" in f"{path}{target}":
        left -= 1
        if left == 0:
            os._exit(9)
    return rename(path, target)

pathlib.Path.rename = dying
sys.exit(run(["restore", sys.argv[2]]))
"""


@pytest.mark.parametrize("nth", [2, 3, 4])
def test_a_half_replaced_project_is_not_opened(nth: int, project: Path, saved: Path) -> None:
    (project / "files" / "link").unlink()  # links are in no backup
    before = tree(project / "plugins", project / "files")
    write(project / "files" / "new.txt", "new")

    died = subprocess.run([sys.executable, "-c", DIES, str(nth), saved], check=False, capture_output=True)

    ran = tavern("--project", project, "plugins", "list")
    assert (died.returncode, ran.code, f"a restore of {project} has not ended" in ran.error) == (9, 2, True)
    assert tavern("restore", saved).code == 0
    assert tavern("--project", project, "plugins", "list").code == 0
    assert tree(project / "plugins", project / "files") == before
