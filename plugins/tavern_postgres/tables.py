"""The tables in the database, version by version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

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

MIGRATIONS: tuple[tuple[str, ...], ...] = (_EVENTS, _HOSTS, _AUDIT)
"""The statements that bring the tables from one version to the next. None is changed once it was published."""


@dataclass(frozen=True)
class Tables:
    """The tables of a schema: their newest version, and the statements that bring them there from a version, 0 for
    none."""

    newest: int
    since: Callable[[int], Iterable[str]]


OWN = Tables(len(MIGRATIONS), lambda version: chain.from_iterable(MIGRATIONS[version:]))
