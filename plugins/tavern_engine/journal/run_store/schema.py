"""The tables of the run store, version by version."""

from __future__ import annotations

from tavern_host.storage.sqlite import Schema

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
    # What is kept apart, by hash; `kept` is when it was put last.
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

# Shows of a run that is not finished that it was accepted, or resumed, here: see `ProjectKey`.
_SECOND = ("ALTER TABLE runs ADD COLUMN seal BLOB",)

# Small contents: a file for each would cost more than all else that is written of a run.
_THIRD = (
    "CREATE TABLE bodies (hash TEXT PRIMARY KEY REFERENCES contents (hash) ON DELETE CASCADE, body BLOB NOT NULL)"
    " WITHOUT ROWID",
)

_FOURTH = ("ALTER TABLE runs ADD COLUMN is_unwanted INTEGER NOT NULL DEFAULT 0",)

_FIFTH = ("ALTER TABLE runs ADD COLUMN waits INTEGER NOT NULL DEFAULT 0",)

RUNS = Schema("runs.sqlite3", (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH))
