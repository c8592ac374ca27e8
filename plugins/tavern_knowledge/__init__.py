"""The service `knowledgeBase` with its routes, commands, nodes and tools.

What agents do with what they find is theirs; models that make embeddings belong to the `llm` service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tavern_host import CommandInfo, RouteInfo, ServiceInfo, hookimpl
from tavern_importers.api.importers import ImporterInfo

if TYPE_CHECKING:
    from tavern_devtools.api.findings import CheckedPlugin, Finding


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `knowledgeBase`."""
    return [ServiceInfo(service="knowledgeBase", handler="tavern_knowledge.service:Knowledge")]


@hookimpl
async def tavern_check_plugin(plugin: CheckedPlugin) -> list[Finding]:
    """Say what is wrong with a plugin's knowledge bases."""
    from tavern_knowledge.plugin_check import check_plugin

    return await check_plugin(plugin)


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of knowledge bases."""
    from tavern_knowledge.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern kb …`."""
    from tavern_knowledge.descriptors import commands

    return commands()


@hookimpl
def tavern_register_importers() -> list[ImporterInfo]:
    """Import lorebooks."""
    from tavern_knowledge.importing import importers

    return importers()
