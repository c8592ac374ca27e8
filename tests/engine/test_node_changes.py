"""Clients are told when the node types have changed while the host runs."""

from __future__ import annotations

import asyncio
from typing import Any

from engine_bench import Bench, OpenHost

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import Host

EVENT = "NODES_RELOADED"


async def listed(host: Host) -> list[str]:
    return [node.full_type for node in await host.services.get(NODE_MANAGER).list_nodes()]


async def told_until(host: Host, events: Any, plugin: str) -> list[dict[str, Any]]:
    """Return the messages about node types up to those about a plugin that is disabled and enabled."""
    marker = host.events.last_seq
    await host.disable(plugin)
    await host.enable(plugin)
    told = []
    async with asyncio.timeout(60):
        async for event in events:
            told.append(event)
            if event.seq > marker and "new" in event.payload["message"]:
                break
    return [event.payload for event in told]


async def test_clients_are_told_when_node_types_go_and_come(bench: Bench) -> None:
    events = bench.host.events.subscribe(EVENT)
    await bench.host.disable("acme-nodes")
    await bench.host.enable("acme-nodes")
    before = await listed(bench.host)
    assert len(await told_until(bench.host, events, "acme-nodes")) == 2  # nobody had seen any node types before

    count = sum(name.startswith("acme-nodes:") for name in before)
    told = []
    for change in (bench.host.disable, bench.host.enable):
        await change("acme-nodes")
        told.append((await anext(events)).payload)  # type: ignore[union-attr]
    await bench.host.disable("tavern-demo")  # which brings none
    await bench.host.enable("tavern-demo")

    gone = {"success": True, "message": f"Node types: {count} gone", "count": len(before) - count}
    assert told == [gone, {"success": True, "message": f"Node types: {count} new", "count": len(before)}]
    assert await listed(bench.host) == before
    assert len(await told_until(bench.host, events, "acme-nodes")) == 2


async def test_clients_are_told_when_another_plugin_changes_node_types(open_host: OpenHost) -> None:
    async with open_host("acme_watch") as bench:
        await listed(bench.host)
        events = bench.host.events.subscribe(EVENT)
        await bench.host.disable("acme-watch")
        assert (await anext(events)).payload["message"] == "Node types: 1 new, 1 changed"  # type: ignore[union-attr]
