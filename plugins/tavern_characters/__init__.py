"""The service `characters` with its routes, commands and node: character cards as agents.

What agents do and what is said belongs to `agentRuntime` and `chatHistory`, what a book has to `knowledgeBase`; prompts
are put together by the node `core:ContextBuilder`.
"""

from __future__ import annotations

import asyncio

from tavern_host import CommandInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl
from tavern_importers.api.importers import ImporterInfo


class State:
    """What the parts of this plugin share; `writing` is held while a character is changed."""

    def __init__(self, context: PluginContext) -> None:
        self.writing = asyncio.Lock()


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `characters`."""
    return [ServiceInfo(service="characters", handler="tavern_characters.service:CharacterService")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of characters and personas."""
    from tavern_characters.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern character …`."""
    from tavern_characters.descriptors import commands

    return commands()


@hookimpl
def tavern_register_importers() -> list[ImporterInfo]:
    """Import character cards and presets."""
    from tavern_characters.importing import importers

    return importers()
