"""The first-party plugin `tavern-tools`: the `toolManager` service, its routes, commands and prompt macro."""

from __future__ import annotations

import asyncio
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.http import EncodedOnce, MessageInfo, RouteInfo
from tavern_host.contracts.metrics import Figure, Tally
from tavern_host.contracts.plugins import all_started
from tavern_host.contracts.reviews import ReviewedPlugin, ReviewNote
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.sdk.decorator import hookimpl
from tavern_importers.api.importers import ImporterInfo
from tavern_tools.api.macros import PromptMacroInfo

if TYPE_CHECKING:
    from tavern_devtools.api.findings import CheckedPlugin, Finding
    from tavern_tools.calls.streams import Streams
    from tavern_tools.catalog.registry import Registry
    from tavern_tools.manager import Tools
    from tavern_tools.protocols.registered import Protocols

_LATER = 0.2
"""Seconds after the start, in which the host can answer for the first time: the tool manager is imported and made
then."""


class State:
    """What the parts of this plugin share. `manager` is None until this plugin's own is used."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self.manager: Tools | None = None
        self.calls = Tally("tool_calls", "Calls of tools.", "tool", "status")
        self.encoded: EncodedOnce[ToolDefinition] = EncodedOnce(ToolDefinition.to_json)

    @cached_property
    def registry(self) -> Registry:
        """All tools."""
        from tavern_tools.catalog.registry import Registry

        return Registry(self._context)

    @cached_property
    def streams(self) -> Streams:
        """The streams that calls gave."""
        from tavern_tools.calls.streams import Streams

        return Streams(self._context)

    @cached_property
    def protocols(self) -> Protocols:
        """The action protocols."""
        from tavern_tools.protocols.registered import Protocols

        return Protocols(self._context)


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    return [
        ServiceInfo(service="toolManager", handler="tavern_tools.manager:Tools"),
        ServiceInfo(service="toolFiles", handler="tavern_tools.editor.tool_files:ProjectTools"),
        ServiceInfo(service="systemTools", handler="tavern_tools.builtin.system_tools:System"),
        ServiceInfo(service="projectFiles", handler="tavern_tools.builtin.file_operator:Files"),
    ]


@hookimpl
def tavern_register_prompt_macros() -> list[PromptMacroInfo]:
    return [
        PromptMacroInfo(
            name="system:available_tools",
            handler="tavern_tools.protocols.available_tools:available_tools",
            description="The tools that the agent may call, and how it asks for a call.",
        ),
        PromptMacroInfo(
            name="system:time",
            handler="tavern_tools.protocols.available_tools:time",
            description="The day of the week, the date and the time, where the host is.",
            volatile=True,
        ),
    ]


@hookimpl
async def tavern_shutdown(context: PluginContext) -> None:
    """Leave the tasks to the next host, while the service is there that they may be kept by."""
    if (manager := context.own(State).manager) is not None:
        await manager.leave_tasks()


@hookimpl
async def tavern_review_plugin(plugin: ReviewedPlugin, context: PluginContext) -> list[ReviewNote]:
    """Say which script tools a plugin has, what they ask for, and what of it the policy denies."""
    from tavern_tools.catalog.review import review_notes

    return await review_notes(plugin, context)


@hookimpl
async def tavern_check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Say what is wrong with a plugin's tools."""
    from tavern_tools.catalog.plugin_check import check_plugin

    return await check_plugin(plugin, context, await context.own(State).registry.catalog())


@hookimpl
async def tavern_settle_work(which: WorkFilter, call: CallContext, context: PluginContext) -> list[SettledWork]:
    """End tasks and calls."""
    state = context.own(State)
    if state.manager is None:
        from tavern_tools.api.toolcalls import TaskFilter
        from tavern_tools.api.tools import TOOL_MANAGER

        await asyncio.to_thread(import_module, "tavern_tools.manager")  # the event loop does not wait for it
        await context.services.get(TOOL_MANAGER).tasks(TaskFilter(limit=1))  # makes it, for tasks from before
    return [] if state.manager is None else await state.manager.end_work(which, call)


@hookimpl
async def tavern_collect_figures(context: PluginContext) -> list[Figure]:
    """Return how often tools were called."""
    return context.own(State).calls.figures()


@hookimpl
def tavern_register_routes() -> list[RouteInfo | MessageInfo]:
    from tavern_tools.web.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    from tavern_tools.cli.descriptors import commands

    return commands()


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Let the tool manager look after tasks that are left over, in a host that serves."""
    if context.serving:
        context.tasks.spawn(_take_up_tasks(context), name="begin to look after tasks")


async def _take_up_tasks(context: PluginContext) -> None:
    await asyncio.sleep(_LATER)
    await asyncio.to_thread(import_module, "tavern_tools.manager")  # the event loop does not wait for it
    await all_started(context.services)
    from tavern_tools.api.tools import TOOL_MANAGER

    await context.services.get(TOOL_MANAGER).protocols()  # makes it, unless another plugin's has taken its place
    if (manager := context.own(State).manager) is not None:
        await manager.adopt_tasks()


@hookimpl
def tavern_register_importers() -> list[ImporterInfo]:
    """Import tools of other programs."""
    from tavern_tools.foreign.importers import importers

    return importers()
