"""The tables of a SQLite database, version by version, and how a database is brought to the newest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tavern_host.contracts.errors import Misconfigured

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True)
class Tables:
    """The database of a store: the name of its file, and the statements that lead from each version of its tables to
    the next. What was released is never changed.

    With `synchronous` NORMAL, what was written survives the end of the process, with FULL that of the machine too. With
    `overwrites`, nothing is left in the file of what was deleted.
    """

    file: str
    migrations: tuple[tuple[str, ...], ...]
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    overwrites: bool = False


def upgrade(connection: sqlite3.Connection, tables: Tables, name: str) -> None:
    """Bring a database to the newest version, in one transaction. Raises `Misconfigured` for one that is newer."""
    newest = len(tables.migrations)
    if _is_newest(connection, newest, name):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_newest(connection, newest, name):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            for statement in (s for step in tables.migrations[version:] for s in step):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_newest(connection: sqlite3.Connection, newest: int, name: str) -> bool:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= newest:
        raise Misconfigured(
            f"{name} was written by another version of the program (its tables are of version {version}, this one"
            f" knows up to {newest}): use that version, or move the file away to begin a new one"
        )
    return version == newest
