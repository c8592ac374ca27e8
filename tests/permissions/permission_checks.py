"""What must hold for every permission: the cells of the table of permissions."""

from __future__ import annotations

from permission_rows import Row
from permission_stage import Stage

from tavern_host.contracts.plugins import PermissionInfo

BALLAST = "hook:client:node:render:after"
OTHER_BALLAST = "hook:server:workflow:before-execute"
"""Permissions that need a grant and do nothing here; what a version before the upgrade asks for."""


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


async def undeclared_is_not_had(row: Row, stage: Stage) -> None:
    """Fail where a plugin can do what it has not asked for."""
    stage.write(None if row.is_folder else row.code, row.besides, **row.manifest)
    async with stage.new_host(trusted=True):
        assert stage.state == ("failed" if row.refused else "started")
        assert [text for text in row.refused if text not in stage.problems] == []
        assert not {*row.names} & {p.name for p in stage.info.permissions}
        assert not await row.tries(stage)


async def granted_works_until_revoked(row: Row, stage: Stage) -> None:
    """Fail where a plugin can do what it asks for at another time than between the grant and its end."""
    adds = row.level == "add"
    if not adds:
        stage.write(row.code, row.asks, row.besides, **row.manifest)
        stage.new_host().link()
        assert not any(p.granted for p in asked(row, stage))
        assert are(row, missing(stage))
        assert stage.state == "needs-review"
        assert [name for name in ("it asks for", *row.names) if name not in stage.problems] == []
    await stage.grant_version_1(row.besides, {"hooks": [ballast(row)]})
    stage.write(row.code, row.asks, row.besides, {"hooks": [ballast(row)]}, version="2.0.0", **row.manifest)
    async with stage.new_host():
        if not adds:
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
