"""`tavern workflow check` and `tavern workflow list`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import JsonValue

from tavern_host import WORKFLOW_MANAGER, CommandOutput, PluginContext
from tavern_host.contracts.documents import read_document_file


async def check(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Say everything that is wrong with one file; warnings alone are no failure."""
    path = Path(str(arguments["file"]))
    problems = await context.services.get(WORKFLOW_MANAGER).check(await asyncio.to_thread(read_document_file, path))
    errors = [p for p in problems if p.severity == "error"]
    for problem in problems:
        mark = "" if problem.severity == "error" else f"{problem.severity}: "
        yield CommandOutput(kind="text", text=f"{mark}{problem}")
    yield CommandOutput(
        kind="result",
        data={"file": str(path), "ok": not errors, "problems": [p.to_json() for p in problems]},
    )
    if errors:
        count = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
        yield CommandOutput(kind="failure", text=f"{path.name} has {count}", exit_code=2)
    else:
        yield CommandOutput(kind="text", text=f"{path.name} is a workflow that can be run")


async def list_all(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """List all workflows that can be read."""
    found = await context.services.get(WORKFLOW_MANAGER).list_workflows()
    rows = [[w.id, w.name, w.source, w.revision] for w in found]
    yield CommandOutput(kind="table", columns=["id", "name", "source", "revision"], rows=rows)
    yield CommandOutput(kind="result", data=[w.to_json() for w in found])
