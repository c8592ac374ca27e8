"""The table of the audit log: each entry with a hash over itself and the hash before it.

A file that is full becomes a piece, named by the number of its last entry, and another one continues the chain.

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
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import to_json

from tavern_host import clock
from tavern_host.audit.anchor import MARKS, AnchorProblem, Mark, read_anchor, write_anchor
from tavern_host.audit.details import now
from tavern_host.contracts.audit import AuditCheck, AuditEntry, AuditLimits, AuditStore, UnnumberedEntry
from tavern_host.storage.damage import Corrupt, is_corruption, rename_database, unread
from tavern_host.storage.sqlite import Database, Schema, explain, open_read_only

MAX_ENTRY = 2**20
"""How many bytes an entry may have; one that is longer was not written here."""

_TABLE = "CREATE TABLE entries (seq INTEGER PRIMARY KEY, entry BLOB NOT NULL, hash TEXT NOT NULL)"
SCHEMA = Schema("audit.sqlite3", ((_TABLE,),), synchronous="FULL", busy_seconds=2)
_START = Mark(0, "")
_LAST = "SELECT max(seq) FROM entries"
_log = logging.getLogger("tavern.audit")


class SqliteAuditStore(AuditStore):
    """Keeps one log in a table of SQLite. Only `append` makes the file."""

    def __init__(self, path: Path, anchor: Path | None, limits: AuditLimits | None = None) -> None:
        self._path = path
        self._anchor = anchor
        self._limits = limits or AuditLimits()
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
            newest = _newest(connection, self._path)
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
        with contextlib.suppress(sqlite3.Error, OSError):  # a later entry does it
            self._rotate(connection)
        return None

    def _rotate(self, connection: sqlite3.Connection) -> None:
        """Let the file be a piece of the log where it is full, unless somebody uses it meanwhile."""
        first = _entries(connection.execute("SELECT entry FROM entries ORDER BY seq LIMIT 1"))
        is_old = bool(first) and clock.now() - first[0].time > timedelta(days=self._limits.days)
        (size,) = connection.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        ).fetchone()
        if not is_old and size < self._limits.megabytes << 20:
            return
        found = connection.execute(_LAST).fetchone()
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        piece = self._path.with_name(f"{self._path.stem}.{found[0]:018}.db")
        try:  # the file has all that is in its journal, and nobody writes from here on
            if pages == copied and self._database.begin().execute(_LAST).fetchone() == found and not piece.exists():
                rename_database(self._path, piece)
        finally:
            self.close()
        with contextlib.closing(sqlite3.connect(f"{piece.as_uri()}?mode=rw", uri=True)) as closed:
            closed.execute("PRAGMA journal_mode = DELETE")

    def tail(self, limit: int, before: int | None = None) -> list[AuditEntry]:
        """Return the newest entries, of those `before` a number, oldest first; none where there is no log.

        Raises `OSError`.
        """
        return self._read("<", 2**62 if before is None else before, max(limit, 0), "DESC")[::-1]

    def read_after(self, seq: int, limit: int = 1000) -> list[AuditEntry]:
        """Return the entries after a number, oldest first; from the beginning where a new log was begun since.

        Raises `OSError`.
        """
        newest = self.tail(1)
        return self._read(">", 0 if newest and newest[0].seq < seq else seq, limit, "ASC")

    def _read(self, side: str, number: int, limit: int, order: str) -> list[AuditEntry]:
        selected = f"SELECT entry FROM entries WHERE seq {side} ? AND length(entry) <= ? ORDER BY seq {order} LIMIT ?"
        found: list[tuple[bytes]] = []
        with _opened(self._path) as parts:
            for connection in _connections(parts if order == "ASC" else parts[::-1]):
                found += connection.execute(selected, (number, MAX_ENTRY, limit - len(found))).fetchall()
                if len(found) == limit:
                    break
        return _entries(found)

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
        with _opened(self._path) as parts:
            return _verify(_connections(parts), marks, problem)

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
        if marks and not _has(connection, marks[-1]) and not _is_in_piece(self._path, marks[-1]):
            details = {"entry": marks[-1].number, "entries": newest.number}
            note = to_json({"actor": "system:host", "action": "audit.broken", "subject": "", "details": details})
            newest, lacked = _insert(connection, newest, [(now(), note[1:])]), marks
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
                write_anchor(anchor, [*older, _newest(connection, self._path)])
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
        for number, (time, fields) in enumerate(entries, newest.number + 1):
            entry = b'{"seq":%d,"time":"%b",%b' % (number, time.encode(), fields)
            hash = _hash(hash, entry)
            yield number, entry, hash

    connection.executemany("INSERT INTO entries (seq, entry, hash) VALUES (?, ?, ?)", rows())
    return Mark(number, hash)


def _hash(previous: str, entry: bytes) -> str:
    return hashlib.sha256(previous.encode() + entry).hexdigest()


# --- reading ------------------------------------------------------------------------------------------


def _require_table(connection: sqlite3.Connection) -> None:
    """Raise `Corrupt` unless the table is the one that was created here: a project may come from anybody."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'entries'").fetchone()
    if found != (_TABLE,):
        raise Corrupt("it has no table of entries as it was created")


