"""Every permission that there is: not declared, declared, asked for by an upgrade, granted and revoked.

Each cell of the table is a real plugin in a real host that does what the permission is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from permission_rows import Row, rows
from permission_stage import Stage

from tavern_host.contracts.catalogue import service_permissions
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.hook_names import CLIENT_HOOKS
from tavern_host.contracts.plugins import PermissionInfo
from tavern_host.contracts.ui import COMPONENTS, OUTLETS
from tavern_host.hookspecs import hooks
from tavern_host.plugins.permissions import all_permissions

ROWS = rows()
ADDING = [row for row in ROWS if row.level == "add"]
each_permission = pytest.mark.parametrize("row", ROWS, ids=[row.names[0] for row in ROWS])

BALLAST = "hook:client:node:render:after"
OTHER_BALLAST = "hook:server:workflow:before-execute"
"""Permissions that need a grant and do nothing here; what a version before the upgrade asks for."""


@pytest.fixture
def stage(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return where the row's plugin is tried."""
    made = Stage(tmp_path, is_folder=row.is_folder, without=row.without)
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield made
    made.forget()


def ballast(row: Row) -> str:
    return OTHER_BALLAST if BALLAST in row.names else BALLAST


def missing(stage: Stage) -> list[str]:
    """Return the permissions that the plugin asks for and does not have."""
    return [p.name for p in stage.info.permissions if not p.granted]


def are(row: Row, found: list[str]) -> bool:
    """Return whether these are the row's permissions and no other; that of code has a hash at its end."""
    return len(found) == len(row.names) and all(name.startswith(row.names) for name in found)


def asked(row: Row, stage: Stage) -> list[PermissionInfo]:
    """Return the row's permissions as the plugin asks for them."""
    found = [p for p in stage.info.permissions if p.name.startswith(row.names)]
    assert are(row, [p.name for p in found])
    assert {p.level for p in found} == {row.level}
    assert all(p.description.endswith(".") for p in found)
    return found


def test_every_permission_is_in_the_table() -> None:
    known = {
        *(info.permission for info in hooks().values() if info.permission != "services.override"),
        *CLIENT_HOOKS,
        *(f"ui.{kind}:{part}" for kind in ("wrap", "override") for part in COMPONENTS),
        *(f"ui.inject:{part}" for part in OUTLETS),
        *(f"services.use:{permission}" for permission in service_permissions()),
        *(permission.name for permission in all_permissions()),
    }
    tried = [name for row in ROWS for name in row.names]
    assert known - set(tried) == set(), "say in permission_rows.py how these can be tried"
    assert len(tried) == len(set(tried)) > 80


@each_permission
async def test_undeclared_permissions_are_not_had(row: Row, stage: Stage) -> None:
    stage.write(None if row.is_folder else row.code, row.besides, **row.manifest)
    async with stage.new_host(trusted=True):
        assert stage.state == ("failed" if row.refused else "started")
        assert [text for text in row.refused if text not in stage.problems] == []
        assert not {*row.names} & {p.name for p in stage.info.permissions}
        assert not await row.tries(stage)


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
    if row not in ADDING:
        stage.write(row.code, row.asks, row.besides, **row.manifest)
        stage.new_host().link()
        assert not any(p.granted for p in asked(row, stage))
        assert are(row, missing(stage))
        assert stage.state == "needs-review"
        assert [name for name in ("it asks for", *row.names) if name not in stage.problems] == []
    await stage.grant_version_1(row.besides, {"hooks": [ballast(row)]})
    stage.write(row.code, row.asks, row.besides, {"hooks": [ballast(row)]}, version="2.0.0", **row.manifest)
    async with stage.new_host():
        if row not in ADDING:
            assert are(row, missing(stage))
            assert stage.state == "needs-review"
            if row.is_folder:
                assert "its code has changed since it was reviewed" in stage.problems
            else:
                told = ("now, which the grant of version 1.0.0", *row.names)
                assert [text for text in told if text not in stage.problems] == []
            assert ballast(row) not in stage.problems
            assert not await row.tries(stage)
            assert not stage.is_imported
            await stage.host.grant("acme")
        assert stage.state == "started", stage.problems
        assert missing(stage) == []
        assert await row.tries(stage)

        await stage.host.revoke("acme")
        stage.calls.clear()
        assert not await row.tries(stage)
        assert stage.state == "needs-review"
        assert stage.info.contributions == {}
        assert stage.host.owned("acme") == {}
        assert ballast(row) in missing(stage)
    assert stage.calls == []
