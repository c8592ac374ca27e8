"""Gives a run its `greeting_prefix`, where the workflow has such an input and the run says nothing of it."""

from __future__ import annotations

from tavern_host import WORKFLOW_MANAGER, PluginContext, TavernError
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

INPUT = "greeting_prefix"


async def with_greeting(request: RunRequest, context: PluginContext) -> RunRequest | None:
    """Return the request with the greeting filled in, or None where there is nothing to fill in."""
    if not context.settings.get("enableFeatureX"):
        return None
    workflow = await _workflow_of(request, context)
    if workflow is None or INPUT not in workflow.interface_inputs or INPUT in request.inputs:
        return None
    inputs = {**request.inputs, INPUT: context.settings.get("greetingPrefix")}
    return request.model_copy(update={"inputs": inputs})


async def _workflow_of(request: RunRequest, context: PluginContext) -> Workflow | None:
    if request.workflow is not None or request.workflow_id is None:
        return request.workflow
    try:
        return (await context.services.get(WORKFLOW_MANAGER).get(request.workflow_id)).workflow
    except TavernError:
        return None  # the host's own check reports what is wrong with it
