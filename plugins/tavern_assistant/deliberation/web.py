"""`POST /api/assistant/requests`: how people ask the assistant from a page."""

from __future__ import annotations

from tavern_assistant.deliberation.requests import AssistantRequest, start
from tavern_host import HttpRequest, HttpResponse, PluginContext


async def ask(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the `AgentRun` that has begun; its reply is in the conversation, a workflow in an event."""
    run = await start(context, request.read(AssistantRequest), request.call)
    return HttpResponse(status=202, data=run.to_json())
