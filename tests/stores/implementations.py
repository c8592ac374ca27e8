"""The implementations of each store that the tests in this folder are about.

A further one is a further entry here: what opens it in a folder, as one host or process would. Opened twice in one
folder it is the same store. The tests know the interface in `tavern_host.contracts` and nothing else.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from helpers.postgres import shared_server

from tavern_engine.api.runs import RunStore
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store.schema import RUNS
from tavern_engine.journal.run_store.store import SqlRunStore
from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditStore
from tavern_host.storage.databases import SharedDatabase, SqlDatabase
from tavern_host.storage.sqlite import Schema
from tavern_postgres.sql_databases import PostgresDatabases
from tavern_tools.api.tasks import TaskStore
from tavern_tools.tasks.schema import TASKS
from tavern_tools.tasks.store import SqliteTaskStore
from tavern_workflows.api.workflow_history import WorkflowHistoryStore
from tavern_workflows.history import SqliteWorkflowHistory

LOG = logging.getLogger("test")


def _name(folder: Path) -> str:
    """Return the name of a folder's database, which no other folder has that is made under the same name later."""
    file = folder / "database"
    if not file.exists():
        file.write_text(secrets.token_hex(8))
    return file.read_text()


class _Opened(SharedDatabase):
    """A database that hosts share, as one of them has it: closed with its store."""

    def __init__(self, folder: Path, name: str, schema: Schema) -> None:
        self._databases = PostgresDatabases(shared_server(), f"stores {_name(folder)}", LOG)
        migrations = [[*statements] for statements in schema.migrations]
        super().__init__(self._databases, SqlDatabase(name=name, file="", migrations=migrations))

    async def close(self, last: Callable[[], None] | None = None) -> None:
        await super().close(last)
        await self._databases.close()


OpenAudit = Callable[[], AuditStore]
OpenRuns = Callable[[], AbstractAsyncContextManager[RunStore]]
OpenTasks = Callable[[str], TaskStore]
"""Opens the store as the host of this name."""
OpenHistory = Callable[[], WorkflowHistoryStore]

AUDIT_STORES: dict[str, Callable[[Path], AuditStore]] = {
    "sqlite": lambda folder: SqliteAuditStore(folder / "audit" / "audit.sqlite3", folder / "state" / "audit.json"),
}

TASK_STORES: dict[str, Callable[[Path, str], TaskStore]] = {
    "sqlite": lambda folder, host: SqliteTaskStore(folder / "tasks", host, LOG),
    "postgres": lambda folder, host: SqliteTaskStore(folder, host, LOG, _Opened(folder, "tasks", TASKS)),
}

WORKFLOW_HISTORIES: dict[str, Callable[[Path], WorkflowHistoryStore]] = {
    "sqlite": lambda folder: SqliteWorkflowHistory(folder / "workflows", LOG),
}


@asynccontextmanager
async def _runs(folder: Path, shared: SharedDatabase | None = None) -> AsyncIterator[RunStore]:
    store = SqlRunStore(folder / "runs", LOG, ProjectKey(folder / "operator"), shared)
    try:
        yield store
    finally:
        await store.close()


RUN_STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[RunStore]]] = {
    "sqlite": _runs,
    "postgres": lambda folder: _runs(folder, _Opened(folder, "runs", RUNS)),
}
