"""Processes that write into one audit log at once, or are killed while they do."""

from __future__ import annotations

import signal
import subprocess
import sys

from audit_table import AuditTable, entry
from helpers.audit_logs import tail

from tavern_host.audit.anchor import read_anchor
from tavern_host.contracts.audit import AuditCheck

WRITER = """
import sys
from pathlib import Path
from tavern_host.audit.store import SqliteAuditStore

store = SqliteAuditStore(Path(sys.argv[1]), Path(sys.argv[2]))
name, batches, size = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
for number in range(batches):
    fields = [b'"actor":"%s","action":"was.%d"}' % (name.encode(), n) for n in range(size or number % 4)]
    while problem := store.append([("2024-01-01T00:00:00+00:00", one) for one in fields]):
        assert "did not release it" in problem, problem  # so many write that some wait for long, and try again
    print(number, flush=True)
"""


def writer(table: AuditTable, name: str, batches: int, size: int = 0) -> subprocess.Popen[str]:
    """Start a process that writes batches of this many entries, or of none to three."""
    arguments = [table.path, table.anchor, name, str(batches), str(size)]
    return subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE, text=True)


def test_several_processes_write_into_one_log(table: AuditTable) -> None:
    running = [writer(table, name, 40) for name in ("one", "two", "three")]
    for number in range(40):
        while table.store.append([entry(f"mine.{number}")]) is not None:
            pass
    for process in running:
        process.communicate()
    assert [process.returncode for process in running] == [0, 0, 0]
    table.append("the.last")
    assert table.verify() == AuditCheck(entries=41 + 3 * 60)
    entries = tail(table.path, 1000)
    assert [entry.seq for entry in entries] == list(range(1, 222))
    assert read_anchor(table.anchor)[-1].number == 221
    for name in ("one", "two", "three"):
        assert [e.action for e in entries if e.actor == name] == [f"was.{n}" for m in range(40) for n in range(m % 4)]


def test_a_killed_writer_leaves_whole_batches(table: AuditTable) -> None:
    """What it said was written is there, with the batch that it was writing or without."""
    said = 0
    for _ in range(3):
        process = writer(table, "a", 10**9, 3)
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        said += 20 + len(process.stdout.read().splitlines())
        process.wait()
        process.stdout.close()
        check = table.verify()
        assert check.problem is None
        assert check.entries % 3 == 0 and check.entries >= 3 * said
    table.append("e.1")
    assert table.verify().problem is None
    assert table.actions()[-1] == "e.1"
