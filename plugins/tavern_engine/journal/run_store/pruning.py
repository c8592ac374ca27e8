"""Deletes what the run store need not keep any more: old runs, contents that no run refers to, and stray files.

Each step is a short transaction, so that writers need not wait long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tavern_host import clock
from tavern_host.storage.content_files import ContentFiles
from tavern_host.storage.sqlite import DatabaseThread

if TYPE_CHECKING:
    import sqlite3

KEPT_SECONDS = 3600
"""How long a content that no run refers to is kept: its writer may be about to refer to it."""

AT_ONCE = 50
"""How many runs or contents one transaction forgets: others wait for it."""

SHRINK_PAGES = 1000
"""How many pages one transaction takes off the end of the database: others wait for it."""


class Pruning:
    """One pruning of a store. `is_claimed` tells from the owner of a run, the end of its lease and the time in
    microseconds since 1970 whether a worker has it."""

    def __init__(
        self,
        writer: DatabaseThread,
        reader: DatabaseThread,
        files: ContentFiles,
        is_claimed: Callable[[str | None, int | None, int], bool],
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._files = files
        self._is_claimed = is_claimed

    async def run(self, before: int, max_bytes: int) -> int:
        """Delete the runs that ended before a moment, the oldest while all take more than `max_bytes`, and what no run
        needs; return how many runs."""
        forgotten = 0
        while count := await self._writer.write(lambda connection: self._forget_old(connection, before)):
            forgotten += count
        while count := await self._writer.write(lambda connection: self._forget_beyond(connection, max_bytes)):
            forgotten += count
        while await self._writer.write(self._forget_contents):
            pass
        await self._forget_strays()
        while await self._writer.write(_shrink):
            pass
        return forgotten

    def _forget_old(self, connection: sqlite3.Connection, before: int) -> int:
        """Delete some of the runs that ended before a moment; return how many."""
        return self._forget(connection, "finished < ?", (before,), AT_ONCE)

    def _forget_beyond(self, connection: sqlite3.Connection, max_bytes: int) -> int:
        """Delete some of the oldest runs as long as too much is kept; return how many."""
        (kept,) = connection.execute("SELECT total(size) FROM runs").fetchone()
        used = "SELECT total(size) FROM contents WHERE EXISTS (SELECT 1 FROM uses WHERE uses.hash = contents.hash)"
        kept += connection.execute(used).fetchone()[0]
        return self._forget(connection, "1", (), AT_ONCE, surplus=kept - max_bytes)

    def _forget(
        self,
        connection: sqlite3.Connection,
        condition: str,
        values: tuple[Any, ...],
        limit: int,
        surplus: float = math.inf,
    ) -> int:
        """Delete finished unclaimed runs, first those that ended first, until `surplus` bytes are."""
        if surplus <= 0:
            return 0
        at, forgotten, passed = clock.microseconds(), 0, 0
        sought = (
            "SELECT seq, size, owner, lease_until FROM runs INDEXED BY runs_ended"
            f" WHERE is_final = 1 AND {condition} ORDER BY finished, seq LIMIT ? OFFSET ?"
        )
        while forgotten < limit and surplus > 0:
            found = connection.execute(sought, (*values, limit, passed)).fetchall()
            if not found:
                break
            for seq, size, owner, until in found:
                if self._is_claimed(owner, until, at):
                    passed += 1
                    continue
                freed = connection.execute(
                    "SELECT total(size) FROM contents WHERE hash IN (SELECT hash FROM uses WHERE run = ?1) AND NOT"
                    " EXISTS (SELECT 1 FROM uses WHERE uses.hash = contents.hash AND uses.run <> ?1)",
                    (seq,),
                ).fetchone()[0]
                connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
                forgotten += 1
                surplus -= size + freed
                if surplus <= 0 or forgotten >= limit:
                    break
        return forgotten

    def _forget_contents(self, connection: sqlite3.Connection) -> int:
        """Remove some of the contents that no run refers to; return how many.

        The files go while the database is locked: who puts one of them again at this moment comes before or after.
        """
        unused = (
            "SELECT hash FROM contents WHERE kept < ? AND"
            " NOT EXISTS (SELECT 1 FROM uses WHERE uses.hash = contents.hash) LIMIT ?"
        )
        before = clock.microseconds() - KEPT_SECONDS * 1_000_000
        names = [name for (name,) in connection.execute(unused, (before, AT_ONCE))]
        for name in names:
            self._files.remove(name)
            connection.execute("DELETE FROM contents WHERE hash = ?", (name,))
        return len(names)

    async def _forget_strays(self) -> None:
        """Remove files that the database does not know: their process ended before it recorded them."""
        for names in await self._reader.run(lambda: list(self._files.names())):

            def work(connection: sqlite3.Connection, names: list[str] = names) -> None:
                for name in names:
                    if not connection.execute("SELECT 1 FROM contents WHERE hash = ?", (name,)).fetchone():
                        self._files.remove(name)

            await self._writer.write(work)


def _shrink(connection: sqlite3.Connection) -> int:
    """Give some of the room that is free in the database back to the disk; return how many pages."""
    pages = min(int(connection.execute("PRAGMA freelist_count").fetchone()[0]), SHRINK_PAGES)
    for _ in range(pages):
        connection.execute("PRAGMA incremental_vacuum(1)")  # one step of it is one page, and Python takes one step
    return pages
