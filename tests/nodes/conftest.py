"""Runs one basic node the way the host does: through the runner that the kernel makes of its code, with
`--placement loopback` behind the boundary."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

import tavern_nodes.nodes
from tavern_host import nodes_of
from tavern_host.authoring import NodeCode
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.nodes import NodeCall, NodeInstance, NodeRunner
from tavern_host.loopback import carried_runner
from tavern_host.noderunner import InProcessNodeRunner

DEFINITIONS = {definition.type: definition for definition in nodes_of(tavern_nodes.nodes)}


class Nodes:
    """Opens and runs nodes by type."""

    def open(self, type: str, config: dict[str, Any] | None = None) -> NodeInstance:
        """Return an instance of a node type."""
        module, _, name = DEFINITIONS[type].handler.partition(":")
        code = getattr(importlib.import_module(module), name).__tavern_node__
        assert isinstance(code, NodeCode)
        # no basic node asks for its context
        runner: NodeRunner = InProcessNodeRunner(code, context=None)  # type: ignore[arg-type]
        if os.environ.get("TAVERN_PLACEMENT") == "loopback":
            runner = carried_runner(runner, "tavern-nodes", code.definition)
        return runner.open(config or {})

    async def run(
        self, type: str, inputs: dict[str, Any] | None = None, config: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Open a node, run it once and return its outputs."""
        return await self.step(self.open(type, config), inputs)

    async def step(self, instance: NodeInstance, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run an open instance once more."""
        return await instance.run(inputs or {}, NodeCall(run_id="run_1", node_id="n1", call=system_call()))


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()
