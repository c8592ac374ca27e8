"""The audit log's file: what was sealed cannot be changed unseen, and a crash loses nothing that was there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tavern_host.audit import file as auditfile
from tavern_host.audit.file import AuditFile, Entry, entry_body, read_anchor, read_on, tail, verify
from tavern_host.contracts.audit import AuditCheck

MANY_WRITERS = """
import sys
from pathlib import Path
from tavern_host.audit.file import AuditFile, entry_body

path, anchor, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
file = AuditFile(path, anchor)
for number in range(40):
    bodies = [entry_body(0, b'{"actor":"%s","action":"was.%d"}' % (name.encode(), n)) for n in range(number % 4)]
    assert file.append(bodies) == (len(bodies), None)
"""


class Log:
    """A log that a test writes into, and spoils."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit" / "audit.jsonl"
        self.anchor = folder / "state" / "audit.json"
        self.file = AuditFile(self.path, self.anchor)

    def append(self, *actions: str) -> None:
        assert self.file.append([body(action) for action in actions]) == (len(actions), None)

    def restart(self) -> None:
        """Go on as a new process would."""
        self.file.close()
        self.file = AuditFile(self.path, self.anchor)

    def verify(self) -> AuditCheck:
        return verify(self.path, self.anchor)

    def actions(self) -> list[str]:
        return [entry.action for entry in tail(self.path, 1000)]

    @property
    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    @lines.setter
    def lines(self, lines: list[bytes]) -> None:
        self.path.write_bytes(b"".join(lines))

    def add(self, text: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(text)


def body(action: str, **more: Any) -> Entry:
    return entry_body(0, json.dumps({"actor": "user:operator", "action": action, **more}).encode())


def line(number: int, action: str) -> bytes:
    return b'{"seq":%d,"time":"1970-01-01T00:00:00.000000+00:00",%b\n' % (number, body(action)[1])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.file.close()


@pytest.fixture
def sealed(log: Log) -> Log:
    """Return a log of three batches: lines 1-2 and their seal 3, 4 and 5, 6-8 and 9."""
    log.append("a.1", "a.2")
    log.append("b.1")
    log.append("c.1", "c.2", "c.3")
    return log


# --- what is written ----------------------------------------------------------------------------------


def test_entries_are_numbered_and_read_back_in_order(sealed: Log) -> None:
    entries = tail(sealed.path, 4)
    assert [(entry.seq, entry.action, entry.actor) for entry in entries] == [
        (3, "b.1", "user:operator"),
        (4, "c.1", "user:operator"),
        (5, "c.2", "user:operator"),
        (6, "c.3", "user:operator"),
    ]
    assert entries[0].time.isoformat() == "1970-01-01T00:00:00+00:00"


def test_a_log_that_nobody_touched_is_in_order(sealed: Log) -> None:
    assert sealed.verify() == AuditCheck(entries=6)
    assert verify(sealed.path) == AuditCheck(entries=6)


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert verify(tmp_path / "none.jsonl", tmp_path / "none.json") == AuditCheck(entries=0)
    assert tail(tmp_path / "none.jsonl", 5) == []


def test_nobody_else_may_read_it(sealed: Log) -> None:
    assert sealed.path.stat().st_mode & 0o077 == 0
    assert sealed.anchor.stat().st_mode & 0o077 == 0


def test_a_writer_that_comes_later_goes_on_where_the_log_ends(sealed: Log) -> None:
    sealed.restart()
    sealed.append("d.1")
    assert tail(sealed.path, 1)[0].seq == 7
    assert sealed.verify() == AuditCheck(entries=7)


def test_several_processes_write_into_one_log(log: Log) -> None:
    arguments = [sys.executable, "-c", MANY_WRITERS, str(log.path), str(log.anchor)]
    running = [subprocess.Popen([*arguments, name]) for name in ("one", "two", "three")]
    for number in range(40):
        log.append(f"mine.{number}")
    assert [process.wait() for process in running] == [0, 0, 0]
    assert log.verify() == AuditCheck(entries=40 + 3 * 60)
    entries = tail(log.path, 1000)
    assert [entry.seq for entry in entries] == list(range(1, 221))
    for name in ("one", "two", "three"):
        assert [e.action for e in entries if e.actor == name] == [f"was.{n}" for m in range(40) for n in range(m % 4)]


def test_a_log_that_is_moved_away_is_begun_anew_and_the_operator_is_told(sealed: Log) -> None:
    sealed.path.rename(sealed.path.with_name("old.jsonl"))
    sealed.append("d.1")
    assert sealed.actions() == ["audit.broken", "d.1"]
    check = sealed.verify()
    assert check.problem == "the end was cut off: it has 1 seals, and the operator's anchor knows seal 3"


# --- what is changed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (1, "lines 1 to 3 are not as they were sealed: something was changed, taken out or put in"),
        (4, "lines 4 to 5 are not as they were sealed: something was changed, taken out or put in"),
        (7, "lines 6 to 9 are not as they were sealed: something was changed, taken out or put in"),
    ],
)
def test_a_changed_entry_is_found(sealed: Log, line: int, problem: str) -> None:
    lines = sealed.lines
    lines[line - 1] = lines[line - 1].replace(b"operator", b"Operator")
    sealed.lines = lines
    check = sealed.verify()
    assert check.problem == problem
    assert check.line == int(problem.split()[1])


