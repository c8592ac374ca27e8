"""Moves damaged SQLite databases aside, and copies what can be read of one into its successor.

A damaged file keeps a name of its own until its rows are copied, so that a process that is killed meanwhile loses none.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import operator
import os
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from tavern_host import clock

OPENING = ".opening.lock"
"""The file in a database's folder that is locked while one is opened, or moved aside."""
moved_aside: list[Path] = []
"""The files that this process has moved aside, for those who say how it is."""
_UNREAD = ".unread"
_SIDES = ("-wal", "-shm")
_KEY = operator.itemgetter(5)
"""The place of a column in the primary key, from 1; 0 for others."""


Identity = tuple[int, int]
"""Which file a path leads to: device and inode."""


class Corrupt(sqlite3.DatabaseError):
    """The content of a database is none that this program wrote; it is handled as a corrupt file."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


def is_corruption(error: BaseException) -> bool:
    """Return whether an error says that the file is no sound database."""
    return isinstance(error, sqlite3.Error) and code_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def code_of(error: sqlite3.Error) -> int | None:
    """Return the primary result code; errors that Python's own module raises have none."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def identity_of(path: Path) -> Identity | None:
    """Return which file a path leads to, or None where there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def move_aside(path: Path, error: Exception, log: logging.Logger, *, is_read: bool = False) -> None:
    """Rename a database with its journal, and put an empty file in its place; nothing of it is copied with `is_read`.

    The database is the last, so that a new one never meets the old one's journal.
    """
    moment = clock.now().strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.damaged-{moment}-{uuid.uuid4().hex[:4]}")
    rename_database(path, aside if is_read else aside.with_name(aside.name + _UNREAD))
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    moved_aside.append(aside)
    log.error("%s is damaged (%s): it is kept as %s, and a new one is begun", path, error, aside.name)


def is_kept(aside: Path) -> bool:
    """Return whether a file that was moved aside is still there, its rows copied or not."""
    return aside.exists() or aside.with_name(aside.name + _UNREAD).exists()


def unread(path: Path) -> list[Path]:
    """Return the files that were moved aside from a path and whose rows were not copied yet, the newest last."""
    return sorted(path.parent.glob(f"{path.name}.damaged-*{_UNREAD}"))


def mark_read(path: Path) -> None:
    """Give the files that were moved aside from a path their last names, since their rows are copied."""
    for aside in unread(path):
        rename_database(aside, aside.with_name(aside.name.removesuffix(_UNREAD)), ("", *_SIDES))


def rename_database(path: Path, new: Path, sides: Sequence[str] = (*_SIDES, "")) -> None:
    """Rename a database with its journal, the database last unless `sides` says otherwise."""
    for side in sides:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + side).replace(new.with_name(new.name + side))


def rescue(source: sqlite3.Connection, new: sqlite3.Connection, migrations: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Create the tables that a damaged database had, in the transaction of a new one, and copy the rows that can be
    read. Return the version of the tables, and how many rows there are. Raises `sqlite3.Error` for the new one."""
    version = len(migrations)
    with contextlib.suppress(sqlite3.Error):
        version = source.execute("PRAGMA user_version").fetchone()[0] or version
    for statement in itertools.chain(*migrations[:version]):
        new.execute(statement)
    new.execute("PRAGMA defer_foreign_keys = ON")
    found = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    tables = dict(new.execute(found).fetchall())
    for table, statement in tables.items():
        described = new.execute(f'PRAGMA table_info("{table}")').fetchall()
        columns = [f"[{row[1]}]" for row in described]
        key = [f"[{row[1]}]" for row in sorted(described, key=_KEY) if _KEY(row)]
        if not statement.rstrip().endswith("WITHOUT ROWID"):
            columns, key = ["rowid", *columns], []
        into = f'INSERT OR IGNORE INTO "{table}" ({", ".join(columns)}) VALUES ({", ".join("?" * len(columns))})'
        new.executemany(into, _rows(source, f'SELECT {", ".join(columns)} FROM "{table}"', key))
    for table in [*tables] * len(tables):  # one that lost its parent may be a parent itself
        for _, _, parent, column, referred, *_ in new.execute(f'PRAGMA foreign_key_list("{table}")').fetchall():
            referred = f"SELECT [{referred or 'rowid'}] FROM [{parent}]"
            new.execute(f'DELETE FROM "{table}" WHERE [{column}] NOT IN ({referred})')
    return version, sum(new.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in tables)


def _rows(source: sqlite3.Connection, select: str, key: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Read a table from both ends, some rows twice. One with row ids (without a `key`) is read behind damaged places
    too, in growing steps: what one direction steps over is read by the other."""
    is_whole = True
    for sign, direction, compare, at in ((1, "ASC", ">=", 0), (-1, "DESC", "<=", 2**62)):
        order = ", ".join(f"{column} {direction}" for column in key or ["rowid"])
        step = 1
        while abs(at) <= 2**62:
            where = "" if key else f"NOT INDEXED WHERE rowid {compare} {at}"
            try:
                for row in source.execute(f"{select} {where} ORDER BY {order}"):
                    yield row
                    at, step = at if key else row[0] + sign, 1
                if is_whole:
                    return
                break
            except (sqlite3.Error, MemoryError):
                is_whole = False
                at, step = 2**63 if key else at + sign * step, step * 2
