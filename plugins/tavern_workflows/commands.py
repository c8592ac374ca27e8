"""`tavern workflow check` and `tavern workflow list`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import JsonValue

from tavern_host import WORKFLOW_MANAGER, CommandOutput, NotFound, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.documents import read_document_file
from tavern_importers.api.naming import require_kind
from tavern_workflows.api.workflows import WorkflowProblem, workflow_id_of
from tavern_workflows.report import MOST_PROBLEMS


async def check(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Say everything that is wrong with one file or stored workflow; warnings alone are no failure."""
    path = Path(str(arguments["file"]))
    await require_kind(context, path, "workflow", wanted="workflow")
    problems = await context.services.get(WORKFLOW_MANAGER).check(await _document(path, context))
    errors = [p for p in problems if p.severity == "error"]
    for problem in problems:
        yield CommandOutput(kind="message", text=_line(problem))
    yield CommandOutput(
        kind="result",
        data={"file": str(path), "ok": not errors, "problems": [p.to_json() for p in problems]},
    )
    warnings = len(problems) - len(errors)
    warned = _count(warnings, "warning") if warnings else ""
    if errors and len(problems) > MOST_PROBLEMS:
        yield CommandOutput(kind="failure", text=f"{path.name} has more than {MOST_PROBLEMS:,} problems", exit_code=2)
    elif errors:
        text = f"{path.name} has {_count(len(errors), 'problem')}{f' and {warned}' if warned else ''}"
        yield CommandOutput(kind="failure", text=text, exit_code=2)
    else:
        text = f"{path.name} is a workflow that can be run{f', with {warned}' if warned else ''}"
        yield CommandOutput(kind="message", text=text)


async def _document(path: Path, context: PluginContext) -> dict[str, JsonValue]:
    """Return the document in a file, else that of the stored workflow of this id."""
    if await asyncio.to_thread(path.is_file):
        return await asyncio.to_thread(read_document_file, path)
    try:
        stored = await context.services.get(WORKFLOW_MANAGER).get(str(path))
    except NotFound as error:
        raise NotFound(f"there is no file {path}, and {error.message}") from None
    return stored.workflow.model_dump(mode="json", exclude_unset=True)


def _line(problem: WorkflowProblem) -> str:
    """Return a problem as a line, with the node beside its place in the file."""
    mark = "" if problem.severity == "error" else f"{problem.severity}: "
    node = f" (node {problem.node!r})" if problem.node is not None else ""
    return f"{mark}{problem}{node}"


def _count(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


async def list_all(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """List all workflows that can be read."""
    found = await context.services.get(WORKFLOW_MANAGER).list_workflows()
    rows = [[w.id, w.name, w.source, w.revision] for w in found]
    yield CommandOutput(kind="table", columns=["id", "name", "source", "revision"], rows=rows)
    yield CommandOutput(kind="result", data=[w.to_json() for w in found])


async def save(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Save a file's document as a workflow of the project."""
    path = Path(str(arguments["file"]))
    await require_kind(context, path, "workflow", wanted="workflow")
    document = await asyncio.to_thread(read_document_file, path)
    manager = context.services.get(WORKFLOW_MANAGER)
    saved = await manager.save(
        str(arguments["id"] or path.stem),
        await manager.parse(document),
        expected_revision=None if arguments["replace"] else "",
        call=operator_call(context.project.id),
    )
    yield CommandOutput(kind="message", text=f"saved the workflow {saved.id} at revision {saved.revision}")
    yield CommandOutput(kind="result", data={"id": saved.id, "revision": saved.revision})


async def move(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Give a workflow another id, and say what still names the old one."""
    workflow, to = str(arguments["workflow"]), str(arguments["to"])
    manager = context.services.get(WORKFLOW_MANAGER)
    moved = await manager.move(workflow, to, call=operator_call(context.project.id))
    yield CommandOutput(kind="message", text=f"{workflow} is {moved.id} now")
    uses = await manager.uses(workflow)
    for use in uses:
        yield CommandOutput(
            kind="message", text=f"the {use.kind} {use.id} still names {workflow_id_of(workflow)}: {use.place}"
        )
    left = [use.to_json() for use in uses]
    yield CommandOutput(kind="result", data={"id": moved.id, "revision": moved.revision, "uses": left})


async def delete(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Delete a workflow."""
    workflow = str(arguments["workflow"])
    await context.services.get(WORKFLOW_MANAGER).delete(workflow, call=operator_call(context.project.id))
    yield CommandOutput(kind="message", text=f"deleted the workflow {workflow}")
    yield CommandOutput(kind="result", data={"id": workflow})