@pytest.mark.parametrize("line", range(1, 10))
def test_a_line_that_was_taken_out_is_found(sealed: Log, line: int) -> None:
    lines = sealed.lines
    del lines[line - 1]
    sealed.lines = lines
    assert verify(sealed.path).problem is not None or line == 9  # without its seal, the end counts as unsealed
    assert sealed.verify().problem is not None


def test_of_an_entry_that_was_taken_out_the_place_is_told(sealed: Log) -> None:
    lines = sealed.lines
    del lines[6]
    sealed.lines = lines
    check = sealed.verify()
    assert (check.line, check.problem) == (7, "entry 6 stands after entry 4")


@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, 4), (6, 8), (3, 5), (1, 9)])
def test_lines_that_changed_places_are_found(sealed: Log, first: int, second: int) -> None:
    lines = sealed.lines
    lines[first - 1], lines[second - 1] = lines[second - 1], lines[first - 1]
    sealed.lines = lines
    assert sealed.verify().problem is not None


@pytest.mark.parametrize("place", range(10))
@pytest.mark.parametrize("what", [b"\n", b"{}\n", b'{"seq":4,"time":"x"}\n'], ids=["empty", "object", "entry"])
def test_a_line_that_was_put_in_is_found(sealed: Log, place: int, what: bytes) -> None:
    lines = sealed.lines
    sealed.lines = [*lines[:place], what, *lines[place:]]
    check = sealed.verify()
    assert check.problem is not None or (place == 9 and check.torn == 1)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_what_is_sealed_can_be_changed(sealed: Log, data: st.DataObject) -> None:
    before = sealed.path.read_bytes()
    place = data.draw(st.integers(0, len(before) - 1))
    spoiled = bytearray(before)
    spoiled[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != before[place]))
    sealed.path.write_bytes(spoiled)
    try:
        assert sealed.verify().problem is not None
    finally:
        sealed.path.write_bytes(before)


@pytest.mark.parametrize("kept", range(9))
def test_an_end_that_was_cut_off_is_found_by_the_anchor(sealed: Log, kept: int) -> None:
    sealed.lines = sealed.lines[:kept]
    seals = sum(kept >= line for line in (3, 5))
    check = sealed.verify()
    assert check.problem == f"the end was cut off: it has {seals} seals, and the operator's anchor knows seal 3"
    assert check.line == kept


def test_a_log_that_was_sealed_anew_is_found_by_the_anchor_alone(sealed: Log, tmp_path: Path) -> None:
    sealed.path.unlink()
    forger = AuditFile(sealed.path, None)
    for batch in (["a.1"], ["b.1"], ["c.1"], ["d.1"]):
        forger.append([body(action) for action in batch])
    assert verify(sealed.path).problem is None
    assert sealed.verify().problem == "it was written anew: its seal 3 is not the one that the operator's anchor knows"


def test_writing_on_does_not_cover_up_what_was_cut_off(sealed: Log) -> None:
    sealed.lines = sealed.lines[:3]
    for number in range(5):
        sealed.append(f"d.{number}")
        sealed.restart()
    assert sealed.actions()[2:4] == ["audit.broken", "d.0"]
    assert tail(sealed.path, 6)[0].details == {"seal": 3, "seals": 1}
    assert sealed.verify().problem == "it was written anew: its seal 3 is not the one that the operator's anchor knows"
    assert sealed.actions().count("audit.broken") == 1


def test_an_anchor_does_not_grow_without_end(sealed: Log) -> None:
    for _ in range(30):
        sealed.lines = []
        sealed.append("a")
        sealed.append("b")
    assert len(read_anchor(sealed.anchor)) == auditfile.MARKS
    assert sealed.verify().problem == "the end was cut off: it has 2 seals, and the operator's anchor knows seal 3"


def test_an_anchor_that_lags_behind_the_log_is_no_fault(sealed: Log) -> None:
    before = sealed.anchor.read_bytes()
    sealed.append("d.1")
    sealed.append("d.2")
    sealed.anchor.write_bytes(before)
    assert sealed.verify().problem is None
    sealed.restart()
    sealed.append("e.1")
    assert sealed.verify() == AuditCheck(entries=9)
    assert read_anchor(sealed.anchor)[-1].seal == 6


