"""How long others wait while a plugin in a process of its own floods its host: the slowest of a hundred calls of
another plugin in its process, beside a flood and without one."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from tavern_host import Host
from tavern_host.contracts.nodes import NodeCall
from tavern_host.projects import Folders

FLOODS = ("calls", "events", "lines", "output")
"""What the host is flooded with: calls of a service by 500 tasks at once, events, lines of the log, printed lines."""
ROUNDS = 7
_SECONDS = 1.5
_BEFORE = 0.3
"""For how many seconds latencies are taken in a round, and for how many a flood has begun by then."""

_CALM = """
from tavern_host import *

@node()
async def same(text: str) -> str:
    return text
"""
_FLOOD = """
import asyncio, time
from tavern_host import *

@node()
async def flood(kind: str, seconds: float, context: NodeContext) -> str:
    plugin, end = context.plugin, time.monotonic() + seconds
    said = {"events": lambda: plugin.events.publish("flood.said", {"text": "x" * 100}),
            "lines": lambda: plugin.log.info("x" * 100)}

    async def call():
        workflows = plugin.services.get("workflowManager")
        while time.monotonic() < end:
            await workflows.list_workflows()

    def output():
        while time.monotonic() < end:
            print("x" * 100, flush=True)

    if kind == "calls":
        await asyncio.gather(*(call() for _ in range(500)))
    elif kind == "output":
        await asyncio.to_thread(output)
    while time.monotonic() < end:
        for _ in range(100):
            said[kind]()
        await asyncio.sleep(0.01)  # twice what the host takes: one that sends far more does not answer, and is ended
    return kind
"""


@asynccontextmanager
async def _nodes() -> AsyncIterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name, code in (("calm", _CALM), ("flood", _FLOOD)):
            plugin = root / "project" / "plugins" / name
            plugin.mkdir(parents=True)
            manifest = {"name": name, "displayName": name, "version": "1.0.0", "nodes": {"entry": "nodes.py"}}
            (plugin / "plugin.yaml").write_text(json.dumps(manifest))
            (plugin / "__init__.py").write_text("")
            (plugin / "nodes.py").write_text(code)
        folders = Folders(root / "config", root / "state", root / "data")
        names = ["calm", "flood"]
        async with Host(root / "project", folders=folders, trust=names, placement="process") as host:
            found = host._manager.lifecycle.collected("tavern_register_nodes")
            nodes = {one.plugin: one.open(one.value[0]).open({}) for one in found if one.plugin in names}
            yield {**nodes, "call": NodeCall(run_id="run", node_id="flood", call=host.call())}


async def _slowest(node: Any) -> float:
    """Return the seconds within which 99 of 100 calls are answered."""
    taken, end = [], time.perf_counter() + _SECONDS
    while (began := time.perf_counter()) < end:
        await node.run({"text": "x"}, None)
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(0.001)
    return statistics.quantiles(taken, n=100)[-1]


async def _floods() -> list[Result]:
    results = []
    async with _nodes() as nodes:
        calm, flood = nodes["calm"], nodes["flood"]
        for kind in FLOODS:
            pairs = []
            for _ in range(ROUNDS):
                alone = await _slowest(calm)
                asked = asyncio.create_task(flood.run({"kind": kind, "seconds": _BEFORE + _SECONDS}, nodes["call"]))
                await asyncio.sleep(_BEFORE)
                pairs.append((await _slowest(calm), alone))
                await asked
                await asyncio.sleep(_BEFORE)  # what waited is taken
            ours, theirs = (statistics.median(pair[at] for pair in pairs) for at in range(2))
            ratio = statistics.median(one / other for one, other in pairs)
            name = f"the slowest of 100 calls of a plugin while another floods its host with {kind}"
            results.append(Result(name, ours * 1e3, "ms", theirs * 1e3, "without a flood", ratio, ROUNDS, 2))
    return results


def floods() -> list[Result]:
    """Measure the latencies of a plugin beside each flood of another."""
    return asyncio.run(_floods())
