"""The operator's decisions about a plugin: they last, are followed by other hosts, and are carried out one by one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from helpers.folder_plugins import GREETS_IN_ITS_OWN_WAY, INTERCEPTING, write_plugin
from helpers.stage import STAGE
from helpers.waiting import following, let_pass, until
from lifecycle_maker import get, nodes, plugin, states

from tavern_host import Host
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.plugins import PluginState
from tavern_host.plugins import lifecycle

ROUTED = """
from helpers.stage import STAGE
from tavern_host import HttpResponse, RouteInfo, hookimpl

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/go", handler=f"{__name__}:go")]

async def go(request, context):
    BODY
"""


def routed(project: Path, body: str, **manifest: str) -> None:
    """Write a plugin whose route does what `body` says."""
    plugin(project / "plugins", "acme", ROUTED.replace("BODY", body), "tavern_register_routes", **manifest)


def acme(project: Path) -> Path:
    """Write a plugin with a node."""
    files = nodes("@node()\nasync def say(text: str) -> str:\n    return text\n")
    return plugin(project / "plugins", "acme", files, nodes={"entry": "nodes"})


def running(project: Path, **options: list[str]) -> Host:
    return Host(project, **{"trust": ["acme"], **options})  # type: ignore[arg-type]


async def test_a_plugin_may_disable_itself_in_a_request(project: Path) -> None:
    routed(project, "await STAGE.disable(); return HttpResponse(data='gone')")
    async with running(project) as host:
        STAGE.disable = lambda: host.disable("acme")  # type: ignore[attr-defined]
        async with asyncio.timeout(lifecycle.DRAIN_DEADLINE / 2):
            assert await get(host, "/api/x/acme/go") == "gone"
        assert states(host, "acme") == ["disabled"]


async def test_a_plugin_left_out_cannot_be_enabled(project: Path) -> None:
    acme(project)
    async with running(project, without=["acme"]) as host:
        assert states(host, "acme") == ["disabled"]
        with pytest.raises(Conflict, match="acme cannot be enabled here: it is left out of this run"):
            await host.enable("acme")


async def test_a_host_follows_decisions_of_another_process(project: Path) -> None:
    routed(project, "return HttpResponse(data='one')")
    async with running(project, follow=True) as host:
        other = running(project)
        other.link()
        await other.disable("acme")
        await until(lambda: states(host, "acme") == ["disabled"])
        await other.enable("acme")
        await until(lambda: states(host, "acme") == ["started"])
        assert await get(host, "/api/x/acme/go") == "one"
        routed(project, "return HttpResponse(data='two')", version="2.0.0")
        other.ask_to_reload("acme")
        await until(lambda: host.plugin("acme").version == "2.0.0" and states(host, "acme") == ["started"])
        assert await get(host, "/api/x/acme/go") == "two"


async def test_a_host_follows_what_its_operator_writes_into_host_yaml(project: Path, operator_folders: Path) -> None:
    file = operator_folders / "config" / "host.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = write_plugin(project.parent / "other", {"__init__.py": ""})
    async with following(Host(project, plugins=[folder], trust=["other"])) as host:
        assert states(host, "other") == ["started"]
        file.write_text("disabled: [other]\n")
        await until(lambda: states(host, "other") == ["disabled"])
        file.write_text("disabled: [\n")  # as it is while it is being written: what holds stays
        await let_pass(5)
        assert states(host, "other") == ["disabled"]
        file.write_text("settings: {}\n")
        await until(lambda: states(host, "other") == ["started"])


async def test_a_host_follows_whom_its_operator_trusts(project: Path, operator_folders: Path) -> None:
    file = operator_folders / "config" / "host.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = write_plugin(project.parent / "greets", {"__init__.py": GREETS_IN_ITS_OWN_WAY}, **INTERCEPTING)

    def granted() -> set[str]:
        return {one.level for one in host.plugin("greets").permissions if one.granted}

    async with following(Host(project, plugins=[folder])) as host:
        assert granted() == set()
        file.write_text("trust: [greets]\n")
        await until(lambda: granted() == {"intercept"})
        file.write_text("trust: []\n")
        await until(lambda: granted() == set())


async def test_a_reload_names_what_is_gone(project: Path) -> None:
    acme(project)
    async with running(project) as host:
        shutil.rmtree(project / "plugins" / "acme")
        assert [(one.name, one.state) for one in await host.reload()] == [("acme", PluginState.GONE)]
        assert await host.reload() == []


async def test_simultaneous_decisions_are_carried_out_in_turn(project: Path) -> None:
    acme(project)
    async with running(project) as host:
        await asyncio.gather(
            *(getattr(host, how)("acme") for how in ("disable", "enable", "reload", "disable", "reload", "enable"))
        )
        assert states(host, "acme") == ["started"]
        assert host.plugin("acme").contributions["node"] == ["acme:Say"]
