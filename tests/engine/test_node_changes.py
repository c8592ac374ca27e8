"""Clients are told when the node types have changed while the host runs."""

from __future__ import annotations

import asyncio
from typing import Any

from engine_bench import Bench, OpenHost

from tavern_host import Host
from tavern_host.contracts.nodes import NODE_MANAGER

EVENT = "NODES_RELOADED"


async def listed(host: Host) -> list[str]:
    return [node.full_type for node in await host.services.get(NODE_MANAGER).list_nodes()]


async def told_until(host: Host, events: Any, plugin: str) -> list[dict[str, Any]]:
    """Return what is told of node types up to what is told of them when a plugin is disabled and enabled."""
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
    before = await listed(bench.host)
    count = sum(name.startswith("acme-nodes:") for name in before)
    events = bench.host.events.subscribe(EVENT)

    await bench.host.disable("acme-nodes")
    gone = await anext(events)
    await bench.host.enable("acme-nodes")
    come = await anext(events)

    assert gone.payload == {  # type: ignore[union-attr]
        "success": True,
        "message": f"Node types: {count} gone",
        "count": len(before) - count,
    }
    assert come.payload == {  # type: ignore[union-attr]
        "success": True,
        "message": f"Node types: {count} new",
        "count": len(before),
    }
    assert await listed(bench.host) == before


async def test_clients_are_told_when_another_plugin_changes_what_is_shown_of_node_types(open_host: OpenHost) -> None:
    async with open_host("acme_watch") as bench:
        await listed(bench.host)
        events = bench.host.events.subscribe(EVENT)
        await bench.host.disable("acme-watch")
        told = await anext(events)

        assert told.payload["message"] == "Node types: 1 new, 1 changed"  # type: ignore[union-attr]


async def test_nothing_is_told_where_the_node_types_are_as_they_were(open_host: OpenHost) -> None:
    async with open_host() as bench:
        await listed(bench.host)
        events = bench.host.events.subscribe(EVENT)
        await bench.host.disable("tavern-demo")
        await bench.host.enable("tavern-demo")

        assert len(await told_until(bench.host, events, "acme-nodes")) == 2


async def test_nothing_is_told_to_clients_that_have_seen_no_node_types(bench: Bench) -> None:
    events = bench.host.events.subscribe(EVENT)
    await bench.host.disable("acme-nodes")
    await bench.host.enable("acme-nodes")
    await listed(bench.host)

    assert len(await told_until(bench.host, events, "acme-nodes")) == 2
