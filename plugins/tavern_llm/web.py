"""`GET /api/models`: the language models that are set up."""

from __future__ import annotations

from tavern_host import PluginContext
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.llm import LLM


async def list_models(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Return the models that can be used, by name."""
    return HttpResponse(data={"models": [model.to_json() for model in await context.services.get(LLM).models()]})
