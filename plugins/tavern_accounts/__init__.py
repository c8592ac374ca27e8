"""The service `accounts` with its routes and commands.

Which requests enter, and what a route needs, is the server's business; this says whose token it is.
"""

from __future__ import annotations

from tavern_host import CommandInfo, RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.accounts import ACCOUNTS


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `accounts`."""
    return [service_info(ACCOUNTS, "tavern_accounts.service:HostAccounts")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of logins, users, tokens and members."""
    from tavern_accounts.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern users …` and `tavern members …`."""
    from tavern_accounts.descriptors import commands

    return commands()
