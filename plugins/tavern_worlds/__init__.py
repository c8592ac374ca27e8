"""The service `sceneManager` with its routes, commands and tools, and the macro `world:state`.

What an agent does with its turn is the business of `agentRuntime`; conversations belong to `chatHistory`.
"""

from __future__ import annotations

import asyncio

from tavern_host import CommandInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.macros import PromptMacroInfo
from tavern_host.contracts.scenes import SCENE_MANAGER

_EVERY = 1.0
"""Seconds between two looks at what is due in scenes, in a host that serves; the first comes after so many."""


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `sceneManager`."""
    return [service_info(SCENE_MANAGER, "tavern_worlds.service:Scenes")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of scenes."""
    from tavern_worlds.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern scene …`."""
    from tavern_worlds.descriptors import commands

    return commands()


@hookimpl
def tavern_register_prompt_macros() -> list[PromptMacroInfo]:
    """Return the macro `world:state`."""
    handler, description = "tavern_worlds.service:world_text", "The world of the scene that the agent is in, as JSON."
    return [PromptMacroInfo(name="world:state", handler=handler, description=description, volatile=True)]


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Resume running scenes, in a host that serves."""
    if context.serving:
        context.tasks.spawn(_follow(context), name="follow scenes")


async def _follow(context: PluginContext) -> None:
    await asyncio.sleep(_EVERY)
    from tavern_worlds.service import STATE

    told = ""
    while not context.is_stopping():
        try:
            if STATE not in context.state:
                await context.services.get(SCENE_MANAGER).list_runs(limit=1)  # makes it
            if STATE not in context.state:  # another's has taken its place
                return
            await context.state[STATE].look()
            told = ""
        except TavernError as error:
            if error.message != told:
                context.log.error("scenes cannot be looked after: %s", error.message)
            told = error.message
        await asyncio.sleep(_EVERY)
