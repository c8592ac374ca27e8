"""The service `assistant`, by which documents are changed by patches, and the creation assistant, an agent that makes
patches of what a person asks for."""

from __future__ import annotations

from tavern_host import CommandInfo, RouteInfo, ServiceInfo, hookimpl


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer the service `assistant`."""
    return [ServiceInfo(service="assistant", handler="tavern_assistant.service:Patches")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Offer the routes of patches and of requests."""
    from tavern_assistant.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Offer `tavern assist`."""
    from tavern_assistant.descriptors import commands

    return commands()
