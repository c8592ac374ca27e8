"""The prompt macros `{{{system:available_tools}}}` and `{{{system:time}}}`."""

from __future__ import annotations

from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_tools import State
from tavern_tools.api.macros import MacroRequest
from tavern_tools.api.observations import documented_tools
from tavern_tools.api.tools import TOOL_MANAGER


async def available_tools(request: MacroRequest, context: PluginContext) -> str:
    """Return the documentation of the reader's tools and how calls to them are written."""
    if not request.tool_ids:
        return "No tools are available."
    documentation = await context.services.get(TOOL_MANAGER).describe(request.tool_ids)
    instructions = await context.own(State).protocols.instructions()
    return documented_tools(documentation, instructions)


async def time(request: MacroRequest, context: PluginContext) -> str:
    """Return the day of the week, the date and the time."""
    now = clock.now().astimezone()
    return f"{now:%A, %Y-%m-%d %H:%M} {now.isoformat(timespec='minutes')[16:]}"
