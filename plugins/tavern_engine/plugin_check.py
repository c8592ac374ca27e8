"""What is wrong with the node types of one plugin, as they were collected."""

from __future__ import annotations

from tavern_devtools.api.findings import CheckedPlugin, Finding, found_by
from tavern_engine import EngineState
from tavern_host.context import PluginContext


async def check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Return which node types of a loaded plugin are not offered."""
    registry = context.own(EngineState).types
    if not plugin.is_loaded:
        return []
    await registry.types()
    return found_by("nodes", [problem for owner, problem in registry.problems if owner == plugin.name])
