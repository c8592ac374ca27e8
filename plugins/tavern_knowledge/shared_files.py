"""Base files in a database that hosts share: the same content as in the folder of a project, and no file.

Each host follows them with an index of its own, as it follows files, so that a search is the same and asks no database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import TypeVar

from tavern_host.storage.content_files import hash_of
from tavern_host.storage.databases import SharedDatabase
from tavern_knowledge.files import MAX_BASES, PICTURE, SUFFIX, BaseFolder, document_of, is_id

T = TypeVar("T")

FILES = (
    # `stamp` is another one whenever the content is written.
    ("CREATE TABLE files (name TEXT PRIMARY KEY, stamp TEXT NOT NULL, content BLOB NOT NULL) WITHOUT ROWID",),
)


class SharedFolder(BaseFolder):
    """The base files of a project in a database. `exclusive` keeps other hosts from writing within its block."""

    is_shared = True

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database
        self._writing: sqlite3.Connection | None = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Make what is read and written within the block one transaction."""
        with self._database.transaction(writes=True) as self._writing:
            try:
                yield
            finally:
                self._writing = None

    def _do(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        if self._writing is not None:
            return work(self._writing)
        with self._database.transaction(writes=writes) as connection:
            return work(connection)

    def stamps(self) -> dict[str, str]:
        """Return how each base's file is now, by id: equal only as long as nobody writes it."""
        rows = self._do(lambda c: c.execute("SELECT name, stamp FROM files").fetchall())
        found = sorted((name.removesuffix(SUFFIX), stamp) for name, stamp in rows if name.endswith(SUFFIX))
        return dict([(base, stamp) for base, stamp in found if is_id(base)][:MAX_BASES])

    def read(self, base: str) -> tuple[bytes, str]:
        """Return a file's content and its stamp. Raises `FileNotFoundError`."""
        found = self._do(lambda c: self._content(c, f"{base}{SUFFIX}"))
        if found is None:
            raise FileNotFoundError(base)
        return found

    def write(self, base: str, header: str, bodies: Iterable[str]) -> tuple[str, str]:
        """Replace a base's file; return its stamp and hash. Raises `InvalidInput` for more than fits."""
        data = document_of(base, header, bodies)
        return self._put(f"{base}{SUFFIX}", data), hash_of(data)

    def remove(self, base: str) -> None:
        """Remove a base's file and the picture beside it, those that are there."""
        names = (f"{base}{SUFFIX}", f"{base}{PICTURE}")
        self._do(lambda c: c.execute("DELETE FROM files WHERE name IN (?, ?)", names), writes=True)

    def picture(self, base: str) -> bytes | None:
        """Return the picture beside a base, or None."""
        found = self._do(lambda c: self._content(c, f"{base}{PICTURE}"))
        return None if found is None else found[0]

    def write_picture(self, base: str, picture: bytes) -> None:
        """Replace the picture beside a base."""
        self._put(f"{base}{PICTURE}", picture)

    def _content(self, connection: sqlite3.Connection, name: str) -> tuple[bytes, str] | None:
        row = connection.execute("SELECT content, stamp FROM files WHERE name = ?", (name,)).fetchone()
        return None if row is None else (row[0], row[1])

    def _put(self, name: str, content: bytes) -> str:
        stamp = token_hex(8)
        kept = (
            "INSERT INTO files (name, stamp, content) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET stamp = excluded.stamp, content = excluded.content"
        )
        self._do(lambda c: c.execute(kept, (name, stamp, content)), writes=True)
        return stamp
