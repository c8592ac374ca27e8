"""Short ways to write loops and the nodes in them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any


def flow(type: str, **values: Any) -> dict[str, Any]:
    """Return a node of the test plugin `acme-flow` with these written values."""
    written = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
    return {"type": f"acme-flow:{type}", "inputValues": written}


def loop(*carried: str, each: str = "", values: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    """Return a loop: carried values are written `key: TYPE = initial`, those of each iteration `key: TYPE, …`."""
    state = []
    for text in carried:
        declared, _, initial = text.partition(" = ")
        key, _, kind = declared.partition(": ")
        item: dict[str, Any] = {"key": key, "dataFlowType": kind}
        if initial:
            item["initial"] = ast.literal_eval(initial)
        state.append(item)
    pieces = [text.partition(": ") for text in each.split(", ") if text]
    per_iteration = [{"key": key, "dataFlowType": kind} for key, _, kind in pieces]
    about = {"carried": state, "perIteration": per_iteration, **config}
    return {"type": "core:LoopZone", "configValues": about, "inputValues": values or {}}


def inside(zone: str, node: dict[str, Any] | str) -> dict[str, Any]:
    """Return a node as it is inside of a loop."""
    about = {"type": node} if isinstance(node, str) else node
    return {**about, "parentNode": zone}


def looped(zone: dict[str, Any], **nodes: dict[str, Any] | str) -> dict[str, Any]:
    """Return a loop `z` and the nodes inside of it."""
    return {"z": zone} | {name: inside("z", node) for name, node in nodes.items()}


def policy(node: dict[str, Any] | str, **options: Any) -> dict[str, Any]:
    """Return a node with a policy."""
    about = {"type": node} if isinstance(node, str) else node
    return {**about, "policy": options}


def notes(file: Path) -> list[str]:
    """Return the notes that nodes have taken in a file."""
    return file.read_text().splitlines() if file.exists() else []
