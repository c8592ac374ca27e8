"""The audit log's table: what was written cannot be changed unseen, and a crash loses nothing that was there."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from audit_table import AuditTable, entry
from helpers.audit_logs import read_after, tail, verify
from helpers.repetition import IN_ONE_TEST, Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host.audit.anchor import MARKS, read_anchor
from tavern_host.audit.store import MAX_ENTRY, SqliteAuditStore
from tavern_host.contracts.audit import AuditCheck


@pytest.fixture
def full(table: AuditTable) -> AuditTable:
    """Return a log of six entries, written in three batches, the last of them 4, 5 and 6."""
    table.append("a.1", "a.2")
    table.append("b.1")
    table.append("c.1", "c.2", "c.3")
    return table


# --- what is written ----------------------------------------------------------------------------------


def test_entries_are_numbered_for_their_owner_alone(full: AuditTable) -> None:
    assert [(e.seq, e.action, e.actor, e.time.isoformat()) for e in tail(full.path, 2)] == [
        (5, "c.2", "user:operator", "1970-01-01T00:00:00+00:00"),
        (6, "c.3", "user:operator", "1970-01-01T00:00:00+00:00"),
    ]
    assert full.verify() == verify(full.path) == AuditCheck(entries=6)
    for path in (*full.path.parent.iterdir(), full.path.parent, full.anchor):
        assert path.stat().st_mode & 0o077 == 0, path
    full.restart()
    full.append("d.1")
    assert (tail(full.path, 1)[0].seq, full.verify()) == (7, AuditCheck(entries=7)), "a later writer continues it"


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "audit.sqlite3"
    assert verify(missing, tmp_path / "none.json") == AuditCheck(entries=0)
    assert (tail(missing, 5), read_after(missing, 0), list(tmp_path.iterdir())) == ([], [], [])


def test_a_moved_log_is_noted_in_the_next(full: AuditTable) -> None:
    for path in full.path.parent.iterdir():
        path.rename(path.with_name(f"old-{path.name}"))
    full.append("d.1")
    assert full.actions() == ["audit.broken", "d.1"]
    problem = "the end was cut off: it has 2 entries, and the operator's anchor knows entry 6"
    assert full.verify() == AuditCheck(entries=2, line=2, problem=problem)


# --- tampering ----------------------------------------------------------------------------------------

CHANGED = "is not as it was written: it was changed, inserted or moved"
NUMBERED = "an entry was deleted or inserted"
CUT = "the end was cut off: it has {} entries, and the operator's anchor knows entry 6"
CHANGE = "UPDATE entries SET entry = CAST(replace(entry, 'operator', 'Operator') AS BLOB) WHERE seq ="
MOVE = "UPDATE entries SET {0} = (SELECT o.{0} FROM entries o WHERE o.seq = 7 - entries.seq) WHERE seq IN (1, 6)"
COPY = "INSERT INTO entries SELECT {}, entry, hash FROM entries WHERE seq = 6"
TAMPERINGS: list[tuple[str, int, str]] = [
    (f"{CHANGE} 1", 1, f"entry 1 {CHANGED}"),
    (f"{CHANGE} 4", 4, f"entry 4 {CHANGED}"),
    (f"{CHANGE} 6", 6, f"entry 6 {CHANGED}"),
    ("DELETE FROM entries WHERE seq = 1", 2, f"entry 2 follows entry 0: {NUMBERED}"),
    ("DELETE FROM entries WHERE seq = 5", 6, f"entry 6 follows entry 4: {NUMBERED}"),
    ("DELETE FROM entries WHERE seq = 5; UPDATE entries SET seq = 5 WHERE seq = 6", 5, f"entry 5 {CHANGED}"),
    ("DELETE FROM entries WHERE seq > 5", 5, CUT.format(5)),
    ("DELETE FROM entries WHERE seq > 2", 2, CUT.format(2)),
    ("DELETE FROM entries", 0, CUT.format(0)),
    (MOVE.format("entry"), 1, f"entry 1 {CHANGED}"),
    (f"{MOVE.format('entry')}; {MOVE.format('hash')}", 1, f"entry 1 {CHANGED}"),
    (COPY.format(-1), -1, f"entry -1 follows entry 0: {NUMBERED}"),
    (COPY.format(7), 7, f"entry 7 {CHANGED}"),
    (COPY.format(2**61), 2**61, f"entry {2**61} follows entry 6: {NUMBERED}"),
]
NO_ENTRIES = ("x'7b7d'", "7", "1.5", "'text'", f"zeroblob({MAX_ENTRY + 1})")
TAMPERINGS += [(f"INSERT INTO entries VALUES (7, {value}, '')", 7, f"entry 7 {CHANGED}") for value in NO_ENTRIES]


def test_every_tampering_with_entries_is_found(full: AuditTable) -> None:
    full.store.close()
    whole = full.path.read_bytes()
    with Failures() as failures:
        for statements, line, problem in TAMPERINGS:
            with failures.row(statements):
                full.path.write_bytes(whole)
                full.execute(statements)
                check = full.verify()
                assert (check.line, check.problem) == (line, problem)
                if "VALUES" in statements:
                    assert full.actions() == ["a.1", "a.2", "b.1", "c.1", "c.2", "c.3"], "what is no entry is not shown"


@settings(max_examples=repetitions(15, 200), deadline=None, suppress_health_check=IN_ONE_TEST)
@given(seq=st.integers(1, 6), column=st.sampled_from(["entry", "hash"]), data=st.data())
def test_no_byte_of_an_entry_can_change(full: AuditTable, seq: int, column: str, data: st.DataObject) -> None:
    with contextlib.closing(sqlite3.connect(full.path, isolation_level=None)) as connection:
        (before,) = connection.execute(f"SELECT CAST({column} AS BLOB) FROM entries WHERE seq = ?", (seq,)).fetchone()
        place = data.draw(st.integers(0, len(before) - 1))
        other = data.draw(st.integers(0, 127).filter(lambda byte: byte != before[place]))
        kind = "BLOB" if column == "entry" else "TEXT"
        write = f"UPDATE entries SET {column} = CAST(? AS {kind}) WHERE seq = ?"
        connection.execute(write, (before[:place] + bytes([other]) + before[place + 1 :], seq))
        try:
            assert full.verify().problem is not None
        finally:
            connection.execute(write, (before, seq))


def test_a_lost_journal_is_found_by_the_anchor(full: AuditTable) -> None:
    """SQLite keeps the newest transactions in a journal beside the file until a checkpoint."""
    full.restart()
    stale = full.path.read_bytes()
    full.append("d.1")
    full.restart()
    for path in full.path.parent.iterdir():
        path.unlink()
    full.path.write_bytes(stale)
    assert full.verify().problem == "the end was cut off: it has 6 entries, and the operator's anchor knows entry 7"


def test_a_replaced_log_is_found_by_the_anchor(full: AuditTable) -> None:
    for path in full.path.parent.iterdir():
        path.unlink()
    forger = SqliteAuditStore(full.path, None)
    assert forger.append([entry(f"a.{number}") for number in range(9)]) is None
    forger.close()
    assert verify(full.path).problem is None
    assert full.verify().problem == "it was replaced: its entry 6 is not the one that the operator's anchor knows"


def test_writing_does_not_cover_up_a_truncation(full: AuditTable) -> None:
    full.execute("DELETE FROM entries WHERE seq > 2")
    for number in range(5):
        full.append(f"d.{number}")
        full.restart()
    assert full.actions()[2:4] == ["audit.broken", "d.0"]
    assert tail(full.path, 6)[0].details == {"entry": 6, "entries": 2}
    assert full.verify().problem == "it was replaced: its entry 6 is not the one that the operator's anchor knows"
    assert full.actions().count("audit.broken") == 1


NO_TABLE = "the database is corrupt: it has no table of entries as it was created"
SPOILED: list[tuple[str | bytes, str]] = [
    ("DROP TABLE entries", NO_TABLE),
    ("DROP TABLE entries; CREATE TABLE entries (seq, entry, hash)", NO_TABLE),
    ("ALTER TABLE entries RENAME TO old; CREATE VIEW entries AS SELECT * FROM old", NO_TABLE),
    ("ALTER TABLE entries ADD COLUMN more TEXT DEFAULT 'x'", NO_TABLE),
    (COPY.format(2**62), f"entry {2**62} follows entry 6: {NUMBERED}"),
    (COPY.format(2**63 - 1), f"entry {2**63 - 1} follows entry 6: {NUMBERED}"),
    (b"", CUT.format(0)),
    (b"no database at all" * 1000, "the database is corrupt: "),
]


@pytest.mark.parametrize(("spoil", "problem"), SPOILED)
def test_an_unusable_log_is_found_and_moved_aside(full: AuditTable, spoil: str | bytes, problem: str) -> None:
    full.restart()
    if isinstance(spoil, str):
        full.execute(spoil)
    else:
        full.path.write_bytes(spoil)
    assert str(full.verify().problem).startswith(problem)
    if problem is NO_TABLE:
        with pytest.raises(OSError, match="no table of entries"):
            tail(full.path, 5)
    full.append("d.1")
    full.append("d.2")
    assert full.actions() == ["audit.broken", "d.1", "d.2"]
    assert "the end was cut off" in str(full.verify().problem)
    assert spoil == b"" or [path for path in full.path.parent.iterdir() if "damaged" in path.name]


def test_a_trigger_does_not_change_what_is_recorded(full: AuditTable) -> None:
    body = "BEGIN UPDATE entries SET entry = x'00' WHERE seq = new.seq; END"
    full.execute(f"CREATE TRIGGER t AFTER INSERT ON entries {body}")
    full.restart()
    full.append("d.1")
    assert full.actions()[-1] == "d.1"
    assert full.verify() == AuditCheck(entries=7)


# --- the anchor ---------------------------------------------------------------------------------------


def test_an_anchor_does_not_grow_without_end(full: AuditTable) -> None:
    for _ in range(MARKS + 5):
        full.execute("DELETE FROM entries")
        full.append("a")
        full.append("b")
    assert len(read_anchor(full.anchor)) == MARKS
    assert full.verify().problem == "the end was cut off: it has 3 entries, and the operator's anchor knows entry 6"


def test_an_anchor_may_lag_behind_the_log(full: AuditTable) -> None:
    before = full.anchor.read_bytes()
    full.append("d.1")
    full.append("d.2")
    full.anchor.write_bytes(before)
    assert full.verify().problem is None
    full.restart()
    full.append("e.1")
    assert full.verify() == AuditCheck(entries=9)
    assert [mark.number for mark in read_anchor(full.anchor)] == [9]


@pytest.mark.parametrize("content", [b"", b"no", b"[]", b'{"marks":[{"entry":"x","hash":1}]}', b'{"marks":7}', b"\xff"])
def test_a_damaged_anchor_is_reported_and_kept(full: AuditTable, content: bytes) -> None:
    full.anchor.write_bytes(content)
    full.restart()
    full.append("d.1")
    full.append("d.2")
    damaged = f"{full.anchor} is damaged; if that is no loss, remove it"
    assert full.store.anchor_problem == damaged
    assert full.anchor.read_bytes() == content
    assert full.verify().problem == f"{damaged}: nobody can say whether the end was cut off"
    full.anchor.unlink()
    full.append("d.3")
    assert full.store.anchor_problem is None
    assert full.verify() == AuditCheck(entries=9)


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_torn_journal_loses_its_last_batch_alone(full: AuditTable, tmp_path: Path, kept: float) -> None:
    full.restart()
    full.append("d.0")
    journal = full.path.with_name(f"{full.path.name}-wal")
    before, mark = journal.read_bytes(), full.anchor.read_bytes()
    full.append("d.1", "d.2")
    after = journal.read_bytes()
    crashed = AuditTable(tmp_path / "crashed")
    crashed.path.parent.mkdir(parents=True)
    crashed.anchor.parent.mkdir()
    crashed.path.write_bytes(full.path.read_bytes())
    cut = len(before) + int((len(after) - len(before)) * kept)
    crashed.path.with_name(journal.name).write_bytes(after[:cut])
    crashed.anchor.write_bytes(mark)
    assert crashed.verify() == AuditCheck(entries=7)
    crashed.append("e.1")
    assert crashed.verify() == AuditCheck(entries=8)
    assert crashed.actions() == ["a.1", "a.2", "b.1", "c.1", "c.2", "c.3", "d.0", "e.1"]
    crashed.store.close()


def test_a_full_disk_writes_the_batch_later(full: AuditTable) -> None:
    connection = full.store._database.get()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    batch = [entry("d.1", details={"text": "x" * 100_000}), entry("d.2")]
    assert full.store.append(batch) == "the disk is full: make room"
    assert full.verify() == AuditCheck(entries=6)
    full.store.close()
    assert full.store.append(batch) is None
    assert full.actions()[-2:] == ["d.1", "d.2"]
    assert full.verify() == AuditCheck(entries=8)


# --- where it is --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["link", "folder link", "folder", "pipe"])
def test_a_project_cannot_redirect_the_log(table: AuditTable, tmp_path: Path, what: str) -> None:
    file, folder = tmp_path / "elsewhere", tmp_path / "elsewhere-too"
    file.write_text("mine")
    folder.mkdir()
    if what == "folder link":
        table.path.parent.symlink_to(folder)
    else:
        table.path.parent.mkdir()
        make: dict[str, Callable[[], object]] = {"folder": table.path.mkdir, "pipe": lambda: os.mkfifo(table.path)}
        make.get(what, lambda: table.path.symlink_to(file))()
    assert table.store.append([entry("a.1")]) is not None
    assert (file.read_text(), list(folder.iterdir())) == ("mine", [])


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "link"):
        for read in (verify, lambda path: tail(path, 5), lambda path: read_after(path, 0)):
            with pytest.raises(OSError):
                read(path)


# --- reading ------------------------------------------------------------------------------------------


def test_a_limit_of_entries_is_kept(full: AuditTable) -> None:
    for limit, first in {-1: 7, 0: 7, 1: 6, 100: 1}.items():
        assert [entry.seq for entry in tail(full.path, limit)] == list(range(first, 7)), limit
    assert [entry.seq for entry in read_after(full.path, 2, limit=3)] == [3, 4, 5]


# --- pieces -------------------------------------------------------------------------------------------


@pytest.fixture
def pieces(table: AuditTable) -> AuditTable:
    """Return a log of seven entries in three pieces, up to entries 2, 3 and 6, and a file that is open."""
    table.limit(days=1)
    table.append("a.1", "a.2")
    table.append("b.1")
    table.append("c.1", "c.2", "c.3")
    table.limit()
    table.append("d.1")
    return table


def test_a_full_file_becomes_a_piece_of_the_log(pieces: AuditTable, tmp_path: Path) -> None:
    names = sorted(path.name for path in pieces.path.parent.iterdir() if path.suffix == ".db")
    assert names == [f"audit.{last:018}.db" for last in (2, 3, 6)]
    assert pieces.verify() == AuditCheck(entries=7)
    assert [entry.seq for entry in tail(pieces.path, 4)] == [4, 5, 6, 7]
    assert [entry.seq for entry in read_after(pieces.path, 1, 3)] == [2, 3, 4]
    assert [entry.seq for entry in read_after(pieces.path, 6)] == [7]
    assert len(pieces.actions()) == 7
    pieces.restart()
    pieces.append("e.1")
    assert pieces.verify() == AuditCheck(entries=8)


def test_a_file_becomes_a_piece_at_its_size(table: AuditTable) -> None:
    table.limit(megabytes=1)
    for number in range(4):
        table.append(*(f"{number}.{'x' * 100_000}" for _ in range(5)))
    assert [path.name for path in table.path.parent.glob("*.db")] == ["audit.000000000000000015.db"]
    assert (table.verify().entries, len(table.actions())) == (20, 20)


def test_what_happens_to_pieces_is_found(pieces: AuditTable, tmp_path: Path) -> None:
    first, second, third = sorted(pieces.path.parent.glob("*.db"))
    pieces.store.close()
    whole = {path: path.read_bytes() for path in (first, second, third, pieces.path)}

    def change(path: Path, statement: str) -> Callable[[], object]:
        def tamper() -> None:
            with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(statement)

        return tamper

    with Failures() as failures:
        for name, tamper, line in (
            ("the first is gone", first.unlink, 3),
            ("the middle is gone", second.unlink, 4),
            ("the last is gone", third.unlink, 7),
            ("all that follows is gone", lambda: (third.unlink(), pieces.path.unlink()), 3),
            ("an entry is changed", change(first, "UPDATE entries SET entry = '{}' WHERE seq = 1"), 1),
            ("the last entry is deleted", change(third, "DELETE FROM entries WHERE seq = 6"), 7),
            ("two change places", lambda: (first.rename(tmp_path / "x"), second.rename(first)), 3),
            ("it is overwritten", lambda: second.write_bytes(b"none" * 5000), 3),
            ("it has no table", change(second, "DROP TABLE entries"), 3),
        ):
            with failures.row(name):
                tamper()
                check = pieces.verify()
                assert check.line == line
                assert check.problem is not None
                pieces.append("more")  # it can still be written
                pieces.restart()
            for path in pieces.path.parent.iterdir():
                path.unlink()
            for path, content in whole.items():
                path.write_bytes(content)


def test_a_reader_or_a_kill_never_loses_what_becomes_a_piece(table: AuditTable) -> None:
    """While somebody reads, the file stays; where the host was killed before it began another, pieces are continued."""
    table.append("a.1")
    table.limit(days=1)
    with contextlib.closing(sqlite3.connect(table.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchone()
        table.append("a.2")
        assert list(table.path.parent.glob("*.db")) == []
    table.append("a.3")
    assert len(list(table.path.parent.glob("*.db"))) == 1
    assert not table.path.exists()
    assert table.actions() == ["a.1", "a.2", "a.3"]
    table.restart()
    table.append("a.4")
    assert table.verify() == AuditCheck(entries=4)


def test_what_becomes_a_piece_while_it_is_read_counts_once(full: AuditTable) -> None:
    full.store.close()
    shutil.copy(full.path, full.path.with_name(f"audit.{6:018}.db"))  # as it is seen by who opened the file before
    assert full.verify() == AuditCheck(entries=6)
    assert [entry.seq for entry in tail(full.path, 10)] == [1, 2, 3, 4, 5, 6]
