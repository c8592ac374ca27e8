"""The prompt macro `{{{system:available_tools}}}`."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.macros import MacroRequest
from tavern_host.contracts.observations import UNTRUSTED
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_tools.protocols.registered import protocols_of


async def available_tools(request: MacroRequest, context: PluginContext) -> str:
    """Return the documentation of the reader's tools and how calls to them are written."""
    if not request.tool_ids:
        return "No tools are available."
    documentation = await context.services.get(TOOL_MANAGER).describe(request.tool_ids)
    instructions = await protocols_of(context).instructions()
    return "\n\n".join(part for part in (documentation, instructions, UNTRUSTED) if part)
