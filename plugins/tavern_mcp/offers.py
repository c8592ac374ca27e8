"""What the setting `offer` names. Needs nothing of the SDK."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.names import did_you_mean
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter


def offer_of(context: PluginContext) -> list[str]:
    """Return the patterns of the operator, which those of the environment replace."""
    layers = context.settings.layers("offer")
    patterns = layers.get("environment", layers.get("operator", []))
    return [one for one in patterns if isinstance(one, str)] if isinstance(patterns, list) else []


async def unmatched(context: PluginContext) -> list[str]:
    """Return in words which patterns name no tool."""
    tools = context.services.get(TOOL_MANAGER)
    missing = [one for one in offer_of(context) if not await tools.list_tools(ToolFilter(ids=[one]))]
    known = [tool.id for tool in await tools.list_tools()] if missing else []
    return [f"extensions.tavern-mcp.offer: {one[:200]!r} names no tool{did_you_mean(one, known)}" for one in missing]
