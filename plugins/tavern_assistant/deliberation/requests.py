"""Requests to the assistant: the world state that belongs to one, and the run of the agent that works on it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tavern_agents.api.agents import AGENT_RUNTIME, AgentRequest, AgentRun
from tavern_assistant.patches.workflows import present
from tavern_engine.api.executions import EXECUTION_ENGINE, RunFilter
from tavern_host import PluginContext
from tavern_host.common.redaction import masked
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.executions import Run
from tavern_host.contracts.wire import Model
from tavern_host.contracts.workflows import InterfaceSlot
from tavern_panels.api.panels import PANEL_MANAGER
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

AGENT = "creation-assistant"
"""The profile of the assistant."""

Mode = Literal["preview", "auto"]

_MOST_OFFERED = 60
"""How many workflows are described for a panel."""


class AssistantRequest(Model):
    """A request to the assistant about a workflow, or a panel: in the mode `preview` it proposes changes, in `auto` it
    makes them.

    `run_id` is the run that is meant, by default the latest one of the workflow; `selected` are nodes that are meant.
    `conversation_id` is the conversation that the request continues, or begins.
    """

    workflow_id: str | None = Field(default=None, min_length=1, max_length=1000)
    panel_id: str | None = Field(default=None, min_length=1, max_length=200)
    message: str = Field(pattern=r"\S", max_length=20_000)
    mode: Mode = "preview"
    conversation_id: str | None = Field(default=None, min_length=1, max_length=200)
    run_id: str | None = Field(default=None, max_length=200)
    selected: list[str] = Field(default_factory=list, max_length=1000)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.workflow_id is None) == (self.panel_id is None):
            raise ValueError("a request is about a `workflowId` or a `panelId`, and not about both")
        return self


async def start(context: PluginContext, request: AssistantRequest, call: CallContext) -> AgentRun:
    """Let the assistant work on a request; return at once. Raises `NotFound` for a workflow, a panel or a
    run."""
    world = await (_world if request.panel_id is None else _panel_world)(context, request)
    fields: dict[str, Any] = {"message": request.message, "conversation_id": request.conversation_id}
    asked = AgentRequest.construct(profile_id=AGENT, world_state=world, **fields)
    return await context.services.get(AGENT_RUNTIME).start(asked, call=call)


async def _world(context: PluginContext, request: AssistantRequest) -> dict[str, Any]:
    """Return the world of a request: the workflow as it is being edited, and the record of its latest run."""
    manager = context.services.get(WORKFLOW_MANAGER)
    id = (await manager.get(str(request.workflow_id))).id
    document, revision = await present(manager, id)
    return {
        "request": request.message,
        "workflowId": id,
        "workflow": document,
        "revision": revision,
        "mode": request.mode,
        "conversationId": request.conversation_id,
        "selected": list(request.selected),
        "run": await latest_record(context, id, request.run_id),
    }


async def _panel_world(context: PluginContext, request: AssistantRequest) -> dict[str, Any]:
    """Return the world of a request about a panel: the panel, and what may stand on it."""
    panel = await context.services.get(PANEL_MANAGER).get(str(request.panel_id))
    manager = context.services.get(WORKFLOW_MANAGER)
    workflows = []
    for summary in (await manager.list_workflows())[:_MOST_OFFERED]:
        try:
            found = (await manager.get(summary.id)).workflow
        except TavernError:  # it is broken, and of no use on a panel
            continue
        slots = {"inputs": found.interface_inputs, "outputs": found.interface_outputs}
        about = {side: {key: _slot(slot) for key, slot in all.items()} for side, all in slots.items()}
        workflows.append({"id": summary.id, "name": summary.name, "description": found.description or "", **about})
    agents = await context.services.get(AGENT_RUNTIME).list_agents()
    return {
        "request": request.message,
        "panelId": panel.id,
        "panel": masked(panel.document),
        "revision": panel.revision,
        "mode": request.mode,
        "conversationId": request.conversation_id,
        "selected": list(request.selected),
        "workflows": workflows,
        "agents": [{"id": one.id, "name": one.name, "description": one.description} for one in agents],
    }


def _slot(slot: InterfaceSlot) -> str:
    name = f" ({slot.display_name})" if slot.display_name else ""
    return f"{slot.data_flow_type.value}{name}{', required' if slot.required else ''}"


async def latest_record(context: PluginContext, workflow_id: str, run_id: str | None = None) -> dict[str, Any] | None:
    """Return the record of a run as the assistant reads it, by default the latest of a workflow; None where there is
    none."""
    if not context.services.has(EXECUTION_ENGINE):
        return None
    engine = context.services.get(EXECUTION_ENGINE)
    if run_id is None:
        latest = await engine.history(RunFilter(workflow_id=workflow_id, limit=1))
        if not latest:
            return None
        run_id = latest[0].id
    try:
        return await asyncio.to_thread(run_record, await engine.show(run_id))
    except NotFound:
        return None


def run_record(run: Run) -> dict[str, Any]:
    """Return how a run ended, and what became of each node, with its time."""
    kept = {"status", "iterations", "cached", "attempts"}
    nodes = {}
    for id, state in run.nodes.items():
        nodes[id] = state.model_dump(mode="json", include=kept, exclude_defaults=True)
        if state.started is not None and state.finished is not None:
            nodes[id]["seconds"] = round(state.finished - state.started, 3)
        if state.error is not None:
            nodes[id]["error"] = state.error.message
    began, ended = run.started_at, run.finished_at
    return {
        "id": run.id,
        "status": run.status.value,
        "seconds": None if began is None or ended is None else round((ended - began).total_seconds(), 3),
        "error": None if run.error is None else run.error.message,
        "nodes": nodes,
    }
