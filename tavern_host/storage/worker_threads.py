"""Threads that hold a connection to a SQLite database each: one that reads, one that writes, or one for both.

Nothing is opened before it is used. Of errors of the database and the file system one line is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tavern_host.contracts.errors import ServiceUnavailable, TavernError

if TYPE_CHECKING:
    import sqlite3

    from tavern_host.storage.database import Identity
    from tavern_host.storage.tables import Tables

T = TypeVar("T")

TOGETHER = 200
"""How many writes become one transaction at most."""

CLOSE_SECONDS = 15.0
"""How long closing waits for what is under way, unless told otherwise."""


class _Connected:
    """A thread's connection: opened when it is used, and again where the file is another by now."""

    def __init__(self, folder: Path, tables: Tables, log: logging.Logger) -> None:
        self._path = folder / tables.file
        self._tables = tables
        self._log = log
        self._connection: sqlite3.Connection | None = None
        self._identity: Identity | None = None

    def get(self) -> sqlite3.Connection:
        """Return the connection. Raises what `open_database` raises."""
        from tavern_host.storage.database import identity_of, open_database

        if self._connection is not None and self._connection.in_transaction:
            return self._connection
        if self._connection is not None and identity_of(self._path) != self._identity:
            self.close()
        if self._connection is None:
            self._connection, self._identity = open_database(self._path.parent, self._tables, self._log)
        return self._connection

    def exists(self) -> bool:
        """Return whether there is a database."""
        return self._path.exists()

    def failed(self, error: Exception) -> Exception:
        """Undo what is not committed; return what callers are told. A damaged database is put aside."""
        from tavern_host.storage.database import is_damage, put_aside, told

        if self._connection is not None and self._connection.in_transaction:
            with contextlib.suppress(Exception):
                self._connection.execute("ROLLBACK")
        if is_damage(error):
            identity = self._identity
            self.close()
            if identity is not None:
                try:
                    put_aside(self._path, identity, error, self._log)
                except OSError as problem:
                    return told(problem, self._path)
        return told(error, self._path)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):  # it may be damaged, or gone
                self._connection.close()
        self._connection = self._identity = None


@dataclass(eq=False)
class _Job(Generic[T]):
    """What a caller wants done on the thread, and where it waits for the outcome."""

    work: Callable[[_Connected], T]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Hand the outcome over, on the caller's loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._settle, result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class _Lane:
    """One thread with its connection. `name` is whose thread it is and what for, as in `run store: writing`."""

    def __init__(
        self, folder: Path, tables: Tables, log: logging.Logger, name: str, *, close_seconds: float = CLOSE_SECONDS
    ) -> None:
        self._connected = _Connected(folder, tables, log)
        self._name = name
        self._close_seconds = close_seconds
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def close(self, last: Callable[[], None] | None = None) -> None:
        """Finish what was begun, call `last` on the thread, where there is one, and close the connection."""
        loop = asyncio.get_running_loop()
        with self._lock:
            thread = self._thread
            if not self._is_closed:
                self._is_closed = True
                if last is not None:
                    self._jobs.put(_Job(lambda _: last(), loop, loop.create_future()))
                self._jobs.put(None)
        if thread is not None:
            await asyncio.to_thread(thread.join, self._close_seconds)

    async def _do(self, work: Callable[[_Connected], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(work, loop, future)
        with self._lock:
            if self._is_closed:
                raise ServiceUnavailable(f"the {self._name.partition(':')[0]} is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put(job)
        return await future

    # --- on the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        is_open = True
        while is_open:
            jobs = [self._jobs.get()]
            with contextlib.suppress(queue.Empty):
                while len(jobs) < TOGETHER:
                    jobs.append(self._jobs.get_nowait())
            is_open = None not in jobs
            wanted = [job for job in jobs if job is not None]
            if wanted:
                self._serve(wanted)
            del jobs, wanted  # and with them what they hold, while there is nothing to do
        self._connected.close()

    def _serve(self, jobs: list[_Job[Any]]) -> None:
        for job in jobs:
            result, error = None, None
            try:
                result = job.work(self._connected)
            except Exception as raised:
                error = self._connected.failed(raised)
            job.settle(result, error)


class SoloLane(_Lane):
    """Reads and writes, one piece of work at a time; a write is a transaction of its own."""

    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)`, or `absent` where there is no database: reading makes none."""
        if self._thread is None and not self._connected.exists():  # no thread for what is never used
            return absent
        return await self._do(lambda connected: work(connected.get()) if connected.exists() else absent)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, called in a transaction; it is committed by then, or undone where it raises."""

        def transaction(connected: _Connected) -> T:
            connection = connected.get()
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
            return result

        return await self._do(transaction)


class ReadingLane(_Lane):
    """Reads, and does what has to do with files alone."""

    async def do(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)`, or `absent` where there is no database: reading makes none."""
        return await self._do(lambda connected: work(connected.get()) if connected.exists() else absent)

    async def do_beside(self, work: Callable[[], T]) -> T:
        """Return `work()`, without the database."""
        return await self._do(lambda _: work())


class WritingLane(_Lane):
    """Writes; what several callers want at the same moment becomes one transaction."""

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, called in a transaction; it is committed by then.

        It may be called again, where others of the same transaction failed: what it does beside the database must
        bear that. It must not have written anything yet where it raises a `TavernError`, which its caller gets; of
        errors of the database and the file system one line is made.
        """
        return await self._do(lambda connected: work(connected.get()))

    def _serve(self, jobs: list[_Job[Any]]) -> None:
        outcomes: list[tuple[Any, Exception | None]] = []
        try:
            connection = self._connected.get()
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                try:
                    outcomes.append((job.work(self._connected), None))
                except TavernError as refused:
                    outcomes.append((None, refused))
            connection.execute("COMMIT")
        except Exception as raised:
            error = self._connected.failed(raised)
            if len(jobs) > 1:  # one of them is at fault: each by itself
                for job in jobs:
                    self._serve([job])
                return
            outcomes = [(None, error)]
        for job, (result, refusal) in zip(jobs, outcomes, strict=True):
            job.settle(result, refusal)