def _newest(connection: sqlite3.Connection, path: Path) -> Mark:
    """Return the newest entry of a log, in the last piece where a new file is begun; raises `Corrupt` for one that
    nothing can follow."""
    found = connection.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    if found is None and (pieces := _pieces(path)):
        with contextlib.suppress(sqlite3.Error, OSError):
            return next(_newest(piece, pieces[-1]) for piece in _connections(pieces[-1:]))
        return Mark(_number(pieces[-1]), "")  # nothing follows on what cannot be read, and `verify` says so
    if found is None:
        return _START
    if not 0 < found[0] < 2**62 or not isinstance(found[1], str) or len(found[1]) != 64:
        raise Corrupt("its newest entry was not written by the host")
    return Mark(found[0], found[1])


def _pieces(path: Path) -> list[Path]:
    """Return the pieces of a log that are closed, oldest first."""
    return sorted(path.parent.glob(f"{path.stem}.{'[0-9]' * 18}.db"))


def _number(piece: Path) -> int:
    return int(piece.suffixes[-2][1:])


def _has(connection: sqlite3.Connection, mark: Mark) -> bool:
    """Return whether the log has what a mark names."""
    found = "SELECT 1 FROM entries WHERE seq = ? AND hash = ?"
    return connection.execute(found, (mark.number, mark.hash)).fetchone() is not None


def _is_in_piece(path: Path, mark: Mark) -> bool:
    with contextlib.suppress(sqlite3.Error, OSError):
        return any(
            _has(piece, mark) for piece in _connections(each for each in _pieces(path) if _number(each) >= mark.number)
        )
    return False


def _verify(parts: Iterator[sqlite3.Connection], marks: Sequence[Mark], problem: str | None) -> AuditCheck:
    newest, unseen = _START, set(marks)
    selected = "SELECT seq, iif(length(entry) <= ?, entry, NULL), hash FROM entries ORDER BY seq"
    try:
        for connection in parts:
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
    """Return the check of a log, with the problem that a mark of its anchor is missing."""
    lacked = next((mark for mark in marks if mark in unseen), None)
    if lacked is None:
        return check
    return check.model_copy(update={"line": check.entries, "problem": lacked.lacking(check.entries)})


Part = Path | sqlite3.Connection
"""A piece of a log, or its open file."""


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[list[Part]]:
    """Open a log to read; give its parts, oldest first. Raises `OSError`, also for what the block raises of SQLite."""
    try:
        with contextlib.ExitStack() as stack:
            found: list[Part] = []
            begin = None
            with contextlib.suppress(FileNotFoundError):
                connection = stack.enter_context(contextlib.closing(open_read_only(path)))
                if unread(path):
                    why = "it was damaged; what can be read of it is copied with the next entry"
                    raise OSError(errno.EIO, why, str(path))
                found = [connection]
                with contextlib.suppress(sqlite3.Error):  # of what is no log
                    if connection.execute("PRAGMA user_version").fetchone() == (0,):
                        found = []  # it is being created
                    begin = connection.execute("SELECT min(seq) FROM entries").fetchone()[0]
            # What is open may become a piece at any moment: pieces are those before its first entry.
            yield [*(piece for piece in _pieces(path) if begin is None or _number(piece) < begin), *found]
    except sqlite3.Error as error:
        raise OSError(errno.EIO, explain(error, SCHEMA), str(path)) from None


def _connections(parts: Iterable[Part]) -> Iterator[sqlite3.Connection]:
    """Yield a connection to each part, open until the next one is asked for. Raises `Corrupt`."""
    for part in parts:
        with contextlib.ExitStack() as stack:
            if isinstance(part, Path):
                part = stack.enter_context(contextlib.closing(open_read_only(part)))
            _require_table(part)
            yield part


def _entries(rows: Iterable[tuple[bytes]]) -> list[AuditEntry]:
    entries = []
    for (data,) in rows:
        with contextlib.suppress(ValidationError):
            entries.append(AuditEntry.model_validate_json(data))
    return entries
