"""Short ways to write the documents of workflows: nodes by id, each a type or a node's keys, and edges written
`source.slot > target.slot`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Nodes = Mapping[str, Any]


def edge(identifier: str, source: str, target: str) -> dict[str, str]:
    """Return an edge between ends written `node.slot`."""
    (a, out), (b, into) = source.split(".", 1), target.split(".", 1)
    return {"id": identifier, "source": a, "sourceHandle": out, "target": b, "targetHandle": into}


def slots(types: Mapping[str, str]) -> dict[str, Any]:
    """Return interface slots by key and type."""
    return {key: {"key": key, "displayName": key, "dataFlowType": kind} for key, kind in types.items()}


def workflow_document(nodes: Nodes, *edges: str, **more: Any) -> dict[str, Any]:
    """Return a workflow; `more` are its other keys."""
    listed = [{"id": i, **({"type": node} if isinstance(node, str) else node)} for i, node in nodes.items()]
    return {"nodes": listed, "edges": [edge(f"e{i}", *ends.split(" > ")) for i, ends in enumerate(edges)], **more}


def function(
    name: str, nodes: Nodes, *edges: str, takes: Mapping[str, str], gives: Mapping[str, str]
) -> dict[str, Any]:
    """Return a workflow with inputs and outputs of these types, at its nodes `in` and `out`."""
    ends = {"in": "core:GroupInput", **nodes, "out": "core:GroupOutput"}
    return workflow_document(ends, *edges, name=name, interfaceInputs=slots(takes), interfaceOutputs=slots(gives))
