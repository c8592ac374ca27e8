"""The table of the audit log: each entry with a hash over itself and the hash before it.

The chain of hashes shows any entry that was changed, deleted, inserted or moved, as long as not all that follow were
hashed again, which needs no secret. The anchor in the operator's folder shows that too, and a truncated end. None of it
shows who wrote an entry, what was never recorded, entries cut off after the anchor was written, or anything at all to
somebody whose anchor the same hand could change.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from tavern_host.audit.anchor import MARKS, AnchorProblem, Mark, read_anchor, write_anchor
from tavern_host.contracts.audit import AuditCheck, AuditEntry, AuditStore, UnnumberedEntry
from tavern_host.storage.damage import Corrupt, is_corruption, unread
from tavern_host.storage.sqlite import Database, Schema, explain, open_read_only

MAX_ENTRY = 2**20
"""How many bytes an entry may have; one that is longer was not written here."""

_TABLE = "CREATE TABLE entries (seq INTEGER PRIMARY KEY, entry BLOB NOT NULL, hash TEXT NOT NULL)"
SCHEMA = Schema("audit.sqlite3", ((_TABLE,),), synchronous="FULL", busy_seconds=2)
_START = Mark(0, "")
_log = logging.getLogger("tavern.audit")


class SqliteAuditStore(AuditStore):
    """Keeps one log in a table of SQLite. Only `append` makes the file."""

    def __init__(self, path: Path, anchor: Path | None) -> None:
        self._path = path
        self._anchor = anchor
        self._schema = replace(SCHEMA, file=path.name)
        self._database = Database(path.parent, self._schema, _log)
        self._newest: Mark | None = None
        self._older_marks: list[Mark] | None = None  # None where the anchor could not be read

    def append(self, entries: Sequence[UnnumberedEntry], *, is_retry: bool = False) -> str | None:
        """Write a batch of entries to the disk, all or none; return what prevents it, or None.

        `anchor_problem` says afterwards why the anchor could not be brought up to date, where that is so.
        """
        try:
            connection = self._database.begin()
            _require_table(connection)
            newest = _newest(connection)
            if newest != self._newest or self._older_marks is None:
                newest = self._catch_up(connection, newest)
            newest = _insert(connection, newest, entries)
            connection.execute("COMMIT")
        except Exception as error:
            self._newest = None
            self._database.failed(error)
            if is_corruption(error) and not is_retry:  # the file was moved aside
                return self.append(entries, is_retry=True)
            return explain(error, self._schema)
        self._newest = newest
        if self._anchor is not None and self._older_marks is not None:
            self._mark(connection, self._anchor, self._older_marks)
        return None

    def tail(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, oldest first; none where there is no log. Raises `OSError`."""
        if limit < 1:
            return []
        with _opened(self._path) as connection:
            if connection is None:
                return []
            _require_table(connection)
            selected = "SELECT entry FROM entries WHERE length(entry) <= ? ORDER BY seq DESC LIMIT ?"
            found = connection.execute(selected, (MAX_ENTRY, limit)).fetchall()
            return _entries(entry for (entry,) in reversed(found))

    def read_after(self, seq: int, limit: int = 1000) -> list[AuditEntry]:
        """Return the entries after a number, oldest first; from the beginning where a new log was begun since.

        Raises `OSError`.
        """
        with _opened(self._path) as connection:
            if connection is None:
                return []
            _require_table(connection)
            selected = """
                SELECT entry FROM entries
                WHERE seq > (SELECT iif(max(seq) < ?1, 0, ?1) FROM entries) AND length(entry) <= ?2
                ORDER BY seq LIMIT ?3
            """
            return _entries(entry for (entry,) in connection.execute(selected, (seq, MAX_ENTRY, limit)))

    def verify(self) -> AuditCheck:
        """Read a log from its beginning and say whether it is as it was written, or where it is not.

        Takes memory for one entry, whatever the log's size; what is appended meanwhile is left out. What this can show
        and what not is said at the top of this module. Raises `OSError`.
        """
        marks, problem = [], None
        try:
            marks = read_anchor(self._anchor)
        except AnchorProblem as error:
            problem = f"{error}: nobody can say whether the end was cut off"
        with _opened(self._path) as connection:
            if connection is None:
                return _lacking(AuditCheck(problem=problem), marks, set(marks))
            return _verify(connection, marks, problem)

    def close(self) -> None:
        """Close the database; the next append opens it again."""
        self._database.close()
        self._newest = None

    def _catch_up(self, connection: sqlite3.Connection, newest: Mark) -> Mark:
        """Compare a log that another process wrote, or none, with its anchor."""
        self._older_marks = None
        marks: list[Mark] = []
        try:
            marks = read_anchor(self._anchor)
        except AnchorProblem as error:
            self.anchor_problem = str(error)
        else:
            self._older_marks = marks[: MARKS - 1]
        if marks and not _has(connection, marks[-1]):
            details = {"entry": marks[-1].number, "entries": newest.number}
            newest, lacked = _insert(connection, newest, [_note("audit.broken", details)]), marks
        else:
            lacked = marks[:-1]
        if self._older_marks is not None:
            self._older_marks = lacked[: MARKS - 1]
        return newest

    def _mark(self, connection: sqlite3.Connection, anchor: Path, older: Sequence[Mark]) -> None:
        """Write the newest entry into the anchor, while no other process may write."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                write_anchor(anchor, [*older, _newest(connection)])
                self.anchor_problem = None
            finally:
                connection.execute("ROLLBACK")
        except AnchorProblem as error:
            self.anchor_problem = str(error)
        except sqlite3.Error as error:
            self.anchor_problem = f"{anchor} is out of date: {explain(error, self._schema)}"


def _insert(connection: sqlite3.Connection, newest: Mark, entries: Iterable[UnnumberedEntry]) -> Mark:
    number, hash = newest.number, newest.hash

    def rows() -> Iterator[tuple[int, bytes, str]]:
        nonlocal number, hash
        for number, fields in enumerate(entries, newest.number + 1):
            entry = _numbered(number, fields)
            hash = _hash(hash, entry)
            yield number, entry, hash

    connection.executemany("INSERT INTO entries (seq, entry, hash) VALUES (?, ?, ?)", rows())
    return Mark(number, hash)


def _numbered(number: int, entry: UnnumberedEntry) -> bytes:
    return b'{"seq":%d,"time":"%b",%b' % (number, entry[0].encode(), entry[1])


def _hash(previous: str, entry: bytes) -> str:
    return hashlib.sha256(previous.encode() + entry).hexdigest()


def _note(action: str, details: dict[str, Any]) -> UnnumberedEntry:
    fields = {"actor": "system:host", "action": action, "subject": "", "details": details}
    return now(), to_json(fields)[1:]


def now() -> str:
    """Return the time as entries have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


