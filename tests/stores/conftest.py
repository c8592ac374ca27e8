"""Runs the tests of each kind of store with every implementation."""

from __future__ import annotations

from pathlib import Path

import pytest
from implementations import AUDIT_STORES, TASK_STORES, OpenAudit, OpenTasks


@pytest.fixture(params=AUDIT_STORES)
def open_audit(request: pytest.FixtureRequest, tmp_path: Path) -> OpenAudit:
    """Return what opens a store of audit entries, always the same."""
    return lambda: AUDIT_STORES[request.param](tmp_path)


@pytest.fixture(params=TASK_STORES)
def open_tasks(request: pytest.FixtureRequest, tmp_path: Path) -> OpenTasks:
    """Return what opens a store of tasks, always the same, as a host."""
    return lambda host: TASK_STORES[request.param](tmp_path, host)
