"""Deletes what the run store need not keep any more: old runs, contents that no run refers to, and stray files.

Each step is a short transaction, so that writers need not wait long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tavern_engine.cache.disk.tables import shrink
from tavern_host.storage.content_files import ContentFiles
from tavern_host.storage.databases import Database
from tavern_host.storage.sqlite import DatabaseThread

if TYPE_CHECKING:
    import sqlite3

KEPT_SECONDS = 3600
"""How long a content that no run refers to is kept: its writer may be about to refer to it."""

AT_ONCE = 50
"""How many runs or contents one transaction forgets: others wait for it."""


class Pruning:
    """One pruning of a store. `disk` are its files and the thread that reads them, None where all is in the database.
    `is_claimed` tells from the owner of a run and whether its lease holds whether a worker has it."""

    def __init__(
        self,
        database: Database,
        disk: tuple[ContentFiles, DatabaseThread] | None,
        is_claimed: Callable[[str | None, int | None], bool],
    ) -> None:
        self._database = database
        self._disk = disk
        self._is_claimed = is_claimed

    async def run(self, before: int, max_bytes: int) -> int:
        """Delete the runs that ended before a moment, the oldest while all take more than `max_bytes`, and what no run
        needs; return how many runs."""
        forgotten, write = 0, self._database.write
        while count := await write(lambda connection: self._forget(connection, "finished < ?", (before,))):
            forgotten += count
        while count := await write(lambda connection: self._forget_beyond(connection, max_bytes)):
            forgotten += count
        while await write(self._forget_contents):
            pass
        if self._disk is not None:
            await self._forget_strays(*self._disk)
            while await write(lambda connection: shrink(connection, 0)):
                pass
        return forgotten

    def _forget_beyond(self, connection: sqlite3.Connection, max_bytes: int) -> int:
        """Delete some of the oldest runs as long as too much is kept; return how many."""
        kept = _total(connection, "runs", "1 = 1")
        kept += _total(connection, "contents", "EXISTS (SELECT 1 FROM uses WHERE uses.hash = contents.hash)")
        return self._forget(connection, "1 = 1", (), surplus=kept - max_bytes)

    def _forget(
        self, connection: sqlite3.Connection, condition: str, values: tuple[Any, ...], surplus: float = math.inf
    ) -> int:
        """Delete some finished unclaimed runs, first those that ended first, until `surplus` bytes are."""
        forgotten = passed = 0
        sought = (
            "SELECT seq, size, owner, lease_until >= microseconds() FROM runs INDEXED BY runs_ended"
            f" WHERE is_final = 1 AND {condition} ORDER BY finished, seq LIMIT ? OFFSET ?"
        )
        while forgotten < AT_ONCE and surplus > 0:
            found = connection.execute(sought, (*values, AT_ONCE, passed)).fetchall()
            if not found:
                break
            for seq, size, owner, is_leased in found:
                if self._is_claimed(owner, is_leased):
                    passed += 1
                    continue
                own = (
                    "hash IN (SELECT hash FROM uses WHERE run = ?) AND NOT EXISTS"
                    " (SELECT 1 FROM uses WHERE uses.hash = contents.hash AND uses.run <> ?)"
                )
                surplus -= size + _total(connection, "contents", own, (seq, seq))
                connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
                forgotten += 1
                if surplus <= 0 or forgotten >= AT_ONCE:
                    break
        return forgotten

    def _forget_contents(self, connection: sqlite3.Connection) -> int:
        """Remove some of the contents that no run refers to; return how many.

        The files go while the database is locked: who puts one of them again at this moment comes before or after.
        """
        unused = (
            "SELECT hash FROM contents WHERE kept < microseconds() - ? AND"
            " NOT EXISTS (SELECT 1 FROM uses WHERE uses.hash = contents.hash) LIMIT ?"
        )
        names = [name for (name,) in connection.execute(unused, (KEPT_SECONDS * 1_000_000, AT_ONCE))]
        if self._disk is not None:
            for name in names:
                self._disk[0].remove(name)
        connection.executemany("DELETE FROM contents WHERE hash = ?", [(name,) for name in names])
        return len(names)

    async def _forget_strays(self, files: ContentFiles, thread: DatabaseThread) -> None:
        """Remove files that the database does not know: their process ended before it recorded them."""
        for names in await thread.run(lambda: list(files.names())):

            def work(connection: sqlite3.Connection, names: list[str] = names) -> None:
                for name in names:
                    if not connection.execute("SELECT 1 FROM contents WHERE hash = ?", (name,)).fetchone():
                        files.remove(name)

            await self._database.write(work)


def _total(connection: sqlite3.Connection, table: str, condition: str, values: tuple[Any, ...] = ()) -> int:
    """Return how many bytes some rows of a table are."""
    return int(
        connection.execute(f"SELECT coalesce(sum(size), 0) FROM {table} WHERE {condition}", values).fetchone()[0]
    )