# --- reading ------------------------------------------------------------------------------------------


def _require_table(connection: sqlite3.Connection) -> None:
    """Raise `Corrupt` unless the table is the one that was created here: a project may come from anybody."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'entries'").fetchone()
    if found != (_TABLE,):
        raise Corrupt("it has no table of entries as it was created")


def _newest(connection: sqlite3.Connection) -> Mark:
    """Return the newest entry; raises `Corrupt` for one that nothing can follow."""
    found = connection.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    if found is None:
        return _START
    if not 0 < found[0] < 2**62 or not isinstance(found[1], str) or len(found[1]) != 64:
        raise Corrupt("its newest entry was not written by the host")
    return Mark(found[0], found[1])


def _has(connection: sqlite3.Connection, mark: Mark) -> bool:
    """Return whether the log has what a mark names."""
    found = "SELECT 1 FROM entries WHERE seq = ? AND hash = ?"
    return connection.execute(found, (mark.number, mark.hash)).fetchone() is not None


def _verify(connection: sqlite3.Connection, marks: Sequence[Mark], problem: str | None) -> AuditCheck:
    newest, unseen = _START, set(marks)
    selected = "SELECT seq, iif(length(entry) <= ?, entry, NULL), hash FROM entries ORDER BY seq"
    try:
        _require_table(connection)
        for seq, entry, hash in connection.execute(selected, (MAX_ENTRY,)):
            if seq != newest.number + 1:
                problem = f"entry {seq} follows entry {newest.number}: an entry was deleted or inserted"
            elif not isinstance(entry, bytes) or hash != _hash(newest.hash, entry):
                problem = f"entry {seq} is not as it was written: it was changed, inserted or moved"
            else:
                newest = Mark(seq, hash)
                unseen.discard(newest)
                continue
            return AuditCheck(entries=newest.number, line=seq, problem=problem)
    except sqlite3.Error as error:
        if not is_corruption(error):
            raise
        return AuditCheck(entries=newest.number, line=newest.number + 1, problem=f"the database is corrupt: {error}")
    return _lacking(AuditCheck(entries=newest.number, problem=problem), marks, unseen)


def _lacking(check: AuditCheck, marks: Sequence[Mark], unseen: Collection[Mark]) -> AuditCheck:
    """Return what was found of a log, with what it lacks of its anchor's marks."""
    lacked = next((mark for mark in marks if mark in unseen), None)
    if lacked is None:
        return check
    return check.model_copy(update={"line": check.entries, "problem": lacked.lacking(check.entries)})


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Open a log to read; None where there is none. Raises `OSError`, also for what the block raises of SQLite."""
    try:
        connection = open_read_only(path)
    except FileNotFoundError:
        yield None
        return
    try:
        if unread(path):
            raise OSError(errno.EIO, "it was damaged; what can be read of it is copied with the next entry", str(path))
        yield None if _is_being_created(connection) else connection
    except sqlite3.Error as error:
        raise OSError(errno.EIO, explain(error, SCHEMA), str(path)) from None
    finally:
        connection.close()


def _is_being_created(connection: sqlite3.Connection) -> bool:
    with contextlib.suppress(sqlite3.DatabaseError):
        return bool(connection.execute("PRAGMA user_version").fetchone() == (0,))
    return False


def _entries(found: Iterable[bytes]) -> list[AuditEntry]:
    return [entry for entry in map(_entry, found) if entry is not None]


def _entry(data: bytes) -> AuditEntry | None:
    try:
        return AuditEntry.model_validate_json(data)
    except ValidationError:
        return None
