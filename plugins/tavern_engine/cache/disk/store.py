"""The output cache on disk: queried in one go, and written in batches, both off the event loop.

A failure never stops a run: it is logged once, and a circuit breaker suspends reading or writing for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tavern_engine.cache.disk import tables
from tavern_engine.cache.disk.entries import FORMAT, MAX_ENTRY, encode_entry
from tavern_engine.cache.disk.tables import OUTPUTS, Found
from tavern_engine.journal.keys import ProjectKey
from tavern_host import __version__, clock
from tavern_host.contracts.errors import TavernError, describe
from tavern_host.storage.sqlite import DatabaseThread

if TYPE_CHECKING:
    import sqlite3

DELAY, USED_DELAY = 0.2, 5.0
"""Seconds that outputs, and marks of use, wait for others to be written with them."""

PATIENCE = 10.0
"""Seconds that a run waits for the disk before it runs without."""

PAUSE = 30.0
"""Seconds for which the circuit breaker stays open after a failure."""

CLOSE_SECONDS = 10.0
"""Seconds that closing waits for pending writes."""

MAX_WAITING_BYTES = 256 * 2**20
"""About how many bytes may wait to be written; further outputs are not cached."""

MAX_TOUCHED = 200_000
"""How many marks of use may wait to be written."""

BATCH_ENTRIES, BATCH_BYTES = 1000, 8 * 2**20
"""How many entries, and about how many bytes, one transaction writes."""

ROOM = 32 * 2**20
"""How many bytes of small entries are read ahead, before it is known which are needed."""

PREFIX_BYTES = 8
"""So many that they cannot be guessed."""

_GOAL = 0.9
"""To which share of the limit the cache is shrunk when it exceeds it."""

_SLICE = 100
"""How many entries are encoded before the interpreter is released."""

Waiting = tuple[Sequence[bytes], Sequence[dict[str, Any]]]


@dataclass(frozen=True)
class Usage:
    """The size of the disk cache: how many entries, in how many bytes, and where."""

    entries: int
    size: int
    path: Path


class _CircuitBreaker:
    """Suspends reading, or writing, for a while after a failure, which is logged once until it works again."""

    def __init__(self, what: str, log: logging.Logger) -> None:
        self._what = what
        self._log = log
        self._until = 0.0
        self._is_logged = False

    @property
    def is_open(self) -> bool:
        """Whether the operation is suspended."""
        return clock.monotonic() < self._until

    def record_failure(self, error: BaseException) -> None:
        """Suspend the operation."""
        self._until = clock.monotonic() + PAUSE
        if not self._is_logged:
            reason = error.message if isinstance(error, TavernError) else describe(error)
            self._log.error("%s the cache on disk fails; runs continue without it: %s", self._what, reason)
        self._is_logged = True

    def record_success(self) -> None:
        """The next failure is logged again."""
        self._is_logged = False


class DiskCache:
    """Outputs by signature in a folder, which other processes may share. Used on one event loop, and closed by its
    owner; nothing is opened before it is used. `limit` says how many bytes the database may have.

    Entries written with another `key` are never found: a cache that came with a project is not trusted.
    """

    def __init__(self, folder: Path, log: logging.Logger, limit: Callable[[], int], key: ProjectKey) -> None:
        self._path = folder / OUTPUTS.file
        self._log = log
        self._limit = limit
        self._writer = DatabaseThread(folder, OUTPUTS, log, "output cache: writing")
        self._reader = DatabaseThread(folder, OUTPUTS, log, "output cache: reading")
        self._key = key
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._touched: list[Collection[bytes]] = []
        self._damaged: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._read_breaker, self._write_breaker = _CircuitBreaker("reading", log), _CircuitBreaker("writing", log)
        self._is_closed = self._is_due = self._is_damage_logged = False

    @property
    def limit(self) -> int:
        """How many bytes the database may have."""
        return self._limit()

    # --- reading ----------------------------------------------------------------------------------

    async def find(self, signatures: Collection[bytes]) -> Found:
        """Return the entries with these signatures; only small ones are read at once. Never raises."""

        def work(connection: sqlite3.Connection) -> Found:
            return self._without_prefix(tables.find(connection, self._with_prefix(signatures), ROOM))

        return await self._ask(work)

    async def load(self, signatures: Collection[bytes]) -> Found:
        """Return the entries with these signatures, all of them read. Never raises."""

        def work(connection: sqlite3.Connection) -> Found:
            return self._without_prefix(tables.load(connection, self._with_prefix(signatures)))

        return await self._ask(work)

    def _prefix(self) -> bytes:
        """Return the prefix of the keys of entries. Waits for the disk. Raises `OSError`."""
        # Signatures do not cover the code of the engine itself, nor who wrote an entry.
        return self._key.mark(f"outputs {__version__} {FORMAT}", PREFIX_BYTES)

    def _with_prefix(self, signatures: Iterable[bytes]) -> list[bytes]:
        prefix = self._prefix()
        return [prefix + signature for signature in signatures]

    def _without_prefix(self, found: Found) -> Found:
        size = PREFIX_BYTES
        entries = {key[size:]: entry for key, entry in found.entries.items()}
        return Found(entries, {key[size:] for key in found.unread}, found.damaged)

    async def _ask(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        if self._is_closed or self._read_breaker.is_open:
            return _nothing()
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._reader.read(work, _nothing())
        except TimeoutError:
            self._read_breaker.record_failure(TavernError(f"{self._path}: it took longer than {PATIENCE:g} s"))
            return _nothing()
        except Exception as error:  # whatever it is, the run continues
            self._read_breaker.record_failure(error)
            return _nothing()
        self._read_breaker.record_success()
        if found.damaged:
            if not self._is_damage_logged:
                self._is_damage_logged = True
                self._log.warning("%s: there are damaged entries; they are removed, their nodes run again", self._path)
            self._damaged += found.damaged
            self._soon(DELAY)
        return found

    # --- writing ----------------------------------------------------------------------------------

    def keep(self, signatures: Sequence[bytes], outputs: Sequence[dict[str, Any]], size: int) -> None:
        """Write outputs soon; `size` is roughly how many bytes they take. None of it may be changed afterwards.

        Outputs that have no codec, or are too large, are not kept.
        """
        if self._is_idle() or size > MAX_ENTRY * len(signatures):
            return
        if self._waiting and self._waiting_bytes + size > MAX_WAITING_BYTES:
            return
        self._waiting.append((signatures, outputs))
        self._waiting_bytes += size
        self._soon(DELAY)

    def touch(self, signatures: Collection[bytes]) -> None:
        """Mark entries as used now, some time later."""
        if signatures and not self._is_idle() and sum(map(len, self._touched)) < MAX_TOUCHED:
            self._touched.append(signatures)
            self._soon(USED_DELAY)

    async def drain(self) -> None:
        """Return when everything that was to be kept before is written, or could not be."""
        for _ in range(2):  # the write in progress, then what was queued since
            if self._writing is None:
                self._begin()
            if self._writing is not None:
                await asyncio.wait([self._writing])

    async def close(self) -> None:
        """Flush pending writes, for some seconds at most, and close the file."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.drain()
        except TimeoutError:
            self._log.warning("%s: closed before all outputs were written", self._path)
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()
        await self._writer.close()
        await self._reader.close()

    def _soon(self, delay: float) -> None:
        """Begin to write after some seconds, unless that happens earlier."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay, self._begin)

    def _begin(self) -> None:
        """Write what there is now, or when what is being written is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            self._is_due = True
        elif self._waiting or self._touched or self._damaged:
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="output cache")
            self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._write_breaker.record_failure(error)
            self._waiting, self._waiting_bytes, self._touched, self._damaged = deque(), 0, [], []
        if self._is_due and not self._is_closed:
            self._is_due = False
            self._begin()

    async def _write(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        touched, self._touched = self._touched, []
        damaged, self._damaged = self._damaged, []
        if damaged:
            await self._writer.write(lambda connection: tables.remove(connection, damaged))
        prefix = await asyncio.to_thread(self._prefix)
        entries = _each(waiting)
        while waiting and not self._is_closed:
            encoded = await asyncio.to_thread(_encoded, prefix, entries, self.limit // 2)
            if encoded:
                await self._writer.write(lambda connection, encoded=encoded: tables.write(connection, encoded))  # type: ignore[misc]
                await self._make_room()
        if touched and self._path.exists():
            await self._writer.write(
                lambda connection: tables.touch(connection, self._with_prefix(set(chain.from_iterable(touched))))
            )
        self._write_breaker.record_success()

    async def _make_room(self) -> None:
        limit = self.limit
        if await self._writer.write(tables.occupied) <= limit:
            return
        while await self._writer.write(lambda connection: tables.forget(connection, int(limit * _GOAL))):
            pass
        while await self._writer.write(lambda connection: tables.shrink(connection, limit)):
            pass

    # --- usage and clearing -----------------------------------------------------------------------

    async def usage(self) -> Usage:
        """Return how much is cached. Raises `TavernError`."""
        entries, size = await self._reader.read(tables.count, (0, 0))
        return Usage(entries, size, self._path)

    async def clear(self) -> int:
        """Delete everything, damaged files that were set aside too; return how many entries. Raises `TavernError`."""
        self._waiting, self._waiting_bytes, self._touched = deque(), 0, []
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await asyncio.to_thread(_remove_damaged, self._path)
        forgotten = (await self.usage()).entries
        if not self._path.exists():
            return 0
        while await self._writer.write(lambda connection: tables.forget(connection, 0)):
            pass
        while await self._writer.write(lambda connection: tables.shrink(connection, 0)):
            pass
        return forgotten

    def _is_idle(self) -> bool:
        """Whether nothing is to be written."""
        return self._is_closed or self._write_breaker.is_open


def _nothing() -> Found:
    return Found({}, set(), [])


def _remove_damaged(path: Path) -> None:
    for damaged in path.parent.glob(f"{path.name}.damaged-*"):
        with contextlib.suppress(OSError):
            damaged.unlink()


def _each(waiting: deque[Waiting]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield what waits, piece by piece; when there is no more, nothing waits."""
    while waiting:
        yield from zip(*waiting[0], strict=True)
        waiting.popleft()


def _encoded(prefix: bytes, entries: Iterator[tuple[bytes, dict[str, Any]]], limit: int) -> list[tuple[bytes, bytes]]:
    """Return the next entries as bytes, those of them that can be."""
    found: list[tuple[bytes, bytes]] = []
    size = 0
    for done, (signature, outputs) in enumerate(entries, 1):
        key = prefix + signature
        content = encode_entry(key, outputs)
        if content is not None and len(content) <= limit:
            found.append((key, content))
            size += len(content)
        if len(found) >= BATCH_ENTRIES or size >= BATCH_BYTES:
            break
        if not done % _SLICE:
            time.sleep(0)  # releases the interpreter to the event loop
    return found
