"""The first import of a plugin's code is somebody's decision, whatever the plugin asks for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from plugin_maker import install

from tavern_host import Host
from tavern_host.contracts.packages import PACKAGES_FILE
from tavern_host.contracts.plugins import PluginState
from tavern_host.projects import Folders

CODE = """
from tavern_host import hookimpl

@hookimpl
def tavern_register_nodes():
    return []
"""


def write_package(folders: Folders, package: str, entry: str) -> None:
    """Write what `tavern plugins install` leaves: a package in a folder of its own."""
    install(folders.packages / package, package, CODE, entry=entry, hooked=["tavern_register_nodes"])
    about = {"distribution": package, "version": "1.0.0", "plugins": [entry], "folder": package, "requested": entry}
    known = {package: {**about, "installedAt": "2026-01-01T00:00:00Z"}}
    (folders.packages / PACKAGES_FILE).write_text(json.dumps({"packages": known}))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "config", tmp_path / "state", tmp_path / "data")


async def states(project: Path, folders: Folders, name: str, module: str) -> list[PluginState]:
    """Return how a plugin stands before it is granted, after that, and after a restart; it is imported only then."""
    async with Host(project, folders=folders) as host:
        before = host.plugin(name)
        assert module not in sys.modules or before.state is PluginState.STARTED
        if before.state is not PluginState.NEEDS_REVIEW:
            return [before.state]
        assert [(one.name, one.level) for one in before.permissions if not one.granted] == [("import", "intercept")]
        granted = await host.grant(name)
        assert module in sys.modules
    async with Host(project, folders=folders) as host:
        return [before.state, granted.state, host.plugin(name).state]


WAITED = [PluginState.NEEDS_REVIEW, PluginState.STARTED, PluginState.STARTED]


async def test_what_came_as_a_dependency_waits(
    tmp_path: Path, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    adds = {"hooked": ["tavern_register_nodes"]}
    install(tmp_path / "site", "first_dependency", CODE, entry="acme-dependency", requested=False, **adds)
    install(tmp_path / "site", "first_requested", CODE, entry="acme-requested", **adds)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert await states(tmp_path / "p", folders, "acme-dependency", "first_dependency") == WAITED
    assert await states(tmp_path / "p", folders, "acme-requested", "first_requested") == [PluginState.STARTED]


async def test_what_is_installed_for_the_host_alone_waits(tmp_path: Path, folders: Folders) -> None:
    write_package(folders, "first_installed", "acme-installed")
    async with Host(tmp_path / "p", folders=folders) as host:
        assert "nobody has decided yet that its code be run" in str(host.plugin("acme-installed").problems[0])
    assert await states(tmp_path / "p", folders, "acme-installed", "first_installed") == WAITED


async def test_revoking_takes_the_decision_back(tmp_path: Path, folders: Folders) -> None:
    write_package(folders, "first_revoked", "acme-revoked")
    async with Host(tmp_path / "p", folders=folders) as host:
        await host.grant("acme-revoked")
        assert (await host.revoke("acme-revoked")).state is PluginState.NEEDS_REVIEW


async def test_trust_is_a_decision(tmp_path: Path, folders: Folders) -> None:
    write_package(folders, "first_trusted", "acme-trusted")
    folders.config.mkdir(parents=True, exist_ok=True)
    (folders.config / "host.yaml").write_text("trust: [acme-trusted]\n")
    async with Host(tmp_path / "p", folders=folders) as host:
        assert host.plugin("acme-trusted").state is PluginState.STARTED
