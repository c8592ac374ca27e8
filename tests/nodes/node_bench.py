"""Runs one basic node the way the host does: through the runner that the kernel makes of its code, with
`--placement loopback` behind the boundary. `Nodes` needs no host and suits nodes that ask for no context;
`HostedNodes` has a whole one, for nodes that read files or use services."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

import tavern_nodes.nodes
from tavern_devtools.loopback_nodes import transport_runner
from tavern_host import Host, TavernError, nodes_of
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.nodes import NodeCall, NodeInstance, NodeRunner
from tavern_host.sdk.decorator import NodeCode
from tavern_nodes.node_runners import InProcessNodeRunner

DEFINITIONS = {definition.type: definition for definition in nodes_of(tavern_nodes.nodes)}


class Nodes:
    """Opens and runs nodes by type."""

    def runner(self, type: str) -> NodeRunner:
        """Return the runner of a node type."""
        module, _, name = DEFINITIONS[type].handler.partition(":")
        code = getattr(importlib.import_module(module), name).__tavern_node__
        assert isinstance(code, NodeCode)
        # for nodes that ask for no context
        runner: NodeRunner = InProcessNodeRunner(code, context=None)  # type: ignore[arg-type]
        if os.environ.get("TAVERN_PLACEMENT") == "loopback":
            runner = transport_runner(runner, "tavern-nodes", code.definition)
        return runner

    def open(self, type: str, config: dict[str, Any] | None = None) -> NodeInstance:
        """Return an instance of a node type."""
        return self.runner(type).open(config or {})

    async def run(
        self, type: str, inputs: dict[str, Any] | None = None, config: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Open a node, run it once and return its outputs."""
        return await self.step(self.open(type, config), inputs)

    async def step(self, instance: NodeInstance, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run an open instance once more."""
        return await instance.run(inputs or {}, node_call())

    async def stream(
        self, type: str, inputs: dict[str, Any] | None = None, config: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Open a node that streams and return all that it yields."""
        async with aclosing(self.open(type, config).stream(inputs or {}, node_call())) as parts:  # type: ignore[type-var]
            return [part async for part in parts]


class HostedNodes(Nodes):
    """Runs nodes of a host, with the context that their plugin was given."""

    def __init__(self, host: Host, files: Path) -> None:
        self.host = host
        self.files = files

    def runner(self, type: str) -> NodeRunner:
        """Return the runner that the host makes."""
        loaded = self.host._manager.active["tavern-nodes"]
        return loaded.runtime.open(DEFINITIONS[type])

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file into the project's folder of files."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


Row = tuple[str, dict[str, Any], dict[str, Any], Any]
"""A node's type, inputs and configuration, and the outputs that it gives or the message with which it refuses."""


async def check_outputs(nodes: Nodes, rows: Iterable[Row]) -> None:
    """Run each node and compare what it gives; 1, 1.0 and True differ."""
    with Failures() as failures:
        for type, inputs, config, expected in rows:
            with failures.row((type, f"{inputs!r:.200}", config)):
                outputs = await nodes.run(type, inputs, config)
                if outputs != expected or repr(outputs) != repr(expected):
                    raise AssertionError(f"it gives {outputs!r}, not {expected!r}")


async def check_refusals(nodes: Nodes, rows: Iterable[Row]) -> None:
    """Run each node and compare the message of its error, which begins with its type; `…` stands for any end."""
    with Failures() as failures:
        for type, inputs, config, message in rows:
            with failures.row((type, f"{inputs!r:.200}", config)), pytest.raises(TavernError) as refused:
                await nodes.run(type, inputs, config)
            expected, told = f"{type}: {message}", refused.value.message
            with failures.row(expected):
                same = told.startswith(expected[:-1]) if expected.endswith("…") else told == expected
                if not same:
                    raise AssertionError(f"it says {told!r:.300}")


def node_call() -> NodeCall:
    """Return which node of which run is executed: always the same one."""
    return NodeCall(run_id="run_1", node_id="n1", call=system_call())
