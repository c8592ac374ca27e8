"""The service `panelManager` with its routes and commands: workflows and agents as pages of their own.

What runs is the business of `executionEngine` and `agentRuntime`; the page is drawn by the studio.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from tavern_host import CommandInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl

if TYPE_CHECKING:
    from tavern_panels.files import PanelFolder

_EVERY = 1.0
"""Seconds between two looks at the files."""


class State:
    """What the parts of this plugin share; `writing` is held while a panel is changed."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self.writing = asyncio.Lock()

    @cached_property
    def folder(self) -> PanelFolder:
        """The panels of the project."""
        from tavern_panels.files import PanelFolder

        return PanelFolder(self._context)


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `panelManager`."""
    return [ServiceInfo(service="panelManager", handler="tavern_panels.service:Panels")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of panels."""
    from tavern_panels.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern panels …`."""
    from tavern_panels.descriptors import commands

    return commands()


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Look after changes of the files, in a host that serves."""
    if context.serving:
        context.tasks.spawn(context.own(State).folder.follow(_EVERY), name="follow panels")
