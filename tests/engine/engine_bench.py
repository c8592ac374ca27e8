"""Short ways to write workflows, run them on a host with the test plugins, and read what came of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, NODE_MANAGER, Host
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import ExecutionEngine, NodeState, Run, RunRequest
from tavern_host.contracts.nodes import NodeManager
from tavern_host.contracts.workflows import Workflow

PLUGINS = Path(__file__).parent / "plugins"


def workflow(nodes: dict[str, Any], *edges: str, **more: Any) -> Workflow:
    """Return a workflow of nodes by id (a type, or a node) and edges written `source.slot > target.slot`.

    A type without a namespace is one of the test plugin `acme-nodes`.
    """
    listed = []
    for identifier, node in nodes.items():
        about = {"type": node} if isinstance(node, str) else dict(node)
        if ":" not in about["type"]:
            about["type"] = f"acme-nodes:{about['type']}"
        listed.append({"id": identifier, **about})
    ends = [[end.split(".", 1) for end in edge.split(" > ")] for edge in edges]
    return Workflow.model_validate(
        {
            "nodes": listed,
            "edges": [
                {"id": f"e{i}", "source": a, "sourceHandle": out, "target": b, "targetHandle": into}
                for i, ((a, out), (b, into)) in enumerate(ends)
            ],
            **more,
        }
    )


def give(value: Any, type: str = "WILDCARD") -> dict[str, Any]:
    """Return a node that gives a value."""
    return {"type": "Give", "configValues": {"type": type, "value": value}}


def slot(type: str = "WILDCARD", **more: Any) -> dict[str, Any]:
    """Return a slot of an interface."""
    return {"dataFlowType": type, **more}


class Bench:
    """A running host and its engine."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.engine: ExecutionEngine = host.services.get(EXECUTION_ENGINE)
        self.nodes: NodeManager = host.services.get(NODE_MANAGER)

    async def run(self, document: Workflow, call: CallContext | None = None, **inputs: Any) -> Run:
        return await self.engine.run(RunRequest(workflow=document, inputs=inputs), call=call)

    async def start(self, document: Workflow, call: CallContext | None = None, **inputs: Any) -> str:
        return await self.engine.submit(RunRequest(workflow=document, inputs=inputs), call=call)

    async def refusal(self, document: Workflow, **inputs: Any) -> dict[str, str]:
        """Return by path why a run is refused."""
        with pytest.raises(InvalidInput) as caught:
            await self.start(document, **inputs)
        problems: Any = caught.value.info.details["problems"]
        return {problem["path"]: problem["message"] for problem in problems}

    async def until(self, type: str, **payload: Any) -> None:
        """Wait until an event with this payload has been published, now or before."""
        async for event in self.host.events.subscribe(type, since=0):
            if payload.items() <= getattr(event, "payload", {}).items():
                return


def state(run: Run, node_id: str) -> NodeState:
    return run.nodes[node_id]


def output(run: Run, node_id: str, key: str = "value") -> Any:
    """Return an output of a node that completed."""
    shown = run.nodes[node_id]
    assert shown.status == "complete", f"{node_id}: {shown}"
    assert shown.output is not None
    return shown.output[key]


OpenHost = Callable[..., AbstractAsyncContextManager[Bench]]
