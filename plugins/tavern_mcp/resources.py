"""What a server has: its lists page by page, and what is to be read as a knowledge base of the project, where its
declaration asks for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

import mcp_types as types

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import InvalidInput, TavernError, describe
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, BaseHeader, EntryContent, KnowledgeEntry, ManagementMetadata
from tavern_mcp.declarations import Declared
from tavern_mcp.definitions import clean

MOST_TOOLS = 1000
"""How many tools, prompts or resources a server may have."""
_MOST_PAGES, _MOST_LIST = 100, 8 << 20
_MOST, _MOST_TEXT, _MOST_ID = 200, 100_000, 200


async def all_of(fetch: Callable[..., Awaitable[Any]], field: str) -> list[Any]:
    """Return all pages of a list. Raises `InvalidInput` for one that is too long."""
    found: list[Any] = []
    cursor: str | None = None
    size = 0
    while True:
        page = await fetch(cursor=cursor)
        found += getattr(page, field)
        size += len(page.model_dump_json()) + _MOST_LIST // _MOST_PAGES
        if len(found) > MOST_TOOLS or size > _MOST_LIST:
            raise InvalidInput(f"its list of {field} is too long: {MOST_TOOLS:,} in {_MOST_LIST >> 20} MiB are taken")
        if (cursor := page.next_cursor) is None:
            return found


async def keep_resources(context: PluginContext, declared: Declared, client: Any) -> None:
    """Make the texts among a server's resources the entries of the knowledge base `mcp-NAME`. What cannot be read or
    kept is logged."""
    if declared.server.resources != "knowledge" or client.server_capabilities.resources is None:
        return
    base = f"mcp-{declared.name}"
    try:
        entries = []
        async with asyncio.timeout(declared.server.seconds):
            for resource in (await all_of(client.list_resources, "resources"))[:_MOST]:
                contents = (await client.read_resource(resource.uri)).contents
                text = "\n".join(one.text for one in contents if isinstance(one, types.TextResourceContents))
                if text:
                    entries.append(_entry(resource, text, entries_of(declared)))
        knowledge = context.services.get(KNOWLEDGE_BASE)
        header = BaseHeader(kb_id=base, kb_displayName=f"MCP: {declared.name}")
        await knowledge.save_base(header)
        await knowledge.put(base, entries)
        kept = {entry.id for entry in entries}
        old = [one.entry for one in (await knowledge.list_entries(base, limit=1000)).entries]
        gone = [one.id for one in old if one.id not in kept and one.management_metadata.source == entries_of(declared)]
        await knowledge.delete(base, gone)
    except Exception as error:  # a server that gives nothing to read still has its tools
        reason = error.message if isinstance(error, TavernError) else describe(error)
        context.log.warning("the resources of the MCP server %s are not kept: %s", declared.name, reason)


def entries_of(declared: Declared) -> str:
    """Return the source of a server's entries; those of a person in the base have another one, and are left alone."""
    return f"mcp:{declared.name}"


def _entry(resource: types.Resource, text: str, source: str) -> KnowledgeEntry:
    uri = str(resource.uri)
    return KnowledgeEntry(
        id=uri if len(uri) <= _MOST_ID else f"{uri[: _MOST_ID - 17]}:{sha256(uri.encode()).hexdigest()[:16]}",
        entry_type="resource",
        displayName=clean(resource.title or resource.name, 200),
        content=EntryContent(mime_type="text/plain", value=clean(text, _MOST_TEXT)),
        management_metadata=ManagementMetadata(tags=["mcp"], source=source),
    )
