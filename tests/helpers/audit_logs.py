"""Reads audit logs, and keeps them from being written."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from tavern_host.audit.log import AuditLog
from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditCheck, AuditEntry


@contextlib.contextmanager
def kept_locked(log: AuditLog) -> Iterator[None]:
    """Hold the lock of a log while the block runs, as another process can; the log waits 10 ms for it."""
    log.flush()
    assert isinstance(log.store, SqliteAuditStore)
    log.store._database.get().execute("PRAGMA busy_timeout = 10")
    with contextlib.closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def unwritable(log: AuditLog) -> Callable[[], None]:
    """Keep a log from being written; return what lets it be written again."""
    log.path.parent.parent.mkdir(exist_ok=True)
    log.path.parent.write_text("a file where the folder should be")
    return log.path.parent.unlink


def tail(path: Path, limit: int) -> list[AuditEntry]:
    """Return the newest entries of the log at a path."""
    return SqliteAuditStore(path, None).tail(limit)


def read_after(path: Path, seq: int, limit: int = 1000) -> list[AuditEntry]:
    """Return the entries after a number of the log at a path."""
    return SqliteAuditStore(path, None).read_after(seq, limit)


def verify(path: Path, anchor: Path | None = None) -> AuditCheck:
    """Say whether the log at a path is as it was written."""
    return SqliteAuditStore(path, anchor).verify()
