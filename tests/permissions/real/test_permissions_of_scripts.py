"""The rows of the table of permissions for which processes are started: those of scripts."""

from __future__ import annotations

import pytest
from permission_checks import granted_works_until_revoked, undeclared_is_not_had
from permission_rows import Row, rows
from permission_stage import Stage

ROWS = [row for row in rows() if row.real]
each_permission = pytest.mark.parametrize("row", ROWS, ids=[row.names[0] for row in ROWS])


@each_permission
async def test_undeclared_permissions_of_scripts_are_not_had(row: Row, stage: Stage) -> None:
    await undeclared_is_not_had(row, stage)


@each_permission
async def test_granted_permissions_of_scripts_work_until_they_are_revoked(row: Row, stage: Stage) -> None:
    await granted_works_until_revoked(row, stage)
