"""Every permission that there is: not declared, declared, asked for by an upgrade, granted and revoked.

Each cell of the table is a real plugin in a real host that does what the permission is for. Rows that start processes
are in `real/test_permissions_of_scripts.py`.
"""

from __future__ import annotations

import pytest
from documentation.platform import all_permissions, hooks, service_permissions
from permission_checks import asked, granted_works_until_revoked, undeclared_is_not_had
from permission_rows import Row, rows
from permission_stage import Stage

from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.manifest import CLIENT_HOOKS
from tavern_host.contracts.ui import COMPONENTS, OUTLETS

EVERY = rows()
ROWS = [row for row in EVERY if not row.real]
ADDING = [row for row in ROWS if row.level == "add"]
each_permission = pytest.mark.parametrize("row", ROWS, ids=[row.names[0] for row in ROWS])


def test_every_permission_is_in_the_table() -> None:
    known = {
        *(info.permission for info in hooks().values() if info.permission != "services.override"),
        *CLIENT_HOOKS,
        *(f"ui.{kind}:{part}" for kind in ("wrap", "override") for part in COMPONENTS),
        *(f"ui.inject:{part}" for part in OUTLETS),
        *(f"services.use:{permission}" for permission in service_permissions()),
        *(permission.name for permission in all_permissions()),
    }
    tried = [(name, row.real) for row in EVERY for name in row.names]
    assert known - {name for name, _ in tried} == set(), "say in permission_rows.py how these can be tried"
    assert len(tried) == len(set(tried)) > 80


@each_permission
async def test_undeclared_permissions_are_not_had(row: Row, stage: Stage) -> None:
    await undeclared_is_not_had(row, stage)


@pytest.mark.parametrize("row", ADDING, ids=[row.names[0] for row in ADDING])
async def test_declared_permissions_that_add_are_had(row: Row, stage: Stage) -> None:
    stage.write(row.code, row.asks, row.besides, **row.manifest)
    async with stage.new_host():
        assert all(p.granted for p in asked(row, stage))
        assert stage.state == "started", stage.problems
        assert await row.tries(stage)
        with pytest.raises(Conflict, match="acme needs no grant: it only adds things"):
            await stage.host.revoke("acme")


@each_permission
async def test_granted_permissions_work_until_they_are_revoked(row: Row, stage: Stage) -> None:
    await granted_works_until_revoked(row, stage)
