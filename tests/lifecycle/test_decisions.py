"""The operator's decisions about a plugin: they last, are followed by other hosts, and are carried out one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.waiting import until
from lifecycle_maker import get, nodes, plugin, states
from lifecycle_stage import STAGE

from tavern_host import Host
from tavern_host.contracts.errors import Conflict
from tavern_host.plugins import lifecycle

ROUTED = """
from lifecycle_stage import STAGE
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
    async with running(project) as host:
        watch = asyncio.create_task(host.watch_decisions())
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
        watch.cancel()
        await asyncio.wait([watch])


async def test_simultaneous_decisions_are_carried_out_in_turn(project: Path) -> None:
    acme(project)
    async with running(project) as host:
        await asyncio.gather(
            *(getattr(host, how)("acme") for how in ("disable", "enable", "reload", "disable", "reload", "enable"))
        )
        assert states(host, "acme") == ["started"]
        assert host.plugin("acme").contributions["node"] == ["acme:Say"]
