"""The commands `tavern kb …`; each hands over to the service and shows what it gave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tavern_host import CommandOutput, InvalidInput, NotFound, PluginContext
from tavern_host.contracts.documents import read_document_bytes, read_model
from tavern_host.storage.files import write_atomic
from tavern_importers.api.naming import require_kind
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, BaseHeader, KnowledgeBase
from tavern_knowledge.web import ExportQuery

Arguments = dict[str, Any]

_TAKEN = ("character", "character-picture", "character-archive", "lorebook", "text")
_SHOWN = 100
"""How many characters of a text a table shows."""


async def list_bases(arguments: Arguments, context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the bases as a table, and what is wrong with their files."""
    found = await _kb(context).bases()
    rows = [[base.id, base.name, str(base.entries), _short(base.description)] for base in found]
    yield CommandOutput(kind="table", columns=["id", "name", "entries", "description"], rows=rows)
    for base in found:
        if base.problem is not None:
            yield CommandOutput(kind="progress", text=f"{base.file}: {base.problem}")
    yield CommandOutput(kind="result", data=[base.to_json() for base in found])


async def search(arguments: Arguments, context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the entries that fit best, of the project's bases and of the host's."""
    bases, tags = arguments["base"] or ["*"], arguments["tag"]
    found = await _kb(context).search(arguments["query"], bases=bases, tags=tags, limit=arguments["limit"])
    rows = [[hit.base, hit.id, hit.name, _short(hit.text)] for hit in found]
    yield CommandOutput(kind="table", columns=["base", "entry", "name", "text"], rows=rows)
    yield CommandOutput(kind="result", data=[hit.to_json() for hit in found])


async def show(arguments: Arguments, context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the entries of a base, or all of one."""
    base, entry = arguments["base"], arguments["entry"]
    if entry is not None:
        stored = await _kb(context).get(base, entry)
        yield CommandOutput(kind="text", text=f"{stored.entry.name} ({stored.entry.entry_type})")
        yield CommandOutput(kind="text", text=stored.entry.content.value)
        yield CommandOutput(kind="result", data=stored.to_json())
        return
    page = await _kb(context).list_entries(base, limit=arguments["limit"])
    found = [one.entry for one in page.entries]
    rows = [[entry.id, entry.name, entry.entry_type, _short(entry.content.value)] for entry in found]
    yield CommandOutput(kind="table", columns=["entry", "name", "type", "text"], rows=rows)
    if page.total > len(rows):
        yield CommandOutput(kind="progress", text=f"{len(rows)} of {page.total} entries; --limit shows more")
    yield CommandOutput(kind="result", data=page.to_json())


async def add(arguments: Arguments, context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Write an entry; a base that is missing is made."""
    base = arguments["base"]
    try:
        await _kb(context).header(base)
    except NotFound:
        await _kb(context).save_base(BaseHeader(kb_id=base))
    written = await _kb(context).write(
        arguments["text"],
        base=base,
        entry_id=arguments["id"],
        name=arguments["name"],
        entry_type=arguments["type"],
        keywords=arguments["keyword"] or None,
        tags=arguments["tag"] or None,
    )
    yield CommandOutput(kind="text", text=f"{written.base}/{written.id}")
    yield CommandOutput(kind="result", data=written.to_json())


async def remove(arguments: Arguments, context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Remove an entry, or a base with its file."""
    base, entry = arguments["base"], arguments["entry"]
    if (entry is None) != arguments["all"]:
        raise InvalidInput("say which entry is to be removed, or --all for the whole base")
    kb, what = _kb(context), base if entry is None else f"{base}/{entry}"
    if not (await kb.delete_base(base) if entry is None else await kb.delete(base, [entry])):
        raise NotFound(f"there is no {what}")
    yield CommandOutput(kind="message", text=f"removed {what}")
    yield CommandOutput(kind="result", data={"removed": what})


async def import_base(arguments: Arguments, context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Make a base of another program's document, and name what of it has no effect."""
    path = Path(arguments["file"])
    base = arguments["base"] or path.stem
    await require_kind(context, path, *_TAKEN, wanted="text, lorebook or character card")
    content = await asyncio.to_thread(read_document_bytes, path)
    report = await _kb(context).import_base(base, content, replace=arguments["replace"])
    yield CommandOutput(kind="message", text=f"{report.base}: {report.entries} entries ({report.format})")
    if report.unsupported:
        yield CommandOutput(kind="progress", text=f"kept, without effect here: {', '.join(report.unsupported)}")
    if report.format.startswith("card_"):
        yield CommandOutput(kind="progress", text=f"To talk to the character: tavern character import {path}")
    for entry, names in report.by_entry.items():
        yield CommandOutput(kind="progress", text=f"  {entry}: {', '.join(names)}")
    yield CommandOutput(kind="result", data=report.to_json())


async def export_base(arguments: Arguments, context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Write a base as another program's document, and name what that cannot hold."""
    asked = read_model(ExportQuery, {"format": arguments["format"]}, "the format")
    made = await _kb(context).export_base(arguments["base"], format=asked.format)
    path = Path(arguments["output"] or Path.cwd() / made.name)
    await asyncio.to_thread(write_atomic, path, made.content)
    yield CommandOutput(kind="text", text=str(path))
    if made.unsupported:
        yield CommandOutput(kind="progress", text=f"not in the document: {', '.join(made.unsupported)}")
    yield CommandOutput(kind="result", data={"file": str(path), "unsupported": list(made.unsupported)})


def _kb(context: PluginContext) -> KnowledgeBase:
    return context.services.get(KNOWLEDGE_BASE)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
