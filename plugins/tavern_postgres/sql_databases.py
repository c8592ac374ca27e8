"""The service `sharedDatabases` over PostgreSQL: each store has a schema of its own beside the plugin's.

One transaction writes to a schema at a time, as in a file of SQLite, so that a store decides within one as it does
there. Names of hosts are advisory locks, and a row that says when they were held last, since a lost connection is no
host that ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import JsonValue

from tavern_host import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, PermissionDenied, ServiceUnavailable, TavernError
from tavern_host.contracts.services import gives_new
from tavern_host.storage.databases import SharedDatabases, SqlDatabase, SqlResult, SqlValue
from tavern_postgres import State
from tavern_postgres.database import CHANNEL, HELD, Connection, Database, Row, address, lock_key, one_line
from tavern_postgres.dialect import tables_of, translated

if TYPE_CHECKING:
    import psycopg

"""Where the plugin's parts find the provider."""

_ALIVE_SECONDS = 15
"""How long a host whose connection was lost, with its names, has to take them again."""
_KEEP_SECONDS = 4.0
_IDLE = "30s"
"""How long a transaction may wait for its next statement."""
_WRITES = "\0writes"
_MAX_NAME = 63
"""How many bytes the name of a schema has at most."""


@dataclass(frozen=True)
class _Transaction:
    """A transaction that has begun."""

    held: AsyncExitStack
    cursor: psycopg.AsyncCursor[Row]
    lock: asyncio.Lock


