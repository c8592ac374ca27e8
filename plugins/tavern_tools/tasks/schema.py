"""The tables of the tasks, version by version.

What is written is flushed to the disk before it counts, since calls are made because of it; and what is forgotten is
overwritten, since results may hold what must not be read any more.
"""

from __future__ import annotations

from tavern_host.storage.sqlite import Schema

_FIRST = (
    # `entry`, `approval`, `result` and `callback` are JSON. `is_open`: the task has not ended, or its end is still to
    # be delivered to a callback. `changed` numbers all changes, `writer` is the host that made the latest. Times are in
    # microseconds since 1970. Large columns come last, so that lists do not read them.
    """
    CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        tool TEXT NOT NULL,
        principal TEXT NOT NULL,
        status TEXT NOT NULL,
        is_final INTEGER NOT NULL,
        is_open INTEGER NOT NULL,
        owner TEXT,
        attempt INTEGER NOT NULL,
        idempotent INTEGER NOT NULL,
        cancelled_by TEXT,
        created INTEGER NOT NULL,
        started INTEGER,
        finished INTEGER,
        due INTEGER,
        callback_due INTEGER,
        changed INTEGER NOT NULL,
        writer TEXT NOT NULL,
        is_audited INTEGER NOT NULL,
        progress REAL,
        progress_text TEXT,
        size INTEGER NOT NULL,
        approval BLOB,
        callback BLOB,
        entry BLOB NOT NULL,
        result BLOB
    )
    """,
    "CREATE INDEX tasks_by_status ON tasks (status, seq)",
    "CREATE INDEX tasks_open ON tasks (owner) WHERE is_open = 1",
    "CREATE INDEX tasks_ended ON tasks (finished, seq) WHERE is_open = 0",
    "CREATE INDEX tasks_unaudited ON tasks (writer) WHERE is_audited = 0",
    "CREATE INDEX tasks_changed ON tasks (changed)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO counters (name, value) VALUES ('changes', 0)",
)

TASKS = Schema("tasks.sqlite3", (_FIRST,), synchronous="FULL", secure_delete=True)
