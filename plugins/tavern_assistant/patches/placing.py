"""Gives places to the nodes of a workflow that have none, by the layout of the service that keeps workflows."""

from __future__ import annotations

import asyncio
from typing import Any

from tavern_assistant.patches.working_copy import Item
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import LayoutSize, WorkflowLayout, WorkflowManager

Sizes = dict[str, LayoutSize]


async def place(document: Item, manager: WorkflowManager) -> Item:
    """Return a checked document in which every node has a place; nodes that have one stay there, and zones grow around
    what is new in them."""
    unplaced, drawn, sizes = await asyncio.to_thread(_drawn, document)
    if not unplaced:
        return document
    keep = [node.id for node in drawn.nodes if node.id not in unplaced]
    found = await manager.layout(drawn, sizes=sizes, keep=keep)
    return await asyncio.to_thread(_placed, document, unplaced, sizes, found)


def _drawn(document: Item) -> tuple[set[str], Workflow, Sizes]:
    """Return which nodes have no place, what is to be laid out, and the sizes of nodes that have one."""
    nodes: list[Item] = document.get("nodes", [])
    unplaced = {node["id"] for node in nodes if not {"x", "y"} <= (node.get("position") or {}).keys()}
    keys = ("id", "type", "position", "parentNode")
    drawn = {
        "nodes": [{key: node[key] for key in keys if node.get(key) is not None} for node in nodes],
        "edges": [edge for edge in document.get("edges", []) if {edge["source"], edge["target"]} & unplaced],
    }
    sizes = {node["id"]: size for node in nodes if (size := _size(node)) is not None}
    return unplaced, Workflow.model_validate(drawn if unplaced else {}), sizes


def _placed(document: Item, unplaced: set[Any], sizes: Sizes, found: WorkflowLayout) -> Item:
    nodes: list[Item] = document["nodes"]
    parents = {node["id"]: node.get("parentNode") for node in nodes}
    grown: set[str] = set()
    for name in unplaced:
        while isinstance(name := parents.get(name), str) and name not in grown:
            grown.add(name)
    placed = []
    for node in nodes:
        changed: dict[str, Any] = {}
        if (at := found.positions.get(node["id"])) is not None:
            changed["position"] = {"x": round(at.x), "y": round(at.y)}
        if node["id"] in grown and (needed := found.zones.get(node["id"])) is not None:
            has = sizes.get(node["id"], needed)
            changed |= {"width": max(needed.width, has.width), "height": max(needed.height, has.height)}
        placed.append({**node, **changed} if changed else node)
    return {**document, "nodes": placed}


def _size(node: Item) -> LayoutSize | None:
    width, height = node.get("width"), node.get("height")
    if not all(isinstance(one, int | float) and 0 <= one <= 1e6 for one in (width, height)):
        return None
    return LayoutSize.model_validate({"width": width, "height": height})
