"""`GET /api/permissions` and `GET /api/why/{subject}`: what plugins may do, and why things are as they are."""

from __future__ import annotations

from tavern_host import PLUGINS, HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.languages import say


async def list_permissions(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with every permission that there is, in a sentence of the reader's language."""
    found = await context.services.get(PLUGINS).permissions()
    return HttpResponse(data=[{**one.to_json(), "description": say(one.description)} for one in found])


async def explain(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Say why a subject is as it is."""
    explanation = await context.services.get(PLUGINS).why(request.parameters["subject"])
    return HttpResponse(data=explanation.to_json())
