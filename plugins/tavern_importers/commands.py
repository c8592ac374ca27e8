"""The commands `tavern import` and `tavern export`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tavern_host import CommandOutput, InvalidInput, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.errors import Conflict, describe
from tavern_host.storage.files import write_atomic
from tavern_importers.api.importers import IMPORT_MANAGER, ImportKind, ImportOptions, ImportResult
from tavern_importers.api.projects import ProjectArchive
from tavern_importers.folders import from_path
from tavern_importers.project import exported

_SHOWN = 40
"""How many of the things that came a table has."""
_COLUMNS = ["kind", "what it is", "imported by", "forms"]


async def import_file(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Import a file, and say what came, what has no effect, and what to do next."""
    service = context.services.get(IMPORT_MANAGER)
    kinds = await service.kinds()
    if arguments["kinds"]:
        yield CommandOutput(kind="table", columns=_COLUMNS, rows=[_row(one) for one in kinds])
        yield CommandOutput(kind="result", data=[one.to_json() for one in kinds])
        return
    if arguments["file"] is None:
        raise InvalidInput("say which file: tavern import FILE; `tavern import --kinds` lists what can be imported")
    entries = [entry for one in kinds for entry in one.entries]
    file = await asyncio.to_thread(from_path, Path(arguments["file"]), entries)
    options = ImportOptions(
        name=arguments["name"] or "",
        only=arguments["only"],
        hosts=arguments["host"],
        replace=arguments["replace"],
        dry_run=arguments["dry_run"],
    )
    call = operator_call(context.project.id)
    found = await service.import_file(file, kind=arguments["as"], options=options, call=call)
    for output in _said(found, file.name):
        yield output
    yield CommandOutput(kind="result", data=found.to_json())


async def export_project(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Write the project as one new file."""
    path = Path(arguments["file"])
    archive = await exported(context, arguments["part"], operator_call(context.project.id))
    await asyncio.to_thread(_write_new, path, archive)
    yield CommandOutput(kind="message", text=f"Wrote {len(archive.files):,} files to {path}")
    yield CommandOutput(kind="result", data={"file": str(path), "files": [*archive.files]})


def _write_new(path: Path, archive: ProjectArchive) -> None:
    try:
        if path.exists():
            raise Conflict(f"{path} is there already: give the name of a new file")
        write_atomic(path, archive.model_dump_json(by_alias=True, indent=1).encode())
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {describe(error)}") from None


def _row(kind: ImportKind) -> list[str]:
    return [kind.name, kind.title, kind.plugin, ", ".join([*kind.forms, *kind.entries])]


def _said(found: ImportResult, name: str) -> list[CommandOutput]:
    shown = found.things[:_SHOWN]
    rows = [[one.kind, one.id, one.name] for one in shown]
    columns = ["what came", "id", "name"]
    if found.kind.startswith("project"):
        rows, columns = [[one.kind, one.id, one.state] for one in shown], ["what came", "id", "state"]
    said = [CommandOutput(kind="message", text=f"{name} is of the kind “{found.title}”")]
    if found.dry_run:
        said.append(CommandOutput(kind="message", text="Nothing of it is kept"))
    if rows:
        said.append(CommandOutput(kind="table", columns=columns, rows=rows))
    if (more := len(found.things) - _SHOWN) > 0:
        said.append(CommandOutput(kind="message", text=f"and {more:,} more, which --json lists"))
    said += [CommandOutput(kind="message", text=f"has no effect: {one}") for one in found.without_effect]
    return said + [CommandOutput(kind="message", text=f"next: {one}") for one in found.next_steps]
