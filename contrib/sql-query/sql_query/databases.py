"""Opens databases so that nothing can be written through the connection, whatever the SQL says. All of it blocks."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import quote

from tavern_host import InvalidInput, NotFound

SQLITE_SCHEMA = """
SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c
WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY m.name, c.cid"""
POSTGRES_SCHEMA = """
SELECT table_schema || '.' || table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, ordinal_position"""

SUPERUSER = "SELECT bool_or(rolsuper) FROM pg_roles WHERE pg_has_role(oid, 'MEMBER')"  # who may become one is one
_LARGEST_VALUE = 1_000_000  # bytes
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_SUFFIXES = {".db", ".sqlite", ".sqlite3"}

Columns = list[str]
Rows = Iterable[Sequence[Any]]


def sqlite_file(name: str, folders: Sequence[Path]) -> Path:
    """Return the file that `name` means in one of the folders; links may not lead out of it. Raises `NotFound`."""
    for folder in folders:
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()) and path.is_file():
            return path
    there = sorted({str(path.relative_to(folder)) for folder in folders for path in _databases(folder)})
    raise NotFound(f"there is no database {name!r} (there is {', '.join(there[:20]) or 'none'})")


@contextmanager
def sqlite_rows(path: Path, sql: str, parameters: Sequence[Any], seconds: float) -> Iterator[tuple[Columns, Rows]]:
    """Give the columns and rows of one SELECT. Raises `InvalidInput` for any other statement."""
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        if sql is not SQLITE_SCHEMA:  # which asks a pragma for columns
            connection.set_authorizer(_authorize)
        with _deadline(seconds, connection.interrupt):
            cursor = connection.execute(sql, parameters)
            if cursor.description is None:
                raise InvalidInput("only a SELECT gives rows")
            yield [column[0] for column in cursor.description], cursor
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _refused(error, seconds, interrupted="interrupted" in str(error)) from None
    finally:
        connection.close()


@contextmanager
def postgres_rows(dsn: str, sql: str, parameters: Sequence[Any], seconds: float) -> Iterator[tuple[Columns, Rows]]:
    """Give the columns and rows of one SELECT, which runs as a cursor in a transaction that can only read."""
    try:
        import psycopg
    except ImportError:
        raise InvalidInput("PostgreSQL needs its driver: pip install 'psycopg[binary]'") from None
    options = f"-c default_transaction_read_only=on -c statement_timeout={math.ceil(seconds * 1000)}"
    try:
        with psycopg.connect(dsn, options=options, connect_timeout=math.ceil(seconds)) as connection:
            if connection.execute(SUPERUSER).fetchone() != (False,):
                raise InvalidInput("a superuser reaches files and programs of the server: name another user in the dsn")
            # A cursor takes one SELECT alone: no second statement, and no WITH that changes something.
            with _deadline(seconds, connection.cancel), connection.cursor("query") as cursor:
                cursor.itersize = 50
                cursor.execute(sql.encode(), parameters or None)
                yield [column.name for column in cursor.description or ()], cursor
            connection.rollback()  # large objects and notifications, which older servers let a reader make
    except psycopg.Error as error:
        raise _refused(error, seconds, interrupted=isinstance(error, psycopg.errors.QueryCanceled)) from None


def bounded(rows: Rows, most: int, size: int) -> tuple[list[list[Any]], bool]:
    """Return rows as JSON, at most so many with so many characters in all, and whether that was all of them."""
    found: list[list[Any]] = []
    for row in rows:
        values = [_json_value(value) for value in row]
        size -= sum(len(str(value)) for value in values)
        if len(found) == most or size < 0:
            return found, False
        found.append(values)
    return found, True


def _authorize(action: int, _first: str | None, second: str | None, *_: object) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in ("load_extension", "fts3_tokenizer"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _databases(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in _SUFFIXES] if folder.is_dir() else []


@contextmanager
def _deadline(seconds: float, stop: Any) -> Iterator[None]:
    timer = Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _refused(error: Exception, seconds: float, *, interrupted: bool) -> InvalidInput:
    if interrupted:
        return InvalidInput(f"the query took more than {seconds:g} s")
    return InvalidInput(f"the database refused it: {str(error).strip()}")


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)
