"""Placeholders: nodes that stand for one of another program, which has no counterpart here. A run refuses them."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_host.contracts.workflows import WorkflowNode
from tavern_importers.api.importers import MAP_FILE

PLACEHOLDER = "placeholder"
"""The key under which such a node says which node of which program it stands for."""

STANDS_FOR = "it stands for"
"""What the message about a placeholder says, by which it differs from those about other nodes."""


def stands_for(node: WorkflowNode) -> str:
    """Return in words which node of which program a node without a type here stands for, and what to do; else
    nothing."""
    about: JsonValue = (node.model_extra or {}).get(PLACEHOLDER)
    if not isinstance(about, dict):
        return ""
    program, kind = (str(about.get(key) or "another program")[:100] for key in ("program", "type"))
    return (
        f"{STANDS_FOR} {kind!r} of {program}, which has no counterpart here. Put a node of this host in its place, or "
        f"say in {MAP_FILE} which one it is and import the file again, or install a plugin that brings it"
    )
