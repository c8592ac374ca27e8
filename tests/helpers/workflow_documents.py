"""Short ways to write the documents of workflows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def edge(identifier: str, source: str, target: str) -> dict[str, str]:
    """Return an edge between ends written `node.handle`."""
    (a, out), (b, into) = source.split("."), target.split(".")
    return {"id": identifier, "source": a, "sourceHandle": out, "target": b, "targetHandle": into}


def slots(types: Mapping[str, str]) -> dict[str, Any]:
    """Return interface slots by key and type."""
    return {key: {"key": key, "displayName": key, "dataFlowType": kind} for key, kind in types.items()}


def workflow(
    name: str, nodes: Mapping[str, Any], edges: Mapping[str, str], takes: Mapping[str, str], gives: Mapping[str, str]
) -> dict[str, Any]:
    """Return a workflow of nodes by id, each a type or a node's keys, between its ends `in` and `out`; edges lead to
    their keys, `takes` and `gives` are the types of its interface."""
    listed = {"in": "core:GroupInput", **nodes, "out": "core:GroupOutput"}
    return {
        "name": name,
        "nodes": [{"id": i, **({"type": node} if isinstance(node, str) else node)} for i, node in listed.items()],
        "edges": [edge(f"e{n}", source, target) for n, (target, source) in enumerate(edges.items(), start=1)],
        "interfaceInputs": slots(takes),
        "interfaceOutputs": slots(gives),
    }
