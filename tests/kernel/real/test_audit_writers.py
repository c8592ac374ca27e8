"""Processes that write into one audit log at once, or are killed while they do."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from audit_table import AuditTable, entry
from helpers.audit_logs import tail
from helpers.survival import Child, killed, say

from tavern_host.audit.anchor import read_anchor
from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditCheck


def write(path: Path, anchor: Path, name: str, batches: int, size: int = 0) -> None:
    """Write batches of this many entries, or of none to three, and say the number of each."""
    store = SqliteAuditStore(path, anchor)
    for number in range(batches):
        fields = [b'"actor":"%s","action":"was.%d"}' % (name.encode(), n) for n in range(size or number % 4)]
        while problem := store.append([("2024-01-01T00:00:00+00:00", one) for one in fields]):
            assert "did not release it" in problem, problem  # so many write that some wait for long, and try again
        say(number)


async def test_several_processes_write_into_one_log(table: AuditTable) -> None:
    async with AsyncExitStack() as stack:
        writers = [Child(write, table.path, table.anchor, name, 40) for name in ("one", "two", "three")]
        for writer in writers:
            await stack.enter_async_context(writer)
        for number in range(40):
            while table.store.append([entry(f"mine.{number}")]) is not None:
                pass
        for writer in writers:
            await writer.ended()
    table.append("the.last")
    assert table.verify() == AuditCheck(entries=41 + 3 * 60)
    entries = tail(table.path, 1000)
    assert [entry.seq for entry in entries] == list(range(1, 222))
    assert read_anchor(table.anchor)[-1].number == 221
    for name in ("one", "two", "three"):
        assert [e.action for e in entries if e.actor == name] == [f"was.{n}" for m in range(40) for n in range(m % 4)]


async def test_a_killed_writer_leaves_whole_batches(table: AuditTable) -> None:
    """What it said was written is there, with the batch that it was writing or without."""
    said = 0
    for _ in range(3):
        said += len(await killed(write, table.path, table.anchor, "a", 10**9, 3, lines=20))
        check = table.verify()
        assert check.problem is None
        assert check.entries % 3 == 0 and check.entries >= 3 * said
    table.append("e.1")
    assert table.verify().problem is None
    assert table.actions()[-1] == "e.1"
