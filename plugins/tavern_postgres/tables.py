"""The tables in the database, version by version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

_RUNS = (
    # `entry` is what is never changed after a run was accepted, `state` what every update replaces, both JSON as
    # bytes: a text of PostgreSQL has neither NUL nor lone surrogates. What is asked for stands in columns of its own;
    # `label` and `fault` are case-folded texts to search in. `owner_key` is the advisory lock of the owner, who
    # claimed or renewed at `renewed`.
    """
    CREATE TABLE runs (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text NOT NULL UNIQUE,
        status text NOT NULL,
        is_final boolean NOT NULL,
        priority bigint NOT NULL,
        attempt integer NOT NULL,
        submitted timestamptz NOT NULL,
        started timestamptz,
        finished timestamptz,
        owner text,
        owner_key bigint,
        lease_until timestamptz,
        renewed timestamptz,
        size bigint NOT NULL,
        workflow_id text,
        workflow_name text,
        label text NOT NULL,
        error text,
        fault text NOT NULL,
        not_resumable text,
        entry bytea NOT NULL,
        state bytea NOT NULL
    )
    """,
    "CREATE INDEX runs_newest ON runs (submitted DESC, seq DESC)",
    "CREATE INDEX runs_by_status ON runs (status, submitted DESC, seq DESC)",
    "CREATE INDEX runs_by_workflow ON runs (workflow_id, submitted DESC, seq DESC)",
    "CREATE INDEX runs_open ON runs (priority DESC, submitted, seq) WHERE NOT is_final",
    "CREATE INDEX runs_ended ON runs (finished, seq) WHERE is_final",
    """
    CREATE TABLE batches (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        run bigint NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
        content bytea NOT NULL
    )
    """,
    "CREATE INDEX batches_of_run ON batches (run, seq)",
    # What is kept apart, by hash; `kept` is when it was put last.
    "CREATE TABLE contents (hash text PRIMARY KEY, body bytea NOT NULL, kept timestamptz NOT NULL)",
    """
    CREATE TABLE uses (
        run bigint NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
        hash text NOT NULL REFERENCES contents (hash),
        PRIMARY KEY (run, hash)
    )
    """,
    "CREATE INDEX uses_of_content ON uses (hash)",
)

_EVENTS = (
    # Read at once or never: a server that crashes may lose them.
    """
    CREATE UNLOGGED TABLE events (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        host text NOT NULL,
        made timestamptz NOT NULL DEFAULT clock_timestamp(),
        type text NOT NULL,
        payload bytea NOT NULL
    )
    """,
    "CREATE INDEX events_of_host ON events (host, made)",
)

_UNWANTED = ("ALTER TABLE runs ADD COLUMN is_unwanted boolean NOT NULL DEFAULT false",)

_HOSTS = (
    # Who said last when that it is alive; the name is also an advisory lock of its connection.
    "CREATE TABLE hosts (name text PRIMARY KEY, key bigint NOT NULL, seen timestamptz NOT NULL)",
)

_AUDIT = (
    # Copies of the entries of hosts' audit logs; `body` is JSON.
    """
    CREATE TABLE audit (
        host text NOT NULL,
        seq bigint NOT NULL,
        made timestamptz NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (host, seq)
    )
    """,
    "CREATE INDEX audit_newest ON audit (made DESC)",
)

_WAITING = ("ALTER TABLE runs ADD COLUMN waits boolean NOT NULL DEFAULT false",)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_RUNS, _EVENTS, _UNWANTED, _HOSTS, _AUDIT, _WAITING)
"""The statements that bring the tables from one version to the next. None is changed once it was published."""


@dataclass(frozen=True)
class Tables:
    """The tables of a schema: their newest version, and the statements that bring them there from a version, 0 for
    none."""

    newest: int
    since: Callable[[int], Iterable[str]]


OWN = Tables(len(MIGRATIONS), lambda version: chain.from_iterable(MIGRATIONS[version:]))
