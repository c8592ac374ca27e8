"""What a command says of a file that is not for it: what the file is, and which command takes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tavern_host.context import PluginContext
from tavern_host.contracts.documents import read_document_bytes
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_importers.api.importers import IMPORT_MANAGER, ForeignFile, ImportKind


async def require_kind(context: PluginContext, path: Path, *kinds: str, wanted: str) -> None:
    """Raise `InvalidInput` where a file is known to be of another kind than these; `wanted` is what a command takes. A
    file of no kind that is known is left to the command, which says what is wrong with it."""
    found = await _kind_of(context, path)
    if found is not None and found.name not in kinds:
        raise InvalidInput(
            f"{path.name} is no {wanted} but of the kind “{found.title}”: `tavern import {path.name}` takes it"
        )


async def _kind_of(context: PluginContext, path: Path) -> ImportKind | None:
    if not context.services.has(IMPORT_MANAGER) or not await asyncio.to_thread(path.is_file):
        return None
    try:
        content = await asyncio.to_thread(read_document_bytes, path)
        return await context.services.get(IMPORT_MANAGER).recognise(ForeignFile(name=path.name, content=content))
    except TavernError:
        return None
