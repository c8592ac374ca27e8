"""The service `triggerManager` with its routes and commands: what starts workflows and agents, when, for whom.

Runs belong to the engine, the work of agents to `agentRuntime`; here is decided when one is asked for, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tavern_host import CallContext, CommandInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl
from tavern_host.contracts.accounts import SettledWork, WorkFilter

if TYPE_CHECKING:
    from tavern_devtools.api.findings import CheckedPlugin, Finding
    from tavern_triggers.service import Triggers


class State:
    """What the parts of this plugin share. `triggers` is None until this plugin's own service is used."""

    def __init__(self, context: PluginContext) -> None:
        self.triggers: Triggers | None = None


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `triggerManager`."""
    return [ServiceInfo(service="triggerManager", handler="tavern_triggers.service:Triggers")]


@hookimpl
async def tavern_check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Say what is wrong with a plugin's triggers."""
    from tavern_triggers.plugin_check import check_plugin

    return await check_plugin(plugin, context)


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of triggers, and that of webhooks."""
    from tavern_triggers.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern triggers …`."""
    from tavern_triggers.descriptors import commands

    return commands()


@hookimpl
async def tavern_settle_work(which: WorkFilter, call: CallContext, context: PluginContext) -> list[SettledWork]:
    """Switch triggers off whose person is gone."""
    triggers = await own_triggers(context)
    return [] if triggers is None else await triggers.end_work(which)


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Look for what fires triggers, in a host that serves."""
    if context.serving:
        context.tasks.spawn(_watch(context), name="watch triggers")


async def _watch(context: PluginContext) -> None:
    if (triggers := await own_triggers(context)) is not None:
        await triggers.watcher.run()


async def own_triggers(context: PluginContext) -> Triggers | None:
    """Return the triggers of this plugin, unless another's have taken their place."""
    state = context.own(State)
    if state.triggers is None:
        from tavern_triggers.api.triggers import TRIGGER_MANAGER

        await context.services.get(TRIGGER_MANAGER).history(limit=1)  # makes it
    return state.triggers
