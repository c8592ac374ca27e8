"""What a host has of its PostgreSQL database: a connection to write, one to read, and one that holds its names.

psycopg is imported when a database is first connected to.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tavern_host import PluginContext
from tavern_host.contracts.errors import Conflict, Misconfigured, ServiceUnavailable
from tavern_postgres.tables import OWN, Tables

if TYPE_CHECKING:
    import psycopg

NO_DRIVER = "a PostgreSQL database is set up, but its driver is missing: pip install 'tavern-host[postgres]'"

CHANNEL = "tavern_events"
"""Where hosts tell each other what is new: `[schema, host, first, last]` of those in the table, or
`[schema, null, type, payload]`."""

SEPARATOR = "\n"
"""Between what a name is of and the name itself."""

_CONNECT_SECONDS = 10

Row = tuple[Any, ...]


class Connection:
    """One connection, used by one caller at a time, in the order in which they came; it is made when it is needed, and
    again when it was lost."""

    def __init__(self, url: str, schema: str, log: logging.Logger, *, name: str, tables: Tables = OWN) -> None:
        self._tables = tables
        self._url = url
        self._schema = schema
        self._log = log
        self._name = name
        self._lock = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[Row] | None = None
        self._is_lost = False
        self._again_at: float | None = None

    def is_back(self, seconds: float) -> bool:
        """Return whether the database could not be reached, and answers again since so many seconds at most."""
        return self._again_at is not None and asyncio.get_running_loop().time() - self._again_at < seconds

    async def rows(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """Execute one statement in a transaction of its own; return its rows."""
        async with self.cursor() as cursor:
            await cursor.execute(statement.encode(), values)
            return await cursor.fetchall() if cursor.description is not None else []

    async def read(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[Row]:
        """Return the rows of a statement that only reads, by another connection where the first was lost meanwhile."""
        try:
            return await self.rows(statement, values)
        except ServiceUnavailable:
            return await self.rows(statement, values)

    @asynccontextmanager
    async def cursor(self, *, transaction: bool = False) -> AsyncIterator[psycopg.AsyncCursor[Row]]:
        """Give a cursor, alone; each statement is a transaction, or all together are one.

        Raises `ServiceUnavailable` where the database cannot be reached, `Misconfigured` where it cannot be used.
        """
        async with self._lock:
            connection = await self._opened()
            import psycopg

            try:
                if transaction:
                    async with connection.transaction(), connection.cursor() as cursor:
                        yield cursor
                else:
                    async with connection.cursor() as cursor:
                        yield cursor
            except psycopg.OperationalError as error:
                if connection.closed:
                    await self._drop()
                raise ServiceUnavailable(f"the PostgreSQL database does not answer: {one_line(error)}") from None
            except psycopg.errors.InsufficientPrivilege as error:
                raise self._not_allowed(error) from None
            except BaseException:
                if connection.info.transaction_status.name != "IDLE":  # cancelled within a statement
                    await self._drop()
                raise

    async def listen(self, channel: str) -> AsyncGenerator[str | None, None]:
        """Give None, then what is notified in a channel from then on, until the connection is lost; nothing else can
        use it then.

        Raises `ServiceUnavailable` where the database cannot be reached.
        """
        async with self._lock:
            connection = await self._opened()
            import psycopg

            try:
                await connection.execute(b"LISTEN " + channel.encode())
                yield None
                async for told in connection.notifies():
                    yield told.payload
            except psycopg.OperationalError as error:
                raise ServiceUnavailable(f"the PostgreSQL database does not answer: {one_line(error)}") from None
            finally:
                await self._drop()

    async def close(self) -> None:
        """Close the connection; another use would open it again."""
        async with self._lock:
            await self._drop()

    async def _drop(self) -> None:
        if self._connection is not None:
            self._is_lost = self._is_lost or self._connection.broken
            await self._connection.close()
        self._connection = None

    async def _opened(self) -> psycopg.AsyncConnection[Row]:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        await self._drop()
        try:
            await asyncio.to_thread(importlib.import_module, "psycopg")  # takes longer than the loop may be held
        except ImportError as error:
            raise Misconfigured(f"{NO_DRIVER} ({error})") from None
        import psycopg
        from psycopg import sql

        try:
            connection = await psycopg.AsyncConnection.connect(
                self._url,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                application_name=f"tavern-host: {self._name}",
            )
        except psycopg.OperationalError as error:
            self._is_lost = True
            raise ServiceUnavailable(f"the PostgreSQL database cannot be reached: {one_line(error)}") from None
        except psycopg.ProgrammingError as error:
            example = "such as postgresql://tavern@db.example/tavern"
            problem = f"extensions.tavern-postgres.url is no address of a database, {example}: {one_line(error)}"
            raise Misconfigured(problem) from None
        try:
            await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
            await self._migrate(connection)
        except psycopg.OperationalError as error:
            await connection.close()
            raise ServiceUnavailable(f"the PostgreSQL database does not answer: {one_line(error)}") from None
        except psycopg.errors.InsufficientPrivilege as error:
            await connection.close()
            raise self._not_allowed(error) from None
        except psycopg.ProgrammingError as error:  # such as no column of this name
            await connection.close()
            problem = f"the tables in the schema {self._schema!r} are not those of tavern-host: {one_line(error)}"
            raise Misconfigured(f"{problem}; name another one in extensions.tavern-postgres.schema") from None
        except BaseException:
            await connection.close()
            raise
        if self._is_lost:
            self._is_lost, self._again_at = False, asyncio.get_running_loop().time()
        self._connection = connection
        return connection

    def _not_allowed(self, error: Exception) -> Misconfigured:
        """Return the error, with its mend, for a role that may not use the schema."""
        return Misconfigured(
            f"the role in extensions.tavern-postgres.url may not use the schema {self._schema!r}: {one_line(error)};"
            " let it create schemas in the database, or be the owner of this one"
        )

    async def _migrate(self, connection: psycopg.AsyncConnection[Row]) -> None:
        """Bring the tables to this version, one host at a time. Raises `Misconfigured` for those of a newer one."""
        from psycopg import sql

        newest = self._tables.newest
        found = await (await connection.execute("SELECT to_regclass('versions')")).fetchone()
        if found is not None and found[0] is not None:
            done = await (await connection.execute("SELECT max(version) FROM versions")).fetchone()
            if done is not None and done[0] == newest:
                return
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(self._schema, "\0migration"),))
            await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS versions (version integer PRIMARY KEY, made timestamptz DEFAULT now())"
            )
            row = await (await connection.execute("SELECT coalesce(max(version), 0) FROM versions")).fetchone()
            version = row[0] if row is not None else 0
            if version > newest:
                raise Misconfigured(
                    f"the schema {self._schema!r} of the PostgreSQL database was written by a newer version of"
                    f" tavern-host (its tables are of version {version}, known is {newest})"
                )
            if version < newest:
                for statement in self._tables.since(version):
                    await connection.execute(statement.encode())
                await connection.execute("INSERT INTO versions (version) VALUES (%s)", (newest,))
                self._log.info("the schema %s of the PostgreSQL database is of version %d now", self._schema, newest)


class Database:
    """The three connections of one store, and the names that it holds."""

    def __init__(self, url: str, schema: str, log: logging.Logger) -> None:
        self._schema = schema
        self.writer = Connection(url, schema, log, name="writing")
        self.reader = Connection(url, schema, log, name="reading")
        self._names = Connection(url, schema, log, name="names")
        self._held: dict[str, int] = {}

    async def hold(self, name: str) -> int:
        """Hold the name of a worker for as long as this process is connected; return its key in `pg_locks`.

        Raises `Conflict` where another process has it.
        """
        if name in self._held:
            return self._held[name]
        key = lock_key(self._schema, name)
        if await self._names.rows("SELECT pg_try_advisory_lock(%s)", (key,)) != [(True,)]:
            raise Conflict(f"another process works under the name {name.rpartition(SEPARATOR)[2]!r}")
        self._held[name] = key
        return key

    @property
    def names(self) -> list[str]:
        """The names that are held."""
        return [*self._held]

    async def give_up(self, names: Sequence[str]) -> None:
        """Hold some names no longer."""
        for name in names:
            if (key := self._held.pop(name, None)) is not None:
                await self._names.rows("SELECT pg_advisory_unlock(%s)", (key,))

    async def keep_names(self) -> None:
        """Take the names again if the connection that held them was lost."""
        for key in self._held.values():
            held = f"SELECT 1 WHERE {HELD.format(key='%(key)s')}"
            if not await self._names.rows(held, {"key": key}):
                await self._names.rows("SELECT pg_try_advisory_lock(%s)", (key,))

    async def close(self) -> None:
        """Close the connections, and give the names up with them."""
        for connection in (self.writer, self.reader, self._names):
            await connection.close()
        self._held.clear()


HELD = (
    "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32) | objid::bigint = {key})"
)
"""Whether some process holds the name with this key."""


def address(context: PluginContext) -> tuple[str, str]:
    """Return the address of the database that the operator named, and the schema of this host in it."""
    return str(context.settings.get("url") or ""), str(context.settings.get("schema") or "tavern")


def one_line(error: Exception) -> str:
    """Return the driver's message, which may have several lines, as one."""
    return " ".join(str(error).split())


def lock_key(schema: str, name: str) -> int:
    """Return the key of an advisory lock for a name in a schema, 64 bits with a sign."""
    digest = hashlib.sha256(f"{schema}\0{name}".encode("utf-8", "backslashreplace")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
