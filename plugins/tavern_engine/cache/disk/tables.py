"""The table of outputs on disk and its statements. Each function is part of one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tavern_engine.cache.disk.entries import Entry, decode_entry
from tavern_host import clock
from tavern_host.storage.sqlite import Schema

if TYPE_CHECKING:
    import sqlite3

SMALL = 256 * 1024
"""An entry that has more bytes than this is read only where it is needed."""

AT_ONCE = 500
"""How many entries one statement asks for, and one transaction forgets: the lock is released in between."""

SHRINK_PAGES = 1000
"""How many pages one transaction takes off the end of the database: the lock is released in between."""

USED_SECONDS = 60
"""When an entry was used is known to so many seconds, so that what is used all the time is not always written."""

_ROW = 100
"""What an entry takes beside its content, roughly, in bytes."""

_FIRST = (
    # `used` is in microseconds since 1970. The content comes last, so that what asks for less does not read it.
    """
    CREATE TABLE outputs (
        id INTEGER PRIMARY KEY,
        signature BLOB NOT NULL UNIQUE,
        used INTEGER NOT NULL,
        size INTEGER NOT NULL,
        content BLOB NOT NULL
    )
    """,
    "CREATE INDEX outputs_by_use ON outputs (used)",
)

OUTPUTS = Schema("outputs.sqlite3", (_FIRST,), is_derived=True)


class Found(NamedTuple):
    """What was asked for and is there: entries that were read, signatures of others, signatures of damaged ones."""

    entries: dict[bytes, Entry]
    unread: set[bytes]
    damaged: list[bytes]


def find(connection: sqlite3.Connection, signatures: Sequence[bytes], room: int) -> Found:
    """Return the entries with these signatures; small ones are read, up to `room` bytes in all."""
    found = Found({}, set(), [])
    for start in range(0, len(signatures), AT_ONCE):
        some = signatures[start : start + AT_ONCE]
        small = min(SMALL, room)
        rows = connection.execute(
            "SELECT signature, CASE WHEN size <= ? THEN CAST(content AS BLOB) END FROM outputs"
            f" WHERE signature IN ({','.join('?' * len(some))})",
            (small, *some),
        ).fetchall()
        for signature, content in rows:
            if content is None or len(content) > room:
                found.unread.add(signature)
            else:
                room -= len(content)
                _read(found, signature, content)
        time.sleep(0)  # releases the interpreter to the event loop
    return found


def load(connection: sqlite3.Connection, signatures: Iterable[bytes]) -> Found:
    """Return the entries with these signatures, all of them read, however large."""
    found = Found({}, set(), [])
    for signature in signatures:
        row = connection.execute(
            "SELECT CAST(content AS BLOB) FROM outputs WHERE signature = ?", (signature,)
        ).fetchone()
        if row is not None:
            _read(found, signature, row[0])
    return found


def _read(found: Found, signature: bytes, content: object) -> None:
    entry = decode_entry(signature, content) if isinstance(content, bytes) else None
    if entry is None:
        found.damaged.append(signature)
    else:
        found.entries[signature] = entry


def write(connection: sqlite3.Connection, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Insert entries, as used now."""
    now = clock.microseconds()
    connection.executemany(
        "INSERT INTO outputs (signature, used, size, content) VALUES (?, ?, ?, ?) ON CONFLICT (signature) DO UPDATE"
        " SET used = excluded.used, size = excluded.size, content = excluded.content",
        [(signature, now, len(content), content) for signature, content in entries],
    )


def touch(connection: sqlite3.Connection, signatures: Iterable[bytes]) -> None:
    """Mark entries as used now."""
    now = clock.microseconds()
    before = now - USED_SECONDS * 1_000_000
    connection.executemany(
        "UPDATE outputs SET used = ? WHERE signature = ? AND used < ?", [(now, s, before) for s in signatures]
    )


def remove(connection: sqlite3.Connection, signatures: Iterable[bytes]) -> None:
    """Delete entries."""
    connection.executemany("DELETE FROM outputs WHERE signature = ?", [(signature,) for signature in signatures])


def occupied(connection: sqlite3.Connection) -> int:
    """Return how many bytes of the database are in use."""
    used = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return used * _pragma(connection, "page_size")


def forget(connection: sqlite3.Connection, goal: int) -> int:
    """Delete some of the entries used longest ago, as long as more than `goal` bytes are in use; return how many."""
    surplus = (occupied(connection) - goal) / 2  # by their contents: pages decide when it is enough
    if surplus <= 0:
        return 0
    old: list[tuple[int]] = []
    for number, size in connection.execute("SELECT id, size FROM outputs ORDER BY used LIMIT ?", (AT_ONCE,)):
        old.append((number,))
        surplus -= size + _ROW
        if surplus <= 0:
            break
    connection.executemany("DELETE FROM outputs WHERE id = ?", old)
    return len(old)


def shrink(connection: sqlite3.Connection, goal: int) -> int:
    """Give some of the room that is free in a file larger than `goal` bytes back to the disk; return how many pages."""
    surplus = _pragma(connection, "page_count") - goal // _pragma(connection, "page_size")
    pages = max(0, min(_pragma(connection, "freelist_count"), surplus, SHRINK_PAGES))
    for _ in range(pages):
        connection.execute("PRAGMA incremental_vacuum(1)")  # one step of it is one page, and Python takes one step
    return pages


def count(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return how many entries there are, and how many bytes of the database are in use."""
    (entries,) = connection.execute("SELECT count(*) FROM outputs").fetchone()
    return int(entries), occupied(connection)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
