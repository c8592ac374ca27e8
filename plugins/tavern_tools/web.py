"""The routes under `/api/tools`."""

from __future__ import annotations

from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.documents import json_type
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.tools import TOOL_MANAGER, ToolCallRequest
from tavern_tools.naming import quoted

_ID_KEYS = ("toolId", "tool_id", "id")
_KEYS = ("text", "arguments", *_ID_KEYS)


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tools`: all tools."""
    tools = await context.services.get(TOOL_MANAGER).list_tools()
    return HttpResponse(data=[tool.to_json() for tool in tools])


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tools/{id}`: one tool."""
    tool = await context.services.get(TOOL_MANAGER).get(request.parameters["id"])
    return HttpResponse(data=tool.to_json())


async def execute(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/tools/execute`: action text or one call. Failed calls are results, not HTTP errors."""
    asked = read_body(request.json_body())
    manager = context.services.get(TOOL_MANAGER)
    if isinstance(asked, str):
        done = await manager.call_text(asked, call=request.call)
        return HttpResponse(data=done.to_json())
    result = await manager.call(asked, call=request.call)
    return HttpResponse(data={"results": [result.to_json()]})


def read_body(body: Any) -> str | ToolCallRequest:
    """Return the action text or the call that a body asks for. Raises `InvalidInput`."""
    if not isinstance(body, dict):
        raise InvalidInput(f'expected an object with "text" or "toolId", got {json_type(body)}')
    for key in body:
        if key not in _KEYS:
            raise InvalidInput(f"unknown key {quoted(key)}{did_you_mean(key, _KEYS)}")
    used = [key for key in _ID_KEYS if key in body]
    if len(used) + ("text" in body) != 1:
        raise InvalidInput('expected either "text" or "toolId" (with "arguments")')
    named = "text" if "text" in body else used[0]
    if not isinstance(body[named], str):
        raise InvalidInput(f'"{named}" must be text, got {json_type(body[named])}')
    arguments = body.get("arguments", {})
    if named == "text":
        if "arguments" in body:
            raise InvalidInput('"arguments" goes with "toolId", not with "text"')
        return str(body["text"])
    if not isinstance(arguments, dict):
        raise InvalidInput(f'"arguments" must be an object, got {json_type(arguments)}')
    return ToolCallRequest(tool_id=body[named], arguments=arguments)