@pytest.mark.parametrize("content", [b"", b"no", b"[]", b'{"marks":[{"seal":"x","hash":1}]}', b'{"marks":7}', b"\xff"])
def test_a_damaged_anchor_is_told_and_left_alone(sealed: Log, content: bytes) -> None:
    sealed.anchor.write_bytes(content)
    sealed.restart()
    sealed.append("d.1")
    assert sealed.file.anchor_problem == f"{sealed.anchor} is damaged; if that is no loss, remove it"
    assert sealed.anchor.read_bytes() == content
    check = sealed.verify()
    assert check.problem == f"{sealed.anchor} is damaged, so that nobody can say whether the end was cut off"
    sealed.anchor.unlink()
    sealed.append("d.2")
    assert sealed.file.anchor_problem is None
    assert sealed.verify() == AuditCheck(entries=8)


def test_an_anchor_that_cannot_be_written_does_not_keep_the_log_from_it(log: Log) -> None:
    log.anchor.parent.write_text("a file where the folder should be")
    log.append("a.1")
    assert log.actions() == ["a.1"]
    assert log.file.anchor_problem == f"{log.anchor} cannot be used: Not a directory"


# --- what a crash leaves ------------------------------------------------------------------------------


def test_entries_without_a_seal_are_counted_and_sealed_by_the_next_writer(sealed: Log) -> None:
    sealed.add(line(7, "d.1") + line(8, "d.2"))
    assert sealed.verify() == AuditCheck(entries=8, unsealed=2)
    sealed.append("e.1")
    assert sealed.actions()[-4:] == ["d.1", "d.2", "audit.recovered", "e.1"]
    assert sealed.verify() == AuditCheck(entries=10, recovered=2)
    lines = sealed.lines
    lines[9] = lines[9].replace(b"d.1", b"d.9")
    sealed.lines = lines
    assert sealed.verify().problem is not None


def test_a_line_that_a_crash_cut_short_is_told_and_loses_no_other(sealed: Log) -> None:
    sealed.add(line(7, "d.1") + b'{"seq":8,"ti')
    assert sealed.verify() == AuditCheck(entries=7, unsealed=1, torn=1)
    assert sealed.actions()[-1] == "d.1"
    sealed.restart()
    sealed.append("e.1")
    assert sealed.actions()[-3:] == ["d.1", "audit.recovered", "e.1"]
    assert tail(sealed.path, 2)[0].details == {"entries": 1, "torn": 1}
    assert sealed.verify() == AuditCheck(entries=9, recovered=1, torn=1)


@pytest.mark.parametrize("kept", range(1, 420, 7))
def test_a_batch_may_be_cut_short_anywhere(sealed: Log, kept: int) -> None:
    before, mark = sealed.path.read_bytes(), sealed.anchor.read_bytes()
    sealed.append("d.1", "d.2")
    batch = sealed.path.read_bytes()[len(before) :]
    sealed.path.write_bytes(before + batch[:kept])
    sealed.anchor.write_bytes(mark)
    assert sealed.verify().problem is None
    sealed.restart()
    sealed.append("e.1")
    assert sealed.verify().problem is None
    assert sealed.path.read_bytes().startswith(before + batch[:kept])
    whole = (batch[:kept] + b"\n").count(b"}\n{") if kept < len(batch) else 2
    assert [action for action in sealed.actions() if not action.startswith("audit.")][6:] == [
        *["d.1", "d.2"][:whole],
        "e.1",
    ]


def test_a_forged_line_at_the_end_does_not_keep_the_log_from_going_on(sealed: Log) -> None:
    sealed.add(b'{"seq":999999999999999999,"time":"x","actor":"user:operator","action":"was"}\n')
    sealed.append("d.1")
    sealed.append("d.2")
    assert sealed.actions()[-3:] == ["audit.recovered", "d.1", "d.2"]
    assert sealed.verify().problem == "entry 999999999999999999 stands after entry 6"


def test_a_line_without_end_is_no_entry_and_costs_nothing_else(sealed: Log) -> None:
    sealed.add(b'{"seq":7,"time":"' + b"x" * (3 * auditfile.MAX_LINE) + b'"}')
    sealed.append("d.1")
    sealed.restart()
    sealed.append("d.2")
    assert sealed.actions()[-4:] == ["c.3", "audit.recovered", "d.1", "d.2"]
    assert sealed.verify() == AuditCheck(entries=9, torn=1)


def test_what_is_no_log_at_all_is_gone_on_with(log: Log) -> None:
    log.path.parent.mkdir()
    log.path.write_bytes(b"\x00\xff\n\n" * 1000 + b"no newline")
    log.append("a.1")
    assert log.actions() == ["audit.recovered", "a.1"]
    assert log.verify() == AuditCheck(entries=2, torn=2001)


