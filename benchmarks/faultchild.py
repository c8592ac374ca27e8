"""The process that is killed: a host that takes up what is left over, accepts runs, and goes on until its end.

`python -m benchmarks.faultchild PLACE FIRST COUNT [DEPTH]` says `ready`, then the id of each run once it was accepted,
in a line of JSON each.
Its nodes write into a log when they begin and end, so that what was run how often is known without asking the engine.
Where `HOLD_AFTER` says after how many, the nodes that are begun later do not end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import textwrap
from pathlib import Path

from benchmarks.enginegraphs import Graph, layers, mixed
from benchmarks.enginenodes import MASK, NAMESPACE
from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import RunRequest
from tavern_host.projects import Folders

PLUGIN = NAMESPACE
LOG = "executions.log"
AT_ONCE = 2
"""How many runs go on at a time; the others wait, and are lost as easily."""

_MANIFEST = f"""
name: {PLUGIN}
displayName: Nodes that say what they do
version: 1.0.0
description: Nodes that say when they begin and end.
apiVersion: ">=0.1"
nodes: {{entry: ./nodes}}
"""

_NODES = '''
"""Nodes that say when they begin and end, in one line of a file each."""

from __future__ import annotations

import asyncio
import os
import random
import time

from tavern_host import NodeContext, node

left = int(os.environ.get("HOLD_AFTER", 10**9))


async def work(context: NodeContext, value: int) -> int:
    global left
    say(context, "begins")
    left -= 1
    if left < 0:
        await asyncio.Event().wait()
    await asyncio.sleep(random.random() * 0.01)
    say(context, "ends")
    return value & 0xFF


def say(context: NodeContext, what: str) -> None:
    file = os.open(context.plugin.project.root / "executions.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{context.run_id} {context.node_id} {what} {time.monotonic()}\\n".encode())
    finally:
        os.close(file)


@node()
async def number(value: int, context: NodeContext) -> int:
    """Give a value."""
    return await work(context, value)


@node()
async def mix(a: int, b: int, c: int, context: NodeContext) -> int:
    """Make one value of three."""
    return await work(context, a - b ^ c)


@node()
async def last_mix(a: int, b: int, c: int, context: NodeContext, salt: int = 0) -> int:
    """Make one value of three and of one of its own."""
    return await work(context, (a - b ^ c) + salt)
'''


@dataclasses.dataclass(frozen=True)
class Place:
    """A folder with a project, a plugin and the operator's folders."""

    root: Path

    @property
    def log(self) -> Path:
        """Where nodes say when they begin and end."""
        return self.root / "project" / LOG

    def fill(self) -> None:
        """Write the plugin."""
        nodes = self.root / PLUGIN / "nodes"
        nodes.mkdir(parents=True)
        (self.root / PLUGIN / "plugin.yaml").write_text(_MANIFEST.lstrip(), encoding="utf-8")
        (nodes / "__init__.py").write_text(textwrap.dedent(_NODES).lstrip(), encoding="utf-8")

    def host(self, *, serving: bool, runs: int = AT_ONCE) -> Host:
        """Return a host on the project, of so many runs at a time; one that serves takes up what is left over."""
        operator = self.root / "operator"
        return Host(
            self.root / "project",
            plugins=[self.root / PLUGIN],
            trust=[PLUGIN],
            settings={"extensions.tavern-engine.maxConcurrentRuns": runs},
            folders=Folders(operator / "config", operator / "state", operator / "data"),
            serving=serving,
        )


def graph_of(number: int, *, depth: int = 10, width: int = 20) -> Graph:
    """Return the graph of 200 nodes of one run; all values in it are other ones than those of the runs before it."""
    graph = layers(depth, width)
    values = {node: {"value": own["value"] + 31 * number & MASK} for node, own in graph.values.items()}
    graph = dataclasses.replace(graph, values=values)
    return dataclasses.replace(graph, results=mixed(graph))


async def accept_runs(place: Place, first: int, count: int, depth: int = 10) -> None:
    """Accept runs and go on until the end of the process."""
    async with place.host(serving=True) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        graphs = [graph_of(number, depth=depth) for number in range(first, first + count)]
        requests = [RunRequest(workflow=graph.workflow(), use_cache=False) for graph in graphs]
        # The first run imports everything.
        await engine.run(RunRequest(workflow=graph_of(10**6 + first, depth=2, width=2).workflow()))
        print(json.dumps("ready"), flush=True)
        for request in requests:
            print(json.dumps(await engine.submit(request)), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(accept_runs(Place(Path(sys.argv[1])), *map(int, sys.argv[2:])))
