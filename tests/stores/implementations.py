"""The implementations of each store that the tests in this folder are about.

A further one is a further entry here: what opens it in a folder, as one host or process would. Opened twice in one
folder it is the same store. The tests know the interface in `tavern_host.contracts` and nothing else.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path

import pytest
from helpers.postgres import postgres_server, programs

from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store.store import SqliteRunStore
from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import AuditStore
from tavern_host.contracts.runs import RunStore
from tavern_host.contracts.tasks import TaskStore
from tavern_host.contracts.workflow_history import WorkflowHistoryStore
from tavern_postgres.database import Database
from tavern_postgres.runs import PostgresRunStore
from tavern_tools.tasks.store import SqliteTaskStore
from tavern_workflows.history import SqliteWorkflowHistory

LOG = logging.getLogger("test")

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
}

WORKFLOW_HISTORIES: dict[str, Callable[[Path], WorkflowHistoryStore]] = {
    "sqlite": lambda folder: SqliteWorkflowHistory(folder / "workflows", LOG),
}


@asynccontextmanager
async def _sqlite_runs(folder: Path) -> AsyncIterator[RunStore]:
    store = SqliteRunStore(folder / "runs", LOG, ProjectKey(folder / "operator"))
    try:
        yield store
    finally:
        await store.close()


@cache
def postgres() -> str:
    """Return the address of a PostgreSQL server that is there until the tests of this process end."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    server = ExitStack()
    atexit.register(server.close)
    return server.enter_context(postgres_server())


@asynccontextmanager
async def _postgres_runs(folder: Path) -> AsyncIterator[RunStore]:
    store = PostgresRunStore(Database(postgres(), f"runs {folder}", LOG))
    try:
        yield store
    finally:
        await store.close()


RUN_STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[RunStore]]] = {
    "sqlite": _sqlite_runs,
    "postgres": _postgres_runs,
}
