"""The service `knowledgeBase` with its routes, commands, nodes and tools.

What agents do with what they find is theirs; models that make embeddings belong to the `llm` service.
"""

from __future__ import annotations

from tavern_host import CommandInfo, RouteInfo, ServiceInfo, hookimpl


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `knowledgeBase`."""
    return [ServiceInfo(service="knowledgeBase", handler="tavern_knowledge.service:Knowledge")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of knowledge bases."""
    from tavern_knowledge.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern kb …`."""
    from tavern_knowledge.descriptors import commands

    return commands()
