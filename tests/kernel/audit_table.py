"""The table of an audit log as tests write into it and damage it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from helpers.audit_logs import tail, verify

from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditCheck, AuditLimits, UnnumberedEntry


class AuditTable:
    """The table of a log, which a test writes into and tampers with."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit" / "audit.sqlite3"
        self.anchor = folder / "state" / "audit.json"
        self.store = SqliteAuditStore(self.path, self.anchor)

    def append(self, *actions: str) -> None:
        assert self.store.append([entry(action) for action in actions]) is None

    def limit(self, **limits: int) -> None:
        """Continue with other limits; the entries of these tests are as old as the clock."""
        self.store.close()
        self.store = SqliteAuditStore(self.path, self.anchor, AuditLimits(**limits))

    def restart(self) -> None:
        """Continue as a new process would."""
        self.store.close()
        self.store = SqliteAuditStore(self.path, self.anchor)

    def verify(self) -> AuditCheck:
        return verify(self.path, self.anchor)

    def actions(self) -> list[str]:
        return [entry.action for entry in tail(self.path, 1000)]

    def execute(self, statements: str) -> None:
        """Tamper with the table, as anybody who can write the file."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executescript(statements)


def entry(action: str, **more: Any) -> UnnumberedEntry:
    fields = json.dumps({"actor": "user:operator", "action": action, **more}).encode()
    return "1970-01-01T00:00:00.000000+00:00", fields[1:]
