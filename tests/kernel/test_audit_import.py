"""Older audit logs, lines of JSON in sealed batches: verified as they are, and imported once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.audit_logs import tail, verify

from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditCheck

FIELDS = b'"actor":"user:operator","action":"%b"}'


class OldLog:
    """A log of three batches: lines 1-2 and their seal 3, 4 and 5, 6-8 and 9; with its anchor."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit" / "audit.sqlite3"
        self.jsonl = self.path.with_name("audit.jsonl")
        self.anchor = folder / "state" / "audit.json"
        self.jsonl.parent.mkdir()
        self.anchor.parent.mkdir()
        self.lines, self.marks = sealed([["a.1", "a.2"], ["b.1"], ["c.1", "c.2", "c.3"]])
        self.write()

    def write(self) -> None:
        self.jsonl.write_bytes(b"".join(self.lines))
        self.anchor.write_text(json.dumps({"marks": self.marks[-1:]}))

    def verify(self) -> AuditCheck:
        return verify(self.path, self.anchor)

    def actions(self) -> list[str]:
        return [entry.action for entry in tail(self.path, 1000)]

    def append(self, *actions: str) -> None:
        store = SqliteAuditStore(self.path, self.anchor)
        entries = [("1970-01-01T00:00:00.000000+00:00", FIELDS % action.encode()) for action in actions]
        assert store.append(entries) is None
        assert store.anchor_problem is None
        store.close()


def line(number: int, action: str) -> bytes:
    return b'{"seq":%d,"time":"1970-01-01T00:00:00.000000+00:00",%b\n' % (number, FIELDS % action.encode())


def sealed(batches: list[list[str]]) -> tuple[list[bytes], list[dict[str, int | str]]]:
    """Return the lines of a log as it was written, and its seals as an anchor marks them."""
    lines: list[bytes] = []
    marks: list[dict[str, int | str]] = []
    last, before = 0, ""
    for number, actions in enumerate(batches, 1):
        batch = [line(last + n, action) for n, action in enumerate(actions, 1)]
        last += len(actions)
        head = f'{{"seal":{number},"entries":{len(actions)},"last":{last},"recovered":0,"torn":0'
        before = hashlib.sha256(before.encode() + b"".join(batch) + head.encode()).hexdigest()
        lines += [*batch, f'{head},"hash":"{before}"}}\n'.encode()]
        marks.append({"seal": number, "hash": before})
    return lines, marks


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldLog]:
    return OldLog(tmp_path)


ACTIONS = ["a.1", "a.2", "b.1", "c.1", "c.2", "c.3"]


def test_a_log_not_imported_yet_is_read(old: OldLog) -> None:
    assert old.verify() == AuditCheck(entries=6)
    assert old.actions() == ACTIONS
    assert [(entry.seq, entry.action) for entry in tail(old.path, 2)] == [(5, "c.2"), (6, "c.3")]
    assert [path.name for path in old.path.parent.iterdir()] == ["audit.jsonl"]


def test_the_first_writer_imports_the_log_once(old: OldLog) -> None:
    content = old.jsonl.read_bytes()
    old.append("d.1")
    old.append("e.1")
    assert old.actions() == [*ACTIONS, "audit.imported", "d.1", "e.1"]
    assert [entry.seq for entry in tail(old.path, 1000)] == list(range(1, 10))
    details = tail(old.path, 3)[0].details
    assert details == {"entries": 6, "recovered": 0, "torn": 0, "seal": old.marks[-1]["hash"]}
    assert old.verify() == AuditCheck(entries=9)
    assert not old.jsonl.exists()
    assert old.jsonl.with_name("audit.jsonl.imported").read_bytes() == content


def test_a_crash_before_anchoring_is_no_fault(old: OldLog) -> None:
    before = old.anchor.read_bytes()
    old.append("d.1")
    old.anchor.write_bytes(before)
    assert old.verify() == AuditCheck(entries=8)
    old.append("e.1")
    assert old.actions() == [*ACTIONS, "audit.imported", "d.1", "e.1"]


