"""`tavern workflow history`, `restore`, `uses` and `search`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic import JsonValue

from tavern_host import WORKFLOW_MANAGER, CommandOutput, NotFound, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_workflows.api.workflows import workflow_id_of


async def history(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """List the revisions of a workflow, the newest first."""
    named, limit = arguments["workflow"], int(str(arguments["limit"]))
    found = await context.services.get(WORKFLOW_MANAGER).history(None if named is None else str(named), limit=limit)
    yield CommandOutput(
        kind="table",
        columns=["workflow", "number", "kind", "at", "by", "what"],
        rows=[
            [
                one.workflow,
                str(one.number),
                one.kind,
                f"{one.at:%Y-%m-%d %H:%M:%S}",
                one.by or "",
                one.name or one.reason,
            ]
            for one in found
        ],
    )
    yield CommandOutput(kind="result", data=[one.to_json() for one in found])


async def restore(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Make a revision the file again."""
    manager, workflow_id = context.services.get(WORKFLOW_MANAGER), workflow_id_of(str(arguments["workflow"]))
    value = arguments["number"]
    number = int(str(value)) if value is not None else await _last(workflow_id, context)
    kept = await manager.get(f"{workflow_id}@r{number}")
    saved = await manager.save(workflow_id, kept.workflow, call=operator_call(context.project.id))
    yield CommandOutput(kind="message", text=f"the workflow {workflow_id} is as in revision {number} again")
    yield CommandOutput(kind="result", data={"id": saved.id, "number": number, "revision": saved.revision})


async def _last(workflow_id: str, context: PluginContext) -> int:
    """Return the last revision of a file that is not the file as it is. Raises `NotFound`."""
    manager = context.services.get(WORKFLOW_MANAGER)
    try:
        present = (await manager.get(workflow_id)).revision
    except NotFound:
        present = ""
    for one in await manager.history(workflow_id, limit=500):
        if one.kind != "draft" and one.revision != present:
            return one.number
    raise NotFound(f"nothing else is known of the workflow {workflow_id!r}", workflow=workflow_id)


async def uses(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """List what names a workflow."""
    found = await context.services.get(WORKFLOW_MANAGER).uses(str(arguments["workflow"]))
    rows = [[one.kind, one.id, one.name, one.place] for one in found]
    yield CommandOutput(kind="table", columns=["kind", "id", "name", "place"], rows=rows)
    yield CommandOutput(kind="result", data=[one.to_json() for one in found])


async def search(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Find words in all workflows."""
    found = await context.services.get(WORKFLOW_MANAGER).search(str(arguments["text"]))
    rows = [[one.workflow, one.node or "", one.path, " ".join(one.text.split())] for one in found]
    yield CommandOutput(kind="table", columns=["workflow", "node", "path", "text"], rows=rows)
    yield CommandOutput(kind="result", data=[one.to_json() for one in found])
