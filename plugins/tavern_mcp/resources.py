"""What a server has to be read, as a knowledge base of the project, where its declaration asks for that."""

from __future__ import annotations

from typing import Any

import mcp_types as types

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError, describe
from tavern_host.contracts.knowledge import (
    KNOWLEDGE_BASE,
    BaseHeader,
    EntryContent,
    KnowledgeEntry,
    ManagementMetadata,
)
from tavern_mcp.declarations import Declared
from tavern_mcp.definitions import clean

_MOST, _MOST_TEXT = 200, 100_000


async def keep_resources(context: PluginContext, declared: Declared, client: Any) -> None:
    """Make the texts among a server's resources the entries of the knowledge base `mcp-NAME`. What cannot be read or
    kept is logged."""
    if declared.server.resources != "knowledge" or client.server_capabilities.resources is None:
        return
    base = f"mcp-{declared.name}"
    try:
        entries = []
        for resource in (await client.list_resources()).resources[:_MOST]:
            contents = (await client.read_resource(resource.uri)).contents
            text = "\n".join(one.text for one in contents if isinstance(one, types.TextResourceContents))
            if text:
                entries.append(_entry(resource, text, declared.name))
        knowledge = context.services.get(KNOWLEDGE_BASE)
        header = BaseHeader(kb_id=base, kb_displayName=f"MCP: {declared.name}")
        await knowledge.save_base(header)
        await knowledge.put(base, entries)
        kept = {entry.id for entry in entries}
        old = [one.entry.id for one in (await knowledge.list_entries(base, limit=1000)).entries]
        await knowledge.delete(base, [entry for entry in old if entry not in kept])
    except Exception as error:  # a server that gives nothing to read still has its tools
        reason = error.message if isinstance(error, TavernError) else describe(error)
        context.log.warning("the resources of the MCP server %s are not kept: %s", declared.name, reason)


def _entry(resource: types.Resource, text: str, server: str) -> KnowledgeEntry:
    return KnowledgeEntry(
        id=str(resource.uri)[:200],
        entry_type="resource",
        displayName=clean(resource.title or resource.name, 200),
        content=EntryContent(mime_type="text/plain", value=clean(text, _MOST_TEXT)),
        management_metadata=ManagementMetadata(tags=["mcp"], source=f"mcp:{server}"),
    )