def test_a_log_cut_by_a_crash_is_imported(old: OldLog) -> None:
    old.lines += [line(7, "d.1"), b'{"seq":8,"ti']
    old.write()
    assert old.verify() == AuditCheck(entries=7, unsealed=1, torn=1)
    old.append("e.1")
    assert old.actions() == [*ACTIONS, "d.1", "audit.imported", "e.1"]
    assert tail(old.path, 2)[0].details == {"entries": 7, "recovered": 1, "torn": 1, "seal": old.marks[-1]["hash"]}
    assert old.verify() == AuditCheck(entries=9)


INSERTED = b'{"seq":4,"time":"x","actor":"a","action":"b"}\n'


@pytest.mark.parametrize(
    ("where", "lines", "at", "problem"),
    [
        (
            slice(3, 4),
            [line(3, "b.2")],
            4,
            "lines 4 to 5 are not as they were sealed: something was changed or deleted",
        ),
        (slice(6, 7), [], 7, "entry 6 follows entry 4"),
        (slice(0, 2), [line(2, "a.2"), line(1, "a.1")], 1, "entry 2 follows entry 0"),
        (slice(5, 5), [INSERTED], 7, "entry 4 follows entry 4"),
        (slice(5, None), [], 5, "the end was cut off: it has 2 seals, and the operator's anchor knows seal 3"),
        (
            slice(None),
            sealed([["a"], ["b"], ["c"], ["d"]])[0],
            8,
            "it was replaced: its seal 3 is not the one that the operator's anchor knows",
        ),
    ],
    ids=["changed", "deleted", "swapped", "inserted", "truncated", "replaced"],
)
def test_importing_does_not_cover_up_tampering(
    old: OldLog, where: slice, lines: list[bytes], at: int, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    old.lines[where] = lines
    old.write()
    before = old.verify()
    assert (before.line, before.problem) == (at, problem)
    old.append("d.1")
    old.append("e.1")
    (number,) = [entry.seq for entry in tail(old.path, 100) if entry.action == "audit.imported"]
    told = f"the older log before it was changed: line {at}: {problem}"
    assert old.verify() == AuditCheck(entries=number + 2, line=number, problem=told)
    assert f"line {at}: {problem}" in caplog.text


@pytest.mark.parametrize("number", range(9))
def test_a_line_deleted_anywhere_is_found(old: OldLog, number: int) -> None:
    del old.lines[number]
    old.write()
    assert old.verify().problem is not None


def test_a_deleted_log_is_found_after_the_upgrade(old: OldLog) -> None:
    old.jsonl.unlink()
    assert "the end was cut off" in str(old.verify().problem)
    old.append("d.1")
    assert old.actions() == ["audit.broken", "d.1"]
    assert old.verify().problem is not None


def test_an_old_log_beside_a_new_is_ignored(old: OldLog) -> None:
    content = old.jsonl.read_bytes()
    old.append("d.1")
    old.jsonl.write_bytes(content)
    old.append("e.1")
    assert old.actions().count("audit.imported") == 1
    assert old.verify() == AuditCheck(entries=9)


def test_lines_that_are_too_long_are_no_entries(old: OldLog) -> None:
    old.lines.append(b'{"seq":7,"time":"' + b"x" * (3 * 2**20) + b'"}')
    old.write()
    assert old.verify() == AuditCheck(entries=6, torn=1)
    old.append("d.1")
    assert old.actions() == [*ACTIONS, "audit.imported", "d.1"]


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_only_a_regular_file_is_imported(old: OldLog, tmp_path: Path, what: str) -> None:
    content = old.jsonl.read_bytes()
    old.jsonl.unlink()
    if what == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        old.jsonl.symlink_to(tmp_path / "elsewhere")
    elif what == "pipe":
        os.mkfifo(old.jsonl)
    else:
        old.jsonl.mkdir()
    with pytest.raises(OSError):
        old.verify()
    assert SqliteAuditStore(old.path, old.anchor).append([]) is not None
