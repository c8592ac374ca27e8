"""Says what names a workflow: groups of other workflows, tools, agents, scenes, panels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from tavern_agents.api.agents import AGENT_RUNTIME, AgentProfile
from tavern_host.context import Services
from tavern_host.contracts.documents import json_path
from tavern_host.contracts.errors import TavernError
from tavern_panels.api.panels import PANEL_MANAGER, Panel
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_workflows.api.dataflow import GROUP_REFERENCE
from tavern_workflows.api.workflows import NODE_GROUP, WorkflowUse, workflow_id_of
from tavern_workflows.store import Entry
from tavern_worlds.api.scenes import SCENE_MANAGER

_TOOL = "workflow:"


async def uses(workflow_id: str, entries: Mapping[str, Entry], services: Services) -> list[WorkflowUse]:
    """Return the places that name the workflow of an id, which need not exist."""
    found = [
        WorkflowUse(
            kind="workflow",
            id=entry.id,
            name=entry.workflow.name or entry.id,
            place=json_path("nodes", place, "configValues", GROUP_REFERENCE),
        )
        for _, entry in sorted(entries.items())
        for place, node in enumerate(entry.workflow.nodes)
        if node.type == NODE_GROUP and _means(node.config_values.get(GROUP_REFERENCE), workflow_id)
    ]
    if services.has(TOOL_MANAGER):
        for tool in await services.get(TOOL_MANAGER).list_tools():
            by_itself = tool.id == tool.source == f"{_TOOL}{workflow_id}"  # what every workflow is, without a file
            name = tool.display_name or tool.id
            if _means(tool.implementation.workflow_id, workflow_id) and not by_itself:
                found.append(WorkflowUse(kind="tool", id=tool.id, name=name, place="$.implementation.workflowId"))
            for place, dependency in enumerate(tool.dependencies):
                if dependency.startswith(_TOOL) and _means(dependency.removeprefix(_TOOL), workflow_id):
                    found.append(WorkflowUse(kind="tool", id=tool.id, name=name, place=f"$.dependencies[{place}]"))
    if services.has(AGENT_RUNTIME):
        found += [use async for use in _of_agents(workflow_id, services)]
    if services.has(SCENE_MANAGER):
        found += [use async for use in _of_scenes(workflow_id, services)]
    if services.has(PANEL_MANAGER):
        found += [use async for use in _of_panels(workflow_id, services)]
    return found


async def _of_agents(workflow_id: str, services: Services) -> AsyncIterator[WorkflowUse]:
    runtime = services.get(AGENT_RUNTIME)
    for summary in await runtime.list_agents():
        try:
            profile = await runtime.get(summary.id)
        except TavernError:  # changed meanwhile
            continue
        for place in _places(profile, workflow_id):
            yield WorkflowUse(kind="agent", id=profile.id, name=profile.name, place=place)


def _places(profile: AgentProfile, workflow_id: str) -> list[str]:
    """Return where a profile names a workflow."""
    single = ("core_deliberation_workflow_id", "observation_workflow_id")
    found = [json_path(field) for field in single if _means(getattr(profile, field), workflow_id)]
    skills = profile.skill_workflow_ids_inventory
    found += [json_path("skill_workflow_ids_inventory", i) for i, one in enumerate(skills) if _means(one, workflow_id)]
    for place, tool in enumerate(profile.tool_ids_inventory):
        if tool.startswith(_TOOL) and _means(tool.removeprefix(_TOOL), workflow_id):
            found.append(json_path("tool_ids_inventory", place))
    return found


async def _of_scenes(workflow_id: str, services: Services) -> AsyncIterator[WorkflowUse]:
    manager = services.get(SCENE_MANAGER)
    for summary in await manager.list_scenes():
        try:
            scene = await manager.get_scene(summary.id)
        except TavernError:  # it cannot be started, which the list of scenes says
            continue
        named = {
            ("scene_lifecycle_workflows", "on_scene_start"): scene.scene_lifecycle_workflows.on_scene_start,
            ("scene_lifecycle_workflows", "on_scene_end"): scene.scene_lifecycle_workflows.on_scene_end,
            ("turn_order", "workflow_id"): scene.turn_order.workflow_id,
        }
        for place, reference in named.items():
            if _means(reference, workflow_id):
                yield WorkflowUse(kind="scene", id=scene.id, name=scene.name, place=json_path(*place))


def _means(reference: object, workflow_id: str) -> bool:
    return isinstance(reference, str) and (reference == workflow_id or workflow_id_of(reference) == workflow_id)


async def _of_panels(workflow_id: str, services: Services) -> AsyncIterator[WorkflowUse]:
    manager = services.get(PANEL_MANAGER)
    for summary in await manager.list_panels():
        try:
            panel = Panel.model_validate((await manager.get(summary.id)).document)
        except TavernError:  # it cannot be used, which the list of panels says
            continue
        for place, element in enumerate(panel.elements):
            if element.kind == "workflow" and _means(element.target, workflow_id):
                at = json_path("elements", place, "target")
                yield WorkflowUse(kind="panel", id=summary.id, name=panel.name, place=at)
