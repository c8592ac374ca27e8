"""The service `assistant`: documents are changed by patches that are checked as a whole, and can be taken back."""

from __future__ import annotations

from tavern_host import RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.assistant import ASSISTANT


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer the service `assistant`."""
    return [service_info(ASSISTANT, "tavern_assistant.service:Patches")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Offer the routes of patches."""
    from tavern_assistant.descriptors import routes

    return routes()
