"""A project with a workflow, an audit log, and its table alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from audit_table import AuditTable

from tavern_host.audit.log import AuditLog


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project with one workflow, `tale`."""
    root = tmp_path / "project"
    (root / "workflows").mkdir(parents=True)
    (root / "tavern.yaml").write_text("name: stories\n")
    (root / "workflows" / "tale.json").write_text('{"name": "Tale", "nodes": [], "edges": []}')
    return root


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[AuditLog]:
    """Return an audit log that is not written yet."""
    log = AuditLog(tmp_path / "audit" / "audit.sqlite3", anchor=tmp_path / "state" / "audit.json")
    yield log
    await log.close()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[AuditTable]:
    """Return the table of an audit log that is not written yet."""
    table = AuditTable(tmp_path)
    yield table
    table.store.close()
