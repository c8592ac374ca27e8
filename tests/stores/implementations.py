"""The implementations of each store that the tests in this folder are about.

A further one is a further entry here: what opens it in a folder, as one host or process would. Opened twice in one
folder it is the same store. The tests know the interface in `tavern_host.contracts` and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditStore

LOG = logging.getLogger("test")

OpenAudit = Callable[[], AuditStore]

AUDIT_STORES: dict[str, Callable[[Path], AuditStore]] = {
    "sqlite": lambda folder: SqliteAuditStore(folder / "audit" / "audit.sqlite3", folder / "state" / "audit.json"),
}
