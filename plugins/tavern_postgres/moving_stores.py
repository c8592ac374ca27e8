"""Takes the tables of stores out of their files into the database: all of a store, or nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tavern_agents.api.histories import CHAT_HISTORY
from tavern_host import PluginContext
from tavern_host.contracts.errors import Conflict
from tavern_host.storage.databases import SharedDatabases, SqlDatabase, SqlValue
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import Schema, open_database
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tavern_postgres import State
from tavern_postgres.dialect import MOVED
from tavern_tools.api.toolcalls import TaskFilter
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_triggers.api.triggers import TRIGGER_MANAGER

_AT_ONCE = 500
"""How many rows are read and written at a time."""

_SEEDED = "counters"
"""A table that has rows from the beginning."""


@contextlib.contextmanager
def stopped(context: PluginContext) -> Iterator[None]:
    """Keep servers from the project within the block. Raises `Conflict` where one has it."""
    locks = ProcessLocks(context.operator_dir.parent.parent / "served")
    try:
        locks.hold("server")
    except Conflict:
        raise Conflict("the project is served: stop that first, so that nothing is written meanwhile") from None
    try:
        yield
    finally:
        locks.close()


async def move_stores(context: PluginContext) -> dict[str, int]:
    """Copy what each store has in a file; return how many rows, by store. Raises `Conflict` where the database has some
    of the store's already that were not moved."""
    await context.services.get(CHAT_HISTORY).list_histories(limit=1)  # opens the stores
    await context.services.get(TOOL_MANAGER).tasks(TaskFilter(limit=1))
    await context.services.get(KNOWLEDGE_BASE).bases()
    await context.services.get(TRIGGER_MANAGER).history(limit=1)
    databases = context.own(State).databases
    known = sorted(databases.files.items())
    return {name: await _moved(context, databases, database) for name, database in known if database.file}


async def _moved(context: PluginContext, target: SharedDatabases, database: SqlDatabase) -> int:
    file = Path(database.file)
    if not await asyncio.to_thread(file.exists):
        return 0
    if await asyncio.to_thread(file.is_dir):
        return await _moved_files(file, target, database)
    schema = Schema(file.name, tuple(tuple(statements) for statements in database.migrations))
    source, _ = await asyncio.to_thread(open_database, file.parent, schema, context.log)
    with contextlib.closing(source):
        transaction = await target.begin(database, writes=True)
        try:
            count = await _copied(source, target, transaction, database.name)
        except BaseException:
            await target.end(transaction, commit=False)
            raise
        await target.end(transaction, commit=True)
    return count


async def _moved_files(folder: Path, target: SharedDatabases, database: SqlDatabase) -> int:
    """Copy the files of a folder into the table `files`, which has name, stamp and content; return how many."""

    def read() -> list[list[SqlValue]]:
        paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
        return [[path.name, "moved", path.read_bytes()] for path in paths if path.suffix in (".json", ".png")]

    files = await asyncio.to_thread(read)
    transaction = await target.begin(database, writes=True)
    insert = "INSERT OR IGNORE INTO files (name, stamp, content) VALUES (?, ?, ?)"
    try:
        await target.execute(transaction, insert, files)
    except BaseException:
        await target.end(transaction, commit=False)
        raise
    await target.end(transaction, commit=True)
    return len(files)


async def _copied(source: sqlite3.Connection, target: SharedDatabases, transaction: str, name: str) -> int:
    async def ask(statement: str) -> list[list[SqlValue]]:
        return (await target.execute(transaction, statement, [[]])).rows

    if before := await ask(f"SELECT rows FROM {MOVED}"):
        return int(str(before[0][0]))
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    names, total = [table for (table,) in source.execute(tables)], 0
    for table in names:
        if table != _SEEDED and await ask(f"SELECT 1 FROM {table} LIMIT 1"):
            raise Conflict(
                f"the database has {name} of its own already, so those of the project were not moved: move them before"
                " a host uses the database"
            )
    for table in names:
        await ask(f"DELETE FROM {table}")
        found = source.execute(f"SELECT * FROM {table}")  # one may be larger than memory
        columns, count = [column for column, *_ in found.description], 0
        marks = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        texts = await _texts(target, transaction, table)
        while rows := await asyncio.to_thread(found.fetchmany, _AT_ONCE):
            values = [[_fitting(v, c in texts) for c, v in zip(columns, row, strict=True)] for row in rows]
            count += (await target.execute(transaction, insert, values)).count
        if identity := await ask(_identity(table)):
            column = str(identity[0][0])
            await ask(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), coalesce(max({column}), 0) + 1, false)"
                f" FROM {table}"
            )
        ((kept,),) = await ask(f"SELECT count(*) FROM {table}")
        if int(str(kept)) != count:
            raise Conflict(f"of {count} rows of the table {table} of {name} the database has {kept!r}; none was moved")
        total += count
    await target.execute(transaction, f"INSERT INTO {MOVED} (rows) VALUES (?)", [[total]])
    return total


def _identity(table: str) -> str:
    return (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        f" AND table_name = '{table}' AND is_identity = 'YES'"
    )


async def _texts(target: SharedDatabases, transaction: str, table: str) -> set[str]:
    """Return the columns of a table that hold texts; others hold bytes where SQLite may have a text."""
    asked = (
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        f" AND table_name = '{table}' AND data_type = 'text'"
    )
    return {str(column) for (column,) in (await target.execute(transaction, asked, [[]])).rows}


def _fitting(value: SqlValue, is_text: bool) -> SqlValue:
    """Return a value of SQLite, whose columns take any type, as one of the column's."""
    if is_text:
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return value.encode() if isinstance(value, str) else value
