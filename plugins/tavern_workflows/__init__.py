"""The project's workflow files, their drafts and history: the service `workflowManager` with its routes, and commands
`tavern workflow …`. Running them is the engine's business."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tavern_host import (
    CommandInfo,
    PluginContext,
    RouteInfo,
    ServiceInfo,
    TavernError,
    hookimpl,
)
from tavern_importers.api.importers import ImporterInfo

if TYPE_CHECKING:
    from tavern_devtools.api.findings import CheckedPlugin, Finding

_LATER = 2.0
"""Seconds after the start, in which the host can answer for the first time."""


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `workflowManager`."""
    return [ServiceInfo(service="workflowManager", handler="tavern_workflows.manager:Workflows")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Offer the routes of workflows."""
    from tavern_workflows.descriptors import routes

    return routes()


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Follow the files, in a host that serves."""
    if context.serving:
        context.tasks.spawn(_begin(context), name="begin to follow workflows")


async def _begin(context: PluginContext) -> None:
    await asyncio.sleep(_LATER)
    with suppress(TavernError):
        from tavern_workflows.api.workflows import WORKFLOW_MANAGER

        await context.services.get(WORKFLOW_MANAGER).list_workflows()  # makes it, unless another has taken its place


@hookimpl
async def tavern_check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Say what is wrong with a plugin's workflows."""
    from tavern_workflows.plugin_check import check_plugin

    return await check_plugin(plugin, context)


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Offer the commands of workflows."""
    from tavern_workflows.descriptors import commands

    return commands()


@hookimpl
def tavern_register_importers() -> list[ImporterInfo]:
    """Import workflows, and graphs of other programs."""
    from tavern_workflows.foreign.importers import importers

    return importers()
