"""Runs the tests of each kind of store with SQLite, and in files `…_on_postgres.py` with PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from implementations import (
    AUDIT_STORES,
    RUN_STORES,
    TASK_STORES,
    WORKFLOW_HISTORIES,
    OpenAudit,
    OpenHistory,
    OpenRuns,
    OpenTasks,
)

from tavern_host import clock


def _kind(request: pytest.FixtureRequest) -> str:
    return "postgres" if request.module.__name__.endswith("_on_postgres") else "sqlite"


@pytest.fixture
def open_audit(request: pytest.FixtureRequest, tmp_path: Path) -> OpenAudit:
    """Return the function that opens a store of audit entries, always the same."""
    return lambda: AUDIT_STORES[_kind(request)](tmp_path)


@pytest.fixture
def open_tasks(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTasks:
    """Return the function that opens a store of tasks, always the same, as a host."""
    return lambda host: TASK_STORES[_kind(request)](tmp_path, host)


@pytest.fixture
def open_runs(request: pytest.FixtureRequest, tmp_path: Path) -> OpenRuns:
    """Return the function that opens a store of runs, always the same."""
    return lambda: RUN_STORES[_kind(request)](tmp_path)


@pytest.fixture
def open_history(request: pytest.FixtureRequest, tmp_path: Path) -> OpenHistory:
    """Return the function that opens a store of histories of workflows, always the same."""
    return lambda: WORKFLOW_HISTORIES[_kind(request)](tmp_path)


@pytest.fixture
def put_clock_forward(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return the function that lets so many seconds pass for the host, whether the test holds its time or not."""
    used = clock.use(clock.Clock())
    clock.use(used)
    now = used.time_ns
    return lambda seconds: monkeypatch.setattr(used, "time_ns", lambda: now() + int(seconds * 1e9))
