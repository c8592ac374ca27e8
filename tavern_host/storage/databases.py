"""SQL databases that several hosts share: the `sharedDatabases` service, and a store's way to one.

A store keeps its tables in a file of SQLite. Where a plugin provides this service they are in a database that it knows,
under the same statements: those of SQLite that other databases have too. What differs is the provider's to translate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from pydantic import JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ServiceUnavailable, TavernError
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

SqlValue = None | int | float | str | bytes


class SqlDatabase(Model):
    """A database of a store: its name, the file in which it would be otherwise (empty where the store moves itself what
    is there), and the statements that bring the tables from each version to the next, in SQLite's SQL."""

    name: str
    file: str
    migrations: list[list[str]]


class SqlResult(Model):
    """What a statement gave: rows, or how many it changed."""

    rows: list[list[SqlValue]]
    count: int


_USE = "Reach all that hosts keep in the SQL database that they share."


class SharedDatabases(ServiceInterface, name="sharedDatabases", version=2):
    """Runs statements in databases that other hosts share, in transactions, and knows which hosts are alive.

    Of one database one transaction writes at a time, among all hosts. One that is not ended is undone after a while. In
    statements `microseconds()` is the time since 1970 by one clock, whichever host asks.
    Raises `ServiceUnavailable` where the database does not answer, `TavernError` for a statement that fails.
    """

    @acts("sharedDatabases:use", _USE, level="override")
    async def begin(self, database: SqlDatabase, *, writes: bool, call: CallContext | None = None) -> str:
        """Begin a transaction in a database, whose tables are made if need be; return its id. Without `writes` it reads
        what was there at its beginning."""

    @acts("sharedDatabases:use", _USE, level="override")
    async def execute(
        self, transaction: str, statement: str, values: list[list[SqlValue]], *, call: CallContext | None = None
    ) -> SqlResult:
        """Execute a statement once for each list of values, which take the places of its `?`."""

    @acts("sharedDatabases:use", _USE, level="override")
    async def end(self, transaction: str, *, commit: bool, call: CallContext | None = None) -> None:
        """Commit a transaction, or undo it."""

    @acts("sharedDatabases:use", _USE, level="override")
    async def hold(self, name: str, *, call: CallContext | None = None) -> None:
        """Mark who has this name as alive, until this host ends or releases it. Raises `Conflict` where another host
        has the name."""

    @acts("sharedDatabases:use", _USE, level="override")
    async def is_gone(self, name: str, *, call: CallContext | None = None) -> bool:
        """Return whether nobody holds a name."""

    @reads(since=2)
    async def is_back(self, seconds: float) -> bool:
        """Return whether the database did not answer, and does again for so many seconds at most: until then, who is
        alive may not have been able to say so."""

    @acts("sharedDatabases:use", _USE, level="override", since=2)
    async def announce(self, event: str, payload: dict[str, JsonValue], *, call: CallContext | None = None) -> None:
        """Publish an event at all hosts that serve and share the databases, this one too. It is small."""

    @acts("sharedDatabases:use", _USE, level="override")
    async def release(self, names: list[str], *, call: CallContext | None = None) -> None:
        """Release names."""


SHARED_DATABASES = ServiceKey(SharedDatabases)


