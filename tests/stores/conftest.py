"""Runs the tests of each kind of store with every implementation."""

from __future__ import annotations

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


@pytest.fixture(params=AUDIT_STORES)
def open_audit(request: pytest.FixtureRequest, tmp_path: Path) -> OpenAudit:
    """Return what opens a store of audit entries, always the same."""
    return lambda: AUDIT_STORES[request.param](tmp_path)


@pytest.fixture(params=TASK_STORES)
def open_tasks(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTasks:
    """Return what opens a store of tasks, always the same, as a host."""
    return lambda host: TASK_STORES[request.param](tmp_path, host)


@pytest.fixture(params=RUN_STORES)
def open_runs(request: pytest.FixtureRequest, tmp_path: Path) -> OpenRuns:
    """Return what opens a store of runs, always the same."""
    return lambda: RUN_STORES[request.param](tmp_path)


@pytest.fixture(params=WORKFLOW_HISTORIES)
def open_history(request: pytest.FixtureRequest, tmp_path: Path) -> OpenHistory:
    """Return what opens a store of histories of workflows, always the same."""
    return lambda: WORKFLOW_HISTORIES[request.param](tmp_path)
