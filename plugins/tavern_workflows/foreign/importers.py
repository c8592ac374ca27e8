"""The importers of workflows: our own, and those of graphs of other programs."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from pydantic import JsonValue

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host.context import PluginContext
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.nodes import NodeDefinition
from tavern_importers.api.importers import MAP_FILE, ImportedThing, ImporterInfo, ImportReport, ImportRequest
from tavern_workflows.api.placeholders import STANDS_FOR
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, WorkflowManager
from tavern_workflows.foreign.comfyui import read_comfyui
from tavern_workflows.foreign.conversion import Conversion, Converted, MappedNode, next_steps
from tavern_workflows.foreign.dify import read_dify
from tavern_workflows.foreign.graph import ForeignGraph
from tavern_workflows.foreign.langflow import read_langflow
from tavern_workflows.foreign.n8n import read_n8n
from tavern_workflows.web import free_ids

OWN_PICTURE = "tavern-workflow"
_SUFFIX = re.compile(r"(\.workflow)?\.(json|png|ya?ml)$", re.IGNORECASE)
_MOST_PROBLEMS = 5
_GRAPHS: dict[str, Callable[[dict[str, Any]], ForeignGraph]] = {
    "comfyui": read_comfyui,
    "n8n": read_n8n,
    "langflow": read_langflow,
    "dify": read_dify,
}


def importers() -> list[ImporterInfo]:
    """Return the kinds of graphs, those with clearer marks first."""
    of = partial(ImporterInfo, handler="tavern_workflows.foreign.importers:import_workflow")
    rows: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
        ("workflow-picture", "picture of a workflow", {"required": [OWN_PICTURE]}, {"forms": ["png"]}),
        ("comfyui-picture", "picture with a ComfyUI workflow", _PICTURE, {"forms": ["png"]}),
        ("comfyui", "ComfyUI workflow", {"anyOf": [_COMFYUI, _COMFYUI_API]}, {}),
        ("n8n", "n8n workflow", _N8N, {}),
        ("langflow", "Langflow flow", _LANGFLOW, {}),
        ("dify", "Dify app", _DIFY, {"forms": ["yaml", "json"]}),
        ("workflow", "workflow", _OWN, {}),
    )
    return [of(name=name, title=title, marks={"type": "object", **marks}, **more) for name, title, marks, more in rows]


_LINKS = {"type": "array", "items": {"type": ["array", "object"]}}
_PICTURE = {"anyOf": [{"required": [key], "properties": {key: {"type": "object"}}} for key in ("workflow", "prompt")]}
_COMFYUI = {"required": ["nodes", "links"], "properties": {"nodes": {"type": "array"}, "links": _LINKS}}
_CLASSES = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {"type": "object", "required": ["class_type"]},
}
_COMFYUI_API = {"anyOf": [_CLASSES, {"required": ["prompt"], "properties": {"prompt": _CLASSES}}]}
_N8N = {
    "required": ["nodes", "connections"],
    "properties": {"nodes": {"type": "array"}, "connections": {"type": "object"}},
}
_DATA = {"type": "object", "required": ["nodes", "edges"], "properties": {"nodes": {"type": "array"}}}
_LANGFLOW = {"required": ["data"], "properties": {"data": _DATA}}
_DIFY = {
    "required": ["app"],
    "properties": {"kind": {"const": "app"}, "app": {"type": "object", "required": ["mode"]}},
    "anyOf": [{"required": ["workflow"]}, {"required": ["model_config"]}, {"required": ["kind"]}],
}
_OWN = {"required": ["nodes"], "properties": {"nodes": {"type": "array"}}}


async def import_workflow(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Keep a graph as a workflow of the project."""
    manager = context.services.get(WORKFLOW_MANAGER)
    name = request.options.name or _SUFFIX.sub("", request.file.name)
    definitions = await _definitions(context)
    converted, namespace = await asyncio.to_thread(_converted, request, name, definitions)
    workflow = await manager.parse(converted.document)
    if converted.document["nodes"] and not all("position" in node for node in converted.document["nodes"]):
        keep = [node.id for node in workflow.nodes if node.position]
        places = await manager.layout(workflow, keep=keep)
        nodes = [
            node.model_copy(update={"position": {"x": place.x, "y": place.y}})
            if (place := places.positions.get(node.id)) is not None
            else node
            for node in workflow.nodes
        ]
        workflow = workflow.model_copy(update={"nodes": nodes})
    async for candidate in free_ids(workflow.name, manager):
        workflow_id = candidate
        if request.options.dry_run:
            break
        with suppress(Conflict):  # somebody has taken it meanwhile
            await manager.save(workflow_id, workflow, expected_revision="", call=request.call)
            break
    else:
        raise Conflict(f"there are too many workflows called {workflow.name!r:.80}; give another name with --name")
    steps = next_steps(converted.placeholders, namespace)
    return ImportReport(
        things=[ImportedThing(kind="workflow", id=workflow_id, name=workflow.name, page=f"/workflows/{workflow_id}")],
        without_effect=converted.without_effect,
        next_steps=[*steps, *await _problems(manager, converted.document)],
    )


def _converted(request: ImportRequest, name: str, definitions: Mapping[str, NodeDefinition]) -> tuple[Converted, str]:
    value, kind = request.object(), request.kind.removesuffix("-picture")
    if kind == "workflow" and isinstance(inner := value.get(OWN_PICTURE), dict):
        value = inner
    if kind == "workflow":
        document = {key: one for key, one in value.items() if key != "id"}
        return Converted({**document, "name": request.options.name or str(document.get("name") or name)}, Counter()), ""
    graph = _GRAPHS[kind](value)
    if not graph.nodes:
        raise InvalidInput(f"{request.file.name} is a graph of {graph.program} without nodes")
    return Conversion(graph, definitions, _mapping(request.counterparts)).make(
        request.options.name or graph.name or name
    ), graph.namespace


def _mapping(counterparts: Mapping[str, JsonValue]) -> dict[str, MappedNode]:
    return {key: read_model(MappedNode, entry, f"{MAP_FILE}: {key}") for key, entry in counterparts.items()}


async def _definitions(context: PluginContext) -> dict[str, NodeDefinition]:
    if not context.services.has(NODE_MANAGER):
        return {}
    return {one.full_type: one for one in await context.services.get(NODE_MANAGER).list_nodes()}


async def _problems(manager: WorkflowManager, document: dict[str, JsonValue]) -> list[str]:
    """Return the other faults that keep a workflow from being run, such as a circle of links."""
    found = [one.message for one in await manager.check(document) if one.severity == "error"]
    told = [one for one in dict.fromkeys(found) if STANDS_FOR not in one]
    more = [f"and {len(told) - _MOST_PROBLEMS} more, which `tavern workflow check` lists"]
    return [f"mend it: {one}" for one in told[:_MOST_PROBLEMS]] + (more if len(told) > _MOST_PROBLEMS else [])
