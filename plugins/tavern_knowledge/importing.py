"""The importers of lorebooks and texts: each becomes a knowledge base, as `tavern kb import` makes it."""

from __future__ import annotations

import asyncio
import re
from pathlib import PurePath
from typing import Any

from tavern_host import PluginContext
from tavern_importers.api.importers import ImportedThing, ImporterInfo, ImportReport, ImportRequest
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tavern_knowledge.exchange.documents import read

_HANDLER = "tavern_knowledge.importing:import_base"
_BOOK_SPEC = {"required": ["spec"], "properties": {"spec": {"const": "lorebook_v3"}}}
_ENTRIES = {"required": ["entries"], "properties": {"entries": {"type": ["object", "array"]}}}
_RISU = {"required": ["type", "data"], "properties": {"type": {"const": "risu"}}}
_BOOK: dict[str, Any] = {"type": "object", "anyOf": [_BOOK_SPEC, _ENTRIES, _RISU]}

_TEXT: dict[str, Any] = {"type": "string", "pattern": r"\S"}


def importers() -> list[ImporterInfo]:
    """Return the kinds of files."""
    book = {"name": "lorebook", "title": "lorebook", "handler": _HANDLER, "marks": _BOOK}
    text = {"name": "text", "title": "text", "handler": _HANDLER, "marks": _TEXT, "forms": ["text"]}
    return [ImporterInfo.model_validate(one) for one in (book, text)]


async def import_base(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Make a base of a document."""
    kb = context.services.get(KNOWLEDGE_BASE)
    wanted = request.options.name or PurePath(request.file.name).stem
    base = wanted = re.sub(r"[^\w-]+", "-", wanted.lower()).strip("-_")[:80] or "book"
    taken, number = {one.id for one in await kb.bases()}, 2
    while base in taken:
        base, number = f"{wanted}-{number}", number + 1
    if request.options.dry_run:
        found = await asyncio.to_thread(read, request.file.content, base)
        count, unsupported = len(found.entries), sorted(found.unsupported)
    else:
        report = await kb.import_base(base, request.file.content, call=request.call)
        count, unsupported = report.entries, [*report.unsupported]
    thing = ImportedThing(kind="knowledge base", id=base, name=f"{count} entries", page=f"/knowledge/{base}")
    return ImportReport(things=[thing], without_effect=unsupported)
