"""The service `accounts` with its routes and commands.

Which requests enter, and what a route needs, is the server's business; this says whose token it is.
"""

from __future__ import annotations

import asyncio
from importlib import import_module

from tavern_host import CommandInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl

_LATER = 0.5
"""Seconds after the start, in which the host can answer for the first time."""


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `accounts`."""
    return [ServiceInfo(service="accounts", handler="tavern_accounts.service:HostAccounts")]


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """End the work of those whose rights others change, in a host that serves."""
    if context.serving:
        context.tasks.spawn(_begin(context), name="begin to follow rights of users")


async def _begin(context: PluginContext) -> None:
    await asyncio.sleep(_LATER)
    await asyncio.to_thread(import_module, "tavern_accounts.service")  # the event loop does not wait for it
    from tavern_host.contracts.accounts import ACCOUNTS

    await context.services.get(ACCOUNTS).roles()  # makes it, unless another's has taken its place


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of logins, users, tokens and members."""
    from tavern_accounts.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern users …`, `tavern members …` and `tavern stop`."""
    from tavern_accounts.descriptors import commands

    return commands()
