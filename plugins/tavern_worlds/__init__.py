"""The service `sceneManager` with its routes, commands and tools, and the macro `world:state`.

What an agent does with its turn is the business of `agentRuntime`; conversations belong to `chatHistory`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tavern_host import CallContext, CommandInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl
from tavern_host.contracts.accounts import SettledWork, WorkFilter
from tavern_host.contracts.errors import TavernError
from tavern_tools.api.macros import PromptMacroInfo

if TYPE_CHECKING:
    from tavern_worlds.service import Scenes

_EVERY = 1.0
"""Seconds between two looks at what is due in scenes, in a host that serves; the first comes after so many."""


class State:
    """What the parts of this plugin share. `scenes` is None until this plugin's own service is used."""

    def __init__(self, context: PluginContext) -> None:
        self.scenes: Scenes | None = None


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `sceneManager`."""
    return [ServiceInfo(service="sceneManager", handler="tavern_worlds.service:Scenes")]


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
async def tavern_settle_work(which: WorkFilter, call: CallContext, context: PluginContext) -> list[SettledWork]:
    """End scenes."""
    from tavern_worlds.ending_work import end_work

    scenes = await _scenes(context)
    return [] if scenes is None else await end_work(scenes, which, call, context)


async def _scenes(context: PluginContext) -> Scenes | None:
    """Return the scenes of this plugin, unless another's have taken their place."""
    state = context.own(State)
    if state.scenes is None:
        from tavern_worlds.api.scenes import SCENE_MANAGER

        await context.services.get(SCENE_MANAGER).list_runs(limit=1)  # makes it
    return state.scenes


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Resume running scenes, in a host that serves."""
    if context.serving:
        context.tasks.spawn(_follow(context), name="follow scenes")


async def _follow(context: PluginContext) -> None:
    await asyncio.sleep(_EVERY)
    told = ""
    while not context.is_stopping():
        try:
            if (scenes := await _scenes(context)) is None:
                return
            await scenes.look()
            told = ""
        except TavernError as error:
            if error.message != told:
                context.log.error("scenes cannot be looked after: %s", error.message)
            told = error.message
        await asyncio.sleep(_EVERY)
