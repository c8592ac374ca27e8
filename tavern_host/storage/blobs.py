"""Keeps the Blobs of a project in its `.tavern/blobs`: each content once, for as long as somebody holds it.

A content is a file, by its hash, complete or not there. Who holds which is in a database beside the files; both survive
the end of the process at any moment. What nobody holds is removed an hour after it was put or released.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pydantic import ValidationError

from tavern_host import clock
from tavern_host.contracts.blobs import BINARY, Blob
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, ServiceUnavailable, TavernError, describe
from tavern_host.storage.content_files import ContentFiles
from tavern_host.storage.sqlite import DatabaseThread, Schema

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

_log = logging.getLogger("tavern.blobs")

MAX_BLOB, MAX_ALL = 2 * 2**30, 16 * 2**30
"""How many bytes one Blob may have, and all of a project."""

UNUSED_SECONDS = 3600.0
"""How long a Blob stays that nobody holds."""

CHUNK = 2**20
"""How many bytes are read or written at a time."""

_AT_ONCE = 50
"""How many Blobs one transaction removes: others wait for it."""

_SCHEMA = Schema(
    "blobs.sqlite3",
    (
        (
            # `kept` is when it was put or released last, in microseconds since 1970.
            "CREATE TABLE blobs (hash TEXT PRIMARY KEY, size INTEGER NOT NULL, media_type TEXT NOT NULL,"
            " kept INTEGER NOT NULL) WITHOUT ROWID",
            "CREATE TABLE holds (holder TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (holder, hash)) WITHOUT ROWID",
            "CREATE INDEX holds_of_blob ON holds (hash)",
        ),
    ),
)

_UNHELD = "kept < ? AND NOT EXISTS (SELECT 1 FROM holds WHERE holds.hash = blobs.hash)"


class BlobStore:
    """The Blobs in a folder; see `context.Blobs`. Several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self._files = ContentFiles(folder)
        self._database = DatabaseThread(folder, _SCHEMA, _log, "blob store: database")
        self._prefix = ""
        self._check: Callable[[], object] = lambda: None

    def of(self, plugin: str, check: Callable[[], object]) -> BlobStore:
        """Return the store as a plugin has it: its holders are under its name, and each call begins with `check`."""
        own = copy.copy(self)
        own._prefix, own._check = f"{plugin}/", check
        return own

    @staticmethod
    def handle(hash: str, media_type: str, length: int) -> Blob:
        """Return a handle. Raises `InvalidInput` for what is no media type."""
        try:
            return Blob(hash=hash, media_type=media_type, length=length)
        except ValidationError:
            raise InvalidInput(f"{media_type!r:.100} is no media type, such as image/png") from None

    async def put(
        self, content: bytes | AsyncIterable[bytes], media_type: str = BINARY, *, holder: str | None = None
    ) -> Blob:
        """Keep bytes, or a stream of them, and return their handle. Raises `InvalidInput` for what is no media type and
        more than `MAX_BLOB` bytes, `Conflict` where all would have more than `MAX_ALL`."""
        self._check()
        self.handle("0" * 64, media_type, 0)
        new = await _on_thread(self._files.begin)
        try:
            async for part in _parts(content):
                if new.size + len(part) > MAX_BLOB:
                    raise InvalidInput(f"a Blob has at most {MAX_BLOB:,} bytes, this one has more")
                await _on_thread(new.add, part)
            blob = self.handle(await _on_thread(new.finish), media_type, new.size)
            await self._database.write(lambda connection: self._record(connection, blob, new.path, holder))
        finally:
            await asyncio.shield(_on_thread(new.discard))
        return blob

    def _record(self, connection: sqlite3.Connection, blob: Blob, temporary: Path, holder: str | None) -> None:
        others = "SELECT total(size) FROM blobs WHERE hash <> ?"
        size = int(connection.execute(others, (blob.hash,)).fetchone()[0])
        if size + blob.length > MAX_ALL:
            raise Conflict(f"the Blobs of this project take {size:,} bytes, and with this one more than {MAX_ALL:,}")
        # The file gets its place while the database is locked: none is removed at this moment.
        self._files.keep(temporary, blob.hash)
        connection.execute(
            "INSERT INTO blobs VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO UPDATE SET size = excluded.size,"
            " media_type = excluded.media_type, kept = excluded.kept",
            (blob.hash, blob.length, blob.media_type, clock.microseconds()),
        )
        if holder is not None:
            self._hold(connection, holder, blob)

    def _hold(self, connection: sqlite3.Connection, holder: str, blob: Blob) -> None:
        connection.execute("INSERT OR IGNORE INTO holds VALUES (?, ?)", (self._prefix + holder, blob.hash))

    async def get(self, hash: str) -> Blob:
        """Return the handle of a content, with the media type that it was put with last. Raises `NotFound`."""
        sought, key = "SELECT media_type, size FROM blobs WHERE hash = ?", hash.encode(errors="replace").decode()
        found = await self._database.read(lambda connection: connection.execute(sought, (key,)).fetchone(), absent=None)
        if found is None:
            raise NotFound(f"there is no Blob {hash!r:.80}")
        return self.handle(hash, *found)

    async def path(self, blob: Blob) -> Path:
        """Return the file of a Blob, which must not be changed. Raises `NotFound`."""
        self._check()
        (await _on_thread(self._opened, blob)).close()
        return self._files.path(blob.hash)

    def has(self, blob: Blob) -> bool:
        """Return whether there is such a Blob; quick."""
        return self._files.has(blob.hash)

    async def read(self, blob: Blob) -> bytes:
        """Return the content of a Blob. Raises `NotFound`, also where it is not what it was."""
        self._check()
        content = await _on_thread(self._files.read, blob.hash)
        if content is None or len(content) != blob.length:
            raise _unknown(blob)
        return content

    async def open(self, blob: Blob, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes of a Blob from `start` up to `stop`, in parts of at most `CHUNK`. Raises `NotFound`."""
        self._check()
        with await _on_thread(self._opened, blob) as file:
            left = (blob.length if stop is None else min(stop, blob.length)) - start
            file.seek(start)
            while left > 0 and (part := await _on_thread(file.read, min(CHUNK, left))):
                left -= len(part)
                yield part

    def _opened(self, blob: Blob) -> BinaryIO:
        file = self._files.open(blob.hash)
        if file is None:
            raise _unknown(blob)
        if file.seek(0, 2) != blob.length:
            file.close()
            raise _unknown(blob)
        file.seek(0)
        return file

    # --- who holds what ---------------------------------------------------------------------------

    async def hold(self, holder: str, blobs: Collection[Blob]) -> None:
        """Keep Blobs until the holder releases them, however often it is said. Raises `NotFound`: then none is held."""
        self._check()

        def work(connection: sqlite3.Connection) -> None:
            for blob in blobs:
                known = connection.execute("SELECT 1 FROM blobs WHERE hash = ?", (blob.hash,)).fetchone()
                if known is None or not self._files.has(blob.hash):
                    raise _unknown(blob)
                self._hold(connection, holder, blob)

        await self._database.write(work)

    async def release(self, holder: str) -> None:
        """Hold nothing for this holder any more."""
        self._check()
        name = self._prefix + holder

        def work(connection: sqlite3.Connection) -> None:
            held = "SELECT hash FROM holds WHERE holder = ?"
            connection.execute(f"UPDATE blobs SET kept = ? WHERE hash IN ({held})", (clock.microseconds(), name))
            connection.execute("DELETE FROM holds WHERE holder = ?", (name,))

        await self._database.write(work)

    async def holders(self) -> list[str]:
        """Return who holds something; of a plugin, which of its names do."""
        sought, size = "SELECT DISTINCT holder FROM holds WHERE substr(holder, 1, ?) = ?", len(self._prefix)
        rows: list[tuple[str]] = await self._database.read(
            lambda c: c.execute(sought, (size, self._prefix)).fetchall(), absent=[]
        )
        return [holder[size:] for (holder,) in rows]

    async def sweep_always(self) -> None:
        """Sweep in ten minutes and then each hour, until cancelled. A failure is logged."""
        await asyncio.sleep(600)  # runs that a killed host left behind have been resumed by then
        while True:
            try:
                await self.sweep()
            except (TavernError, OSError) as error:
                _log.error("Blobs that nobody needs were not removed: %s", describe(error))
            await asyncio.sleep(3600)

    async def sweep(self, unused_seconds: float = UNUSED_SECONDS) -> int:
        """Remove what nobody has held for so long, and files that a killed process left; return how many Blobs."""
        before, swept = clock.microseconds() - int(unused_seconds * 1_000_000), 0
        if not await self._database.read(lambda _: True, absent=False):
            return 0
        while count := await self._database.write(lambda connection: self._remove_unheld(connection, before)):
            swept += count
        for names in await _on_thread(lambda: list(self._files.names())):

            def work(connection: sqlite3.Connection, names: list[str] = names) -> None:
                for name in names:
                    if not connection.execute("SELECT 1 FROM blobs WHERE hash = ?", (name,)).fetchone():
                        self._files.remove(name)

            await self._database.write(work)
        return swept

    def _remove_unheld(self, connection: sqlite3.Connection, before: int) -> int:
        sought = f"SELECT hash FROM blobs WHERE {_UNHELD} LIMIT ?"
        names = [name for (name,) in connection.execute(sought, (before, _AT_ONCE))]
        for name in names:
            self._files.remove(name)
            connection.execute("DELETE FROM blobs WHERE hash = ?", (name,))
        return len(names)

    async def close(self) -> None:
        """Finish what is being written."""
        await self._database.close()


async def _parts(content: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes | memoryview]:
    if isinstance(content, bytes):
        view = memoryview(content)
        for start in range(0, len(content), 8 * CHUNK):
            yield view[start : start + 8 * CHUNK]
        return
    async for part in content:
        if not isinstance(part, bytes):
            raise InvalidInput(f"a Blob is made of bytes, found {type(part).__name__}")
        yield part


async def _on_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Return `work(*arguments)`. Raises `ServiceUnavailable` for an error of the file system."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except OSError as error:
        raise ServiceUnavailable(f"a Blob cannot be kept or read: {error.filename}: {error.strerror}") from None


def _unknown(blob: Blob) -> NotFound:
    return NotFound(f"the Blob {blob.hash} is not kept any more, or its file is damaged")
