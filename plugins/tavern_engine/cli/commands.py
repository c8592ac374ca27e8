"""`tavern workflow run`, `tavern nodes list` and `tavern nodes show`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from tavern_engine.cli.follow import Documents, follow
from tavern_host import (
    EXECUTION_ENGINE,
    NODE_MANAGER,
    WORKFLOW_MANAGER,
    CommandOutput,
    InvalidInput,
    NotFound,
    PluginContext,
)
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.documents import MAX_DOCUMENT, read_document, read_document_file, read_json, wire_json
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.nodes import DataFlowType, NodeDefinition, SlotDefinition
from tavern_host.contracts.wire import without_surrogates
from tavern_host.contracts.workflows import Workflow
from tavern_importers.api.naming import require_kind


async def list_nodes(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """List all node types."""
    nodes = await context.services.get(NODE_MANAGER).list_nodes()
    yield CommandOutput(
        kind="table", columns=["type", "name", "category", "inputs", "outputs"], rows=[_row(node) for node in nodes]
    )
    yield CommandOutput(kind="result", data=[node.to_wire() for node in nodes])


def _row(node: NodeDefinition) -> list[str]:
    inputs, outputs = (", ".join(f"{k}: {slot.data_flow_type}" for k, slot in slots.items()) for slots in node.slots())
    return [node.full_type, node.display_name, node.category, inputs, outputs]


async def show_node(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show a node type with all its slots."""
    node = await context.services.get(NODE_MANAGER).get(str(arguments["type"]))
    yield CommandOutput(kind="message", text=f"{node.full_type}: {node.display_name}")
    yield CommandOutput(kind="text", text=node.description)
    inputs, outputs = node.slots()
    kinds = {"input": inputs, "setting": node.config_schema, "output": outputs}
    rows = [_slot(key, kind, slot) for kind, slots in kinds.items() for key, slot in (slots or {}).items()]
    yield CommandOutput(kind="table", columns=["slot", "kind", "type", "default", "what it is"], rows=rows)
    yield CommandOutput(kind="result", data=node.to_wire())


def _slot(key: str, kind: str, slot: SlotDefinition) -> list[str]:
    default = json.dumps(slot.default, ensure_ascii=False) if slot.has_default else ""
    is_needed = kind == "input" and slot.required and not slot.has_default
    return [key, kind, str(slot.data_flow_type), "required" if is_needed else default, slot.description or ""]


async def run(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Run a workflow, show what its nodes do while they do it, then its outputs."""
    workflow_id, workflow = await find_workflow(str(arguments["workflow"]), context)
    request = _request(
        workflow_id=workflow_id,
        workflow=workflow,
        inputs=await _inputs(arguments, workflow),
        overrides=await _overrides(arguments),
        targets=arguments["target"],
        priority=arguments["priority"] or 0,
        use_cache=not arguments["no_cache"],
    )
    documents = await documents_with(workflow, context)
    engine, call = context.services.get(EXECUTION_ENGINE), operator_call(context.project.id)
    async for output in follow(lambda: engine.submit(request, call=call), documents, context):
        yield output


async def documents_with(workflow: Workflow, context: PluginContext) -> Documents:
    """Return a workflow with its groups, for what their nodes are called."""
    groups = await context.services.get(WORKFLOW_MANAGER).closure(workflow)
    return Documents(workflow, {key: stored.workflow for key, stored in groups.items()})


def _request(**values: Any) -> RunRequest:
    try:
        return RunRequest(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise InvalidInput(f"--{first['loc'][0]}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


async def find_workflow(name: str, context: PluginContext) -> tuple[str | None, Workflow]:
    """Return the workflow in the file `name`, or the stored one of that id."""
    manager = context.services.get(WORKFLOW_MANAGER)
    await require_kind(context, Path(name), "workflow", wanted="workflow")
    document = await asyncio.to_thread(_document_in, Path(name))
    if document is not None:
        workflow = await manager.parse(document)
        return _id_in(context.project.folder("workflows"), Path(name)), workflow
    try:
        stored = await manager.get(name)
    except NotFound as error:
        raise NotFound(f"there is no file {name}, and {error.message}") from None
    return stored.id, stored.workflow


def _id_in(folder: Path, path: Path) -> str:
    """Return the id of the workflow in a file: its path below the project's folder of workflows, else its name."""
    whole, folder = path.resolve(), folder.resolve()
    return whole.relative_to(folder).with_suffix("").as_posix() if whole.is_relative_to(folder) else path.stem


def _document_in(path: Path) -> dict[str, Any] | None:
    return read_document_file(path) if path.is_file() else None


async def _inputs(arguments: dict[str, Any], workflow: Workflow) -> dict[str, JsonValue]:
    """Return the values of `--inputs`, and of `--input` above them. Raises `InvalidInput`."""
    values = await _values_of(arguments["inputs"])
    for item in arguments["input"]:
        key, found, text = item.partition("=")
        if not found or not key:
            raise InvalidInput(f"--input {item}: write KEY=VALUE")
        slot = workflow.interface_inputs.get(key)
        is_text = slot is not None and slot.data_flow_type is DataFlowType.STRING and not slot.multi
        values[key] = text if is_text else _json_or_text(text, f"--input {key}")
    return values


async def _values_of(file: object) -> dict[str, Any]:
    """Return the values in the file that an option names; none where it names no file."""
    return {} if file is None else await asyncio.to_thread(_values_in, str(file))


async def _overrides(arguments: dict[str, Any]) -> dict[str, dict[str, JsonValue]]:
    """Return the outputs of `--overrides`, and of `--override` above them. Raises `InvalidInput`."""
    values = await _values_of(arguments["overrides"])
    for item in arguments["override"]:
        place, found, text = item.partition("=")
        node, _, key = place.rpartition(".")
        if not (found and node and key):
            raise InvalidInput(f"--override {item}: write NODE.OUTPUT=VALUE")
        if not isinstance(values.setdefault(node, {}), dict):
            raise InvalidInput(f"--overrides: the outputs of {node!r} must be a JSON object")
        values[node][key] = _json_or_text(text, f"--override {place}")
    return values


def _values_in(file: str) -> dict[str, JsonValue]:
    """Return the JSON object in a file, or in standard input where it is `-`."""
    if file == "-":
        name, document = "standard input", read_document(sys.stdin.buffer.read(MAX_DOCUMENT + 1), name="standard input")
    else:
        name, document = file, read_document_file(Path(file))
    values: dict[str, JsonValue] = wire_json(document, name)
    return values


def _json_or_text(text: str, name: str) -> JsonValue:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return without_surrogates(text)
    except (ValueError, RecursionError):
        pass  # it is JSON, but no value that can be used
    value: JsonValue = read_json(text, name)
    return value