class Database(Protocol):
    """Where a store keeps its tables: `DatabaseThread` or `SharedDatabase`. `work` is called on a thread."""

    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)`, or `absent` where there is no database."""

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, called in a transaction that is committed by then, or undone where it raises."""

    async def close(self, last: Callable[[], None] | None = None) -> None:
        """Finish the jobs that wait, then call `last`."""


class HostNames(Protocol):
    """Which of the hosts that share a database are alive: `ProcessLocks`, or those of a `SharedDatabase`."""

    def hold(self, name: str) -> None:
        """Mark the host of this name as alive, until it ends or closes. Raises `Conflict`."""

    def is_gone(self, name: str) -> bool:
        """Return whether it is certain that the host of this name has ended."""

    def close(self) -> None:
        """Release the names that were held."""


class SharedDatabase:
    """A store's database in the service, and the `names` of the hosts that share it."""

    def __init__(self, service: SharedDatabases, database: SqlDatabase) -> None:
        self._service = service
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._jobs: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self.names = _Names(service, database.name, self.wait)

    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)`, by another connection where the first was lost meanwhile."""
        try:
            return await self._do(work, writes=False)
        except TavernError as error:
            if error.info.code != ServiceUnavailable.code or self._is_closed:
                raise
        return await self._do(work, writes=False)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, called in a transaction that is committed by then, or undone where it raises."""
        return await self._do(work, writes=True)

    async def close(self, last: Callable[[], None] | None = None) -> None:
        """Finish the jobs that wait, and call `last` on a thread."""
        self._is_closed = True
        if self._jobs:
            await asyncio.wait([*self._jobs])
        if last is not None:
            await asyncio.to_thread(last)

    async def _do(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        """Return the result of a job; one whose caller is cancelled is finished all the same."""
        if self._is_closed:
            raise ServiceUnavailable(f"the database of {self._database.name} is closed")
        job = asyncio.create_task(self._done(work, writes), name=f"database of {self._database.name}")
        self._jobs.add(job)
        job.add_done_callback(self._forget)
        return await asyncio.shield(job)

    def _forget(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        if not job.cancelled():
            job.exception()  # whose caller may be gone

    async def _done(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        transaction = await self._service.begin(self._database, writes=writes)
        connection = cast("sqlite3.Connection", _Connection(self, transaction))
        try:
            result = await asyncio.to_thread(work, connection)
        except BaseException:
            await self._service.end(transaction, commit=False)
            raise
        await self._service.end(transaction, commit=True)
        return result

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[sqlite3.Connection]:
        """Give a connection in a transaction, on another thread than the loop's: committed at the end of the block, or
        undone where it raises."""
        transaction = self.wait(self._service.begin(self._database, writes=writes))
        try:
            yield cast("sqlite3.Connection", _Connection(self, transaction))
        except BaseException:
            self.wait(self._service.end(transaction, commit=False))
            raise
        self.wait(self._service.end(transaction, commit=True))

    def execute(self, transaction: str, statement: str, values: list[list[SqlValue]]) -> SqlResult:
        """Execute a statement, on another thread than the loop's."""
        return self.wait(self._service.execute(transaction, statement, values))

    def is_back(self, seconds: float) -> bool:
        """Call `is_back` of the service, on another thread than the loop's."""
        return self.wait(self._service.is_back(seconds))

    async def announce(self, event: str, payload: dict[str, JsonValue]) -> None:
        """Publish an event at all hosts that share the database."""
        await self._service.announce(event, payload)

    def wait(self, answer: Awaitable[T]) -> T:
        """Return the result of an awaitable of the loop, on another thread than the loop's."""

        async def awaited() -> T:
            return await answer

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()


class _Names:
    """The names of the hosts that share a database; see `HostNames`."""

    def __init__(self, service: SharedDatabases, database: str, wait: Callable[[Awaitable[Any]], Any]) -> None:
        self._service = service
        self._database = database
        self._wait = wait
        self._held: set[str] = set()

    def hold(self, name: str) -> None:
        if name not in self._held:
            self._wait(self._service.hold(self._own(name)))
            self._held.add(name)

    def is_gone(self, name: str) -> bool:
        return name not in self._held and bool(self._wait(self._service.is_gone(self._own(name))))

    def close(self) -> None:
        names, self._held = [self._own(name) for name in self._held], set()
        if names:
            self._wait(self._service.release(names))

    def _own(self, name: str) -> str:
        return f"{self._database}\n{name}"


class _Connection:
    """What a store uses of a connection of SQLite."""

    def __init__(self, database: SharedDatabase, transaction: str) -> None:
        self._database = database
        self._transaction = transaction

    def execute(self, statement: str, values: Sequence[Any] = ()) -> _Cursor:
        return self.executemany(statement, [values])

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> _Cursor:
        values = [[int(value) if isinstance(value, bool) else value for value in row] for row in rows]
        done = self._database.execute(self._transaction, statement, values) if values else SqlResult(rows=[], count=0)
        return _Cursor(done)


class _Cursor:
    """The rows of one statement."""

    def __init__(self, result: SqlResult) -> None:
        self.rowcount = result.count
        self._rows = iter([tuple(row) for row in result.rows])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(self._rows)


def shared_database(
    services: Any, name: str, file: Path | None, migrations: Iterable[Iterable[str]]
) -> SharedDatabase | None:
    """Return the database of a store where hosts share one, None where it is the file. `services` are a context's."""
    if not services.has(SHARED_DATABASES):
        return None
    database = SqlDatabase(name=name, file=str(file or ""), migrations=[[*statements] for statements in migrations])
    return SharedDatabase(services.get(SHARED_DATABASES), database)
