"""What the setting `offer` names. Needs nothing of the SDK."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.names import did_you_mean
from tavern_llm.api.llm import LLM
from tavern_mcp.api.servers import MODEL
from tavern_tools.api.patterns import fits
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter


def offer_of(context: PluginContext) -> list[str]:
    """Return the patterns of the operator, which those of the environment replace."""
    layers = context.settings.layers("offer")
    patterns = layers.get("environment", layers.get("operator", []))
    return [one for one in patterns if isinstance(one, str)] if isinstance(patterns, list) else []


async def unmatched(context: PluginContext) -> list[str]:
    """Return in words which patterns name no tool, and no language model."""
    tools = context.services.get(TOOL_MANAGER)
    models = [f"{MODEL}{model.name}" for model in await context.services.get(LLM).models()]
    missing = [one for one in offer_of(context) if not any(fits(one, model) for model in models)]
    missing = [one for one in missing if not await tools.list_tools(ToolFilter(ids=[one]))]
    known = [*models, *(tool.id for tool in await tools.list_tools())] if missing else []
    return [f"extensions.tavern-mcp.offer: {one[:200]!r} names no tool{did_you_mean(one, known)}" for one in missing]
