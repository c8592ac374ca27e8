"""What keeps an audit log from being written."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator

from tavern_host.audit.log import AuditLog
from tavern_host.audit.store import SqliteAuditStore


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
