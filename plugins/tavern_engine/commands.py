"""`tavern workflow run` and `tavern nodes list`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

from pydantic import JsonValue

from tavern_host import (
    EXECUTION_ENGINE,
    NODE_MANAGER,
    WORKFLOW_MANAGER,
    CommandOutput,
    InvalidInput,
    NotFound,
    PluginContext,
)
from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.nodes import DataFlowType, NodeDefinition
from tavern_host.contracts.workflows import Workflow

_WATCHED = ("NODE_EXECUTING", "NODE_COMPLETE", "NODE_ERROR", "EXECUTION_STATUS_UPDATE")


async def list_nodes(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """List all node types."""
    nodes = await context.services.get(NODE_MANAGER).list_nodes()
    yield CommandOutput(
        kind="table", columns=["type", "name", "category", "inputs", "outputs"], rows=[_row(node) for node in nodes]
    )
    yield CommandOutput(kind="result", data=[node.to_wire() for node in nodes])


def _row(node: NodeDefinition) -> list[str]:
    inputs, outputs = (", ".join(f"{k}: {slot.data_flow_type}" for k, slot in slots.items()) for slots in node.slots())
    return [node.full_type, node.display_name, node.category, inputs, outputs]


async def run(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Run a workflow, show what its nodes do while they do it, then its outputs."""
    workflow_id, workflow = await _find(str(arguments["workflow"]), context)
    request = RunRequest(workflow_id=workflow_id, workflow=workflow, inputs=_inputs(arguments.get("input"), workflow))
    engine = context.services.get(EXECUTION_ENGINE)
    watching = context.events.subscribe(*_WATCHED)
    names = {node.id: node.display_name or node.type for node in workflow.nodes}
    try:
        run_id = await engine.submit(request)
    except InvalidInput as error:
        for output in _refusal(error):
            yield output
        return
    try:
        async for event in watching:
            if isinstance(event, Gap):
                if (await engine.get(run_id)).status.is_final:
                    break
            elif event.payload.get("promptId") == run_id:
                text = _progress(event, names)
                if text:
                    yield CommandOutput(kind="progress", text=text)
                if event.type == "EXECUTION_STATUS_UPDATE" and RunStatus(str(event.payload["status"])).is_final:
                    break
        finished = await engine.wait(run_id)
    finally:
        await watching.close()
        await engine.interrupt(run_id)  # does nothing to a run that has finished
    for output in _ending(finished, workflow):
        yield output


async def _find(name: str, context: PluginContext) -> tuple[str | None, Workflow]:
    """Return the workflow in the file `name`, or the stored one of that id."""
    manager = context.services.get(WORKFLOW_MANAGER)
    document = await asyncio.to_thread(_document_in, Path(name))
    if document is not None:
        workflow = await manager.parse(document)
        return workflow.id or Path(name).stem, workflow
    try:
        stored = await manager.get(name)
    except NotFound as error:
        raise NotFound(f"there is no file {name}, and {error.message}") from None
    return stored.id, stored.workflow


def _document_in(path: Path) -> dict[str, Any] | None:
    return read_document_file(path) if path.is_file() else None


def _inputs(given: JsonValue, workflow: Workflow) -> dict[str, JsonValue]:
    """Return `--input` values by key. Raises `InvalidInput` for one without `=`."""
    values: dict[str, JsonValue] = {}
    for item in given if isinstance(given, list) else []:
        key, found, text = str(item).partition("=")
        if not found or not key:
            raise InvalidInput(f"--input {item}: write KEY=VALUE")
        slot = workflow.interface_inputs.get(key)
        is_text = slot is not None and slot.data_flow_type is DataFlowType.STRING and not slot.multi
        values[key] = text if is_text else _json_or_text(text)
    return values


def _json_or_text(text: str) -> JsonValue:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        value: JsonValue = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text
    return value


def _progress(event: Event, names: dict[str, str]) -> str | None:
    node_id = str(event.payload.get("nodeId", ""))
    if node_id not in names:
        return None
    name = f"{node_id} ({names[node_id]})"
    if event.type == "NODE_EXECUTING":
        return f"{name} …"
    if event.type == "NODE_COMPLETE":
        return f"{name} done"
    details: Any = event.payload.get("errorDetails")
    return f"{name} failed: {details.get('message') if isinstance(details, dict) else details}"


def _refusal(error: InvalidInput) -> list[CommandOutput]:
    """Return every problem of a run that was not begun, one a line."""
    problems = error.info.details.get("problems")
    items = [p for p in problems if isinstance(p, dict)] if isinstance(problems, list) else []
    lines = [f"{p.get('path')}: {p.get('message')}" for p in items] or [error.message]
    return [CommandOutput(kind="failure", text=line, exit_code=2) for line in lines]


def _ending(finished: Run, workflow: Workflow) -> list[CommandOutput]:
    """Return what is said of a finished run."""
    said = []
    for key, value in finished.outputs.items():
        slot = workflow.interface_outputs.get(key)
        title = (slot.display_name if slot is not None else None) or key
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        said.append(CommandOutput(kind="text", text=f"{key if title == '*' else title}: {text}"))
    said.append(CommandOutput(kind="result", data=finished.to_json()))
    if finished.status is not RunStatus.COMPLETE:
        reason = finished.error.message if finished.error else f"the run ended as {finished.status}"
        said.append(CommandOutput(kind="failure", text=reason, exit_code=1))
    return said
