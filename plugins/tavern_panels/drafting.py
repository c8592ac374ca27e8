"""New panels: a document with an element for each workflow and agent that is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_host import PluginContext
from tavern_panels.api.names import new_id
from tavern_panels.files import Document
from tavern_panels.layout import SIZES
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

_SPLIT = {"workflow": (7, 0), "agent": (5, 7)}
"""Columns of an element, and the first of them, where there are both."""


async def drafted(
    context: PluginContext, name: str, workflows: Sequence[str], agents: Sequence[str], description: str = ""
) -> Document:
    """Return the document of a new panel. Without a name it has that of the first thing on it. Raises `NotFound`."""
    manager, runtime = context.services.get(WORKFLOW_MANAGER), context.services.get(AGENT_RUNTIME)
    elements: list[Any] = []
    rows = {"workflow": 0, "agent": 0}
    is_split = bool(workflows and agents)  # conversations stand beside the workflows
    for kind, target in [("workflow", one) for one in workflows] + [("agent", one) for one in agents]:
        if kind == "workflow":
            stored = await manager.get(target)
            target, title = stored.id, stored.workflow.name or stored.id
        else:
            title = (await runtime.get(target)).name
        width, height = SIZES[kind]
        width, column = _SPLIT[kind] if is_split else (width, 0)
        id = new_id(target, [one["id"] for one in elements])
        place = {"x": column, "y": rows[kind], "w": width, "h": height}
        elements.append({"id": id, "kind": kind, "target": target, "title": title, **place})
        rows[kind] += height
    named = name or (elements[0]["title"] if elements else "") or "Panel"
    return {"name": named, "description": description, "published": False, "elements": elements}