class PostgresDatabases(SharedDatabases):
    """The databases of stores, beside the schema of the plugin. Nothing is connected to before it is used."""

    def __init__(self, url: str, schema: str, log: logging.Logger) -> None:
        self._url, self._schema, self._log = url, schema, log
        self._database = Database(url, schema, log)
        self._connections: dict[tuple[str, bool], Connection] = {}
        self._transactions: dict[str, _Transaction] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._is_closed = False
        self.files: dict[str, SqlDatabase] = {}

    async def close(self) -> None:
        """Undo what was not ended, give all names up, and close the connections."""
        self._is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        for transaction in [*self._transactions]:
            with contextlib.suppress(TavernError):
                await self.end(transaction, commit=False)
        with contextlib.suppress(ServiceUnavailable):
            await self.release(self._database.names)
        for connection in self._connections.values():
            await connection.close()
        await self._database.close()

    # --- transactions -----------------------------------------------------------------------------

    async def begin(self, database: SqlDatabase, *, writes: bool, call: CallContext | None = None) -> str:
        """Begin a transaction; see the interface. Raises `PermissionDenied`."""
        _require_plugin(call)
        self.files[database.name] = database
        schema, held = schema_of(self._schema, database.name), AsyncExitStack()
        connection = self._connections.get((schema, writes))
        if connection is None:
            name, tables = f"{database.name}, {'writing' if writes else 'reading'}", tables_of(database.migrations)
            connection = Connection(self._url, schema, self._log, name=name, tables=tables)
            self._connections[schema, writes] = connection
        cursor = await held.enter_async_context(connection.cursor())
        if self._is_closed:  # while this waited for the connection
            await held.aclose()
            raise ServiceUnavailable("the databases are closed")
        transaction, begun = uuid4().hex, _Transaction(held, cursor, asyncio.Lock())
        self._transactions[transaction] = begun
        try:
            alone = f"BEGIN; SELECT pg_advisory_xact_lock({lock_key(schema, _WRITES)})"
            how = alone if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            await self._run(begun, f"{how}; SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}'")  # in one go
        except BaseException:
            with contextlib.suppress(TavernError):
                await self.end(transaction, commit=False)
            raise
        return transaction

    @gives_new
    async def execute(
        self, transaction: str, statement: str, values: list[list[SqlValue]], *, call: CallContext | None = None
    ) -> SqlResult:
        """Execute a statement; see the interface."""
        begun = self._transactions.get(transaction)
        if begun is None:
            raise Conflict("the transaction has ended")
        rows: list[list[SqlValue]] = []
        count, translation = 0, translated(statement)
        async with begun.lock:
            for batch in values:
                await self._run(begun, translation, [_text(v) if isinstance(v, str) else v for v in batch])
                count += max(begun.cursor.rowcount, 0)
                if begun.cursor.description is not None:
                    rows += [[_value(value) for value in row] for row in await begun.cursor.fetchall()]
        return SqlResult.construct(rows=rows, count=count)

    async def _run(self, begun: _Transaction, statement: str, values: Any = None) -> None:
        import psycopg
        from psycopg.types.numeric import Int8Dumper

        begun.cursor.adapters.register_dumper(int, Int8Dumper)  # one type in all branches of a statement
        try:
            await begun.cursor.execute(statement.encode(), values)
        except psycopg.OperationalError as error:
            raise ServiceUnavailable(f"the PostgreSQL database does not answer: {one_line(error)}") from None
        except psycopg.Error as error:
            raise TavernError(f"the PostgreSQL database refused a statement: {error}") from error

    async def end(self, transaction: str, *, commit: bool, call: CallContext | None = None) -> None:
        """Commit a transaction, or undo it."""
        begun = self._transactions.pop(transaction, None)
        if begun is None:
            raise Conflict("the transaction has ended")
        async with begun.lock, begun.held:
            await self._run(begun, "COMMIT" if commit else "ROLLBACK")

    # --- names ------------------------------------------------------------------------------------

    async def hold(self, name: str, *, call: CallContext | None = None) -> None:
        """Mark who has this name as alive. Raises `Conflict`, `PermissionDenied`."""
        _require_plugin(call)
        key = await self._database.hold(name)
        held = (
            "INSERT INTO hosts (name, key, seen) VALUES (%s, %s, clock_timestamp())"
            " ON CONFLICT (name) DO UPDATE SET seen = excluded.seen"
        )
        await self._database.writer.rows(held, (name, key))
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name="keep the names of stores")

    async def is_gone(self, name: str, *, call: CallContext | None = None) -> bool:
        """Return whether nobody holds a name, and could if the database was away."""
        alive = (
            f"SELECT 1 FROM hosts WHERE name = %s AND (seen > clock_timestamp() - interval '{_ALIVE_SECONDS} seconds'"
            f" OR {HELD.format(key='key')})"
        )
        return not await self._database.reader.read(alive, (name,)) and not await self.is_back(_ALIVE_SECONDS)

    async def is_back(self, seconds: float) -> bool:
        """Return whether the database could not be reached, and answers again since so many seconds at most."""
        own = (self._database.reader, self._database.writer)
        return any(connection.is_back(seconds) for connection in (*own, *self._connections.values()))

    async def announce(self, event: str, payload: dict[str, JsonValue], *, call: CallContext | None = None) -> None:
        """Publish an event at all hosts that serve. Raises `PermissionDenied`."""
        _require_plugin(call)
        told = json.dumps([self._schema, None, event, payload])
        await self._database.writer.rows("SELECT pg_notify(%s, %s)", (CHANNEL, told))

    async def release(self, names: list[str], *, call: CallContext | None = None) -> None:
        """Release names. Raises `PermissionDenied`."""
        _require_plugin(call)
        if names:
            await self._database.give_up(names)
            await self._database.writer.rows("DELETE FROM hosts WHERE name = ANY(%s)", (names,))

    async def _keep(self) -> None:
        """Hold the names on, also with another connection."""
        while True:
            await asyncio.sleep(_KEEP_SECONDS)
            with contextlib.suppress(TavernError):  # the next time may go well
                await self._database.keep_names()
                seen = "UPDATE hosts SET seen = clock_timestamp() WHERE name = ANY(%s)"
                await self._database.writer.rows(seen, (self._database.names,))
                await self._database.writer.rows("DELETE FROM hosts WHERE seen < clock_timestamp() - interval '1 day'")


class ProjectDatabases(PostgresDatabases):
    """The databases of a host's stores, in the database that its operator named."""

    def __init__(self, context: PluginContext) -> None:
        super().__init__(*address(context), context.log)
        context.own(State).databases = self


def schema_of(schema: str, database: str) -> str:
    """Return the schema of a store's database beside the plugin's."""
    name = f"{schema}: {database}"
    if len(name.encode()) <= _MAX_NAME:
        return name
    return f"{hashlib.sha256(schema.encode()).hexdigest()[:32]}: {database}"


def _require_plugin(call: CallContext | None) -> None:
    """Raise `PermissionDenied` for statements of anybody else than a plugin on its own, such as a tool's."""
    if call is not None and call.principal.kind != "plugin":
        raise PermissionDenied(f"{call.principal} may not work on databases: stores of plugins do")


def _text(value: str) -> str:
    """Return a text that PostgreSQL has; of a NUL or a lone surrogate its code is written out."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def _value(value: Any) -> SqlValue:
    return int(value) if isinstance(value, Decimal | bool) else value