def test_a_full_disk_keeps_what_could_be_written_and_the_rest_comes_later(
    sealed: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [body(f"d.{number}") for number in range(5)]
    room = 2 * len(line(7, "d.0")) + 20
    real = os.write

    def full(file: int, data: Any) -> int:
        nonlocal room
        if room == 0:
            raise OSError(28, "No space left on device")
        written = real(file, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", full)
    count, error = sealed.file.append(bodies)
    assert count == 2
    assert error is not None and error.strerror == "No space left on device"
    monkeypatch.undo()
    assert sealed.file.append(bodies[count:]) == (3, None)
    assert [a for a in sealed.actions() if a.startswith("d.")] == ["d.0", "d.1", "d.2", "d.3", "d.4"]
    assert sealed.verify() == AuditCheck(entries=12, recovered=2, torn=1)


# --- where it is --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["link", "folder link", "folder", "pipe"])
def test_a_project_cannot_turn_the_log_into_something_else(log: Log, tmp_path: Path, what: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if what == "folder link":
        elsewhere.mkdir()
        log.path.parent.symlink_to(elsewhere)
    else:
        log.path.parent.mkdir()
        if what == "link":
            elsewhere.write_text("mine")
            log.path.symlink_to(elsewhere)
        elif what == "folder":
            log.path.mkdir()
        else:
            os.mkfifo(log.path)
    count, error = log.file.append([body("a.1")])
    assert (count, type(error)) == (0, error.__class__) and isinstance(error, OSError)
    if what == "link":
        assert elsewhere.read_text() == "mine"
    if what == "folder link":
        assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "read", [verify, lambda path: tail(path, 5), lambda path: read_on(path, 0)], ids=["verify", "tail", "read_on"]
)
def test_what_is_no_file_cannot_be_read(tmp_path: Path, read: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError):
            read(path)


def test_one_that_holds_the_log_for_ever_costs_a_deadline(sealed: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditfile, "LOCK_DEADLINE", 0.05)
    with sealed.path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        count, error = sealed.file.append([body("d.1")])
        assert (count, error and error.strerror) == (0, "another process does not let go of it")
        assert sealed.verify() == AuditCheck(entries=6)
    sealed.append("d.1")
    assert sealed.verify() == AuditCheck(entries=7)


# --- reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [-1, 0, 1, 3, 6, 100])
def test_the_newest_entries_are_read_from_the_end(sealed: Log, limit: int) -> None:
    everything = ["a.1", "a.2", "b.1", "c.1", "c.2", "c.3"]
    wanted = everything[-limit:] if limit > 0 else []
    assert [entry.action for entry in tail(sealed.path, limit)] == wanted


@pytest.mark.parametrize("block", [1, 2, 3, 50, 64, 1000])
def test_where_the_blocks_end_that_it_is_read_in_makes_no_difference(
    sealed: Log, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed.add(b"torn")
    monkeypatch.setattr(auditfile, "_BLOCK", block)
    assert sealed.actions() == ["a.1", "a.2", "b.1", "c.1", "c.2", "c.3"]
    sealed.restart()
    sealed.append("d.1")
    assert verify(sealed.path) == AuditCheck(entries=8, torn=1)


def test_lines_that_look_like_entries_and_are_none_are_left_out(sealed: Log) -> None:
    sealed.add(b'{"seq":7,"time":"never","actor":"x","action":"y"}\n{"seq":7,"time":"","x":1}\n\xff\xfe{"seq":7}\n')
    assert sealed.actions()[-1] == "c.3"


def test_what_is_appended_is_read_on_from_where_one_was(sealed: Log) -> None:
    entries, place = read_on(sealed.path, None)
    assert entries == []
    assert read_on(sealed.path, place) == ([], place)
    sealed.append("d.1", "d.2")
    sealed.add(b'{"seq":9,')
    entries, place = read_on(sealed.path, place)
    assert [entry.action for entry in entries] == ["d.1", "d.2"]
    sealed.append("e.1")
    entries, place = read_on(sealed.path, place)
    assert [entry.action for entry in entries] == ["audit.recovered", "e.1"]
    assert place == sealed.path.stat().st_size


def test_a_log_that_became_shorter_is_read_from_its_beginning(sealed: Log) -> None:
    _, place = read_on(sealed.path, None)
    sealed.lines = sealed.lines[:3]
    assert [entry.action for entry in read_on(sealed.path, place)[0]] == ["a.1", "a.2"]
    with contextlib.suppress(FileNotFoundError):
        sealed.path.unlink()
    assert read_on(sealed.path, place) == ([], 0)
