"""Nodes that read the history and restore from it; the tools are made of them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from tavern_host import WORKFLOW_MANAGER, NodeContext, Slot, node


@node(category="Workflows", display_name="Commits of a workflow", cached=False)
async def log(
    context: NodeContext,
    workflow: Annotated[str, Slot("A workflow's id; all workflows, where it is empty.")] = "",
    most: Annotated[int, Slot("How many.")] = 20,
) -> Annotated[list[dict[str, str]], Slot("Commits, the newest first.", key="commits")]:
    """Lists the commits of a workflow, or of all."""
    from ..repository import WorkflowRepository

    return await asyncio.to_thread(context.plugin.own(WorkflowRepository).log, workflow, most)


@node(category="Workflows", display_name="Restore a workflow", cached=False)
async def restore(
    workflow: Annotated[str, Slot("A workflow's id.")],
    commit: Annotated[str, Slot("A commit, or the beginning of its name.")],
    context: NodeContext,
) -> Annotated[str, Slot("The revision that it has now.", key="revision")]:
    """Saves a workflow as it was in a commit."""
    workflows = context.plugin.services.get(WORKFLOW_MANAGER)
    earlier = await workflows.get(f"{workflow}@{commit}")
    return (await workflows.save(workflow, earlier.workflow, call=context.call)).revision
