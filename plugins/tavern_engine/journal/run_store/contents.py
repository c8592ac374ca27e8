"""What is kept of runs apart from their rows, by hash: small contents in the database, larger ones files beside it.

Of both the table `contents` says that they are there, and `uses` which runs need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tavern_engine.journal.run_store.rows import text
from tavern_host import clock
from tavern_host.contracts.errors import NotFound
from tavern_host.storage.content_files import hash_of

if TYPE_CHECKING:
    import sqlite3

SMALL = 16 * 1024
"""Contents of up to so many bytes are in the database."""


def add_batch(connection: sqlite3.Connection, seq: int, batch: bytes, contents: tuple[str, ...], run_id: str) -> None:
    """Add a batch to a run, and the large values that it refers to. Raises `NotFound` where one is not there."""
    if contents:
        check_contents(connection, set(contents), f"a batch of the run {run_id}")
    connection.execute("INSERT INTO batches (run, content) VALUES (?, ?)", (seq, batch))
    used = "INSERT INTO uses (run, hash) VALUES (?, ?) ON CONFLICT DO NOTHING"
    connection.executemany(used, [(seq, name) for name in contents])


def keep_body(connection: sqlite3.Connection, content: bytes) -> str:
    """Store a small content in the database; return its hash."""
    name = hash_of(content)
    know(connection, name, len(content))
    connection.execute("INSERT OR REPLACE INTO bodies (hash, body) VALUES (?, ?)", (name, content))
    return name


def know(connection: sqlite3.Connection, name: str, size: int) -> None:
    """Write down that a content is there, and was put now."""
    connection.execute(
        "INSERT INTO contents (hash, size, kept) VALUES (?, ?, ?)"
        " ON CONFLICT (hash) DO UPDATE SET size = excluded.size, kept = excluded.kept",
        (name, size, clock.microseconds()),
    )


def body_of(connection: sqlite3.Connection, name: str) -> bytes | None:
    """Return a small content, or None where it is not there or not what it was."""
    row = connection.execute("SELECT body FROM bodies WHERE hash = ?", (text(name),)).fetchone()
    return row[0] if row is not None and isinstance(row[0], bytes) and hash_of(row[0]) == name else None


def check_contents(connection: sqlite3.Connection, names: set[str], who: str) -> None:
    """Raise `NotFound` unless all contents are kept."""
    for name in sorted(names):
        if not connection.execute("SELECT 1 FROM contents WHERE hash = ?", (name,)).fetchone():
            raise NotFound(f"{who} refers to {name!r:.80}, which is not kept; put it first")
