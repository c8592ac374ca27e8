"""Says which workflows are large, so that work on them is done in a thread: nobody waits for it."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_host.contracts.workflows import Workflow

LARGE = 500
"""How many nodes and edges are looked at on the event loop; more of them in a thread."""


def is_large(workflow: Workflow | JsonValue) -> bool:
    """Return whether a workflow, or the document of one, has very many nodes and edges."""
    if isinstance(workflow, Workflow):
        return len(workflow.nodes) + len(workflow.edges) > LARGE
    parts = [workflow.get("nodes"), workflow.get("edges")] if isinstance(workflow, dict) else []
    return sum(len(part) for part in parts if isinstance(part, list)) > LARGE
