"""The tables of the run store, version by version, and how a database is brought to the newest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tavern_host.contracts.errors import Misconfigured

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True)
class Tables:
    """The database of a store: the name of its file, and the statements that lead from each version of its tables to
    the next. What was released is never changed."""

    file: str
    migrations: tuple[tuple[str, ...], ...]


_FIRST = (
    # `entry` is what is never changed after a run was accepted, `state` what every update replaces, both JSON. What is
    # asked for stands in columns of its own; `label` and `fault` are case-folded text to search in. Times are in
    # microseconds since 1970. Large columns come last, so that lists do not read them.
    """
    CREATE TABLE runs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        status TEXT NOT NULL,
        is_final INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        submitted INTEGER NOT NULL,
        started INTEGER,
        finished INTEGER,
        owner TEXT,
        lease_until INTEGER,
        size INTEGER NOT NULL,
        workflow_id TEXT,
        workflow_name TEXT,
        label TEXT NOT NULL,
        error TEXT,
        fault TEXT NOT NULL,
        not_resumable TEXT,
        entry BLOB NOT NULL,
        state BLOB NOT NULL
    )
    """,
    "CREATE INDEX runs_newest ON runs (submitted DESC, seq DESC)",
    "CREATE INDEX runs_by_status ON runs (status, submitted DESC, seq DESC)",
    "CREATE INDEX runs_by_workflow ON runs (workflow_id, submitted DESC, seq DESC)",
    "CREATE INDEX runs_open ON runs (priority DESC, submitted, seq) WHERE is_final = 0",
    "CREATE INDEX runs_ended ON runs (finished, seq) WHERE is_final = 1",
    """
    CREATE TABLE batches (
        seq INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
        content BLOB NOT NULL
    )
    """,
    "CREATE INDEX batches_of_run ON batches (run, seq)",
    # What is kept as files, by hash; `kept` is when it was put last.
    "CREATE TABLE contents (hash TEXT PRIMARY KEY, size INTEGER NOT NULL, kept INTEGER NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE uses (
        run INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
        hash TEXT NOT NULL REFERENCES contents (hash),
        PRIMARY KEY (run, hash)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX uses_of_content ON uses (hash)",
)

RUNS = Tables("runs.sqlite3", (_FIRST,))


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
