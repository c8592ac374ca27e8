"""The routes under `/api/tools`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Self

from pydantic import Field, JsonValue, model_validator

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.http import HttpRequest, HttpResponse, ServerEvent
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.plugins import PLUGINS
from tavern_host.contracts.wire import Model
from tavern_tools import State
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager
from tavern_tools.calls.streams import Streams
from tavern_tools.catalog.names import quoted
from tavern_tools.requests import tool_filter

_KEEP_ALIVE = 5.0
"""Seconds without an event after which a client is sent an empty one, which shows whether it is still there."""


_KEYS = ("text", "arguments", "protocols", "callback", "toolId", "tool_id", "id")


class ExecuteBody(Model):
    """Action text, or one call; `tool_id` and `id` mean `toolId`. `callback` is notified of the end of tasks."""

    text: str | None = None
    protocols: list[str] | None = None
    tool_id: str | None = None
    id: str | None = None
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    callback: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        for key in value if isinstance(value, dict) else ():
            if key not in _KEYS:
                raise ValueError(f"unknown key {quoted(key)}{did_you_mean(key, _KEYS)}")
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.text, self.tool_id, self.id].count(None) != 2:
            raise ValueError('expected either "text" or "toolId" (with "arguments")')
        if self.text is not None and "arguments" in self.model_fields_set:
            raise ValueError('"arguments" goes with "toolId", not with "text"')
        if self.text is None and self.protocols is not None:
            raise ValueError('"protocols" goes with "text", not with "toolId"')
        return self


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tools`: the tools that fit `tag`, `namespace`, `kind`, `text` and `plugin`; all of them are encoded
    once for as long as they stay as they are."""
    tools = context.services.get(TOOL_MANAGER)
    if request.query:
        return HttpResponse(data=[tool.to_json() for tool in await tools.list_tools(tool_filter(request.query))])
    state = context.own(State)
    revision = context.hooks.revision, await state.registry.catalog()
    stack = partial(context.services.get(PLUGINS).service_stack, TOOL_MANAGER.name)
    return await state.encoded.of_service(revision, tools.list_tools, stack)


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tools/{id}`: one tool."""
    tool = await context.services.get(TOOL_MANAGER).get(request.parameters["id"])
    return HttpResponse(data=tool.to_json())


async def execute(request: HttpRequest, context: PluginContext) -> HttpResponse | AsyncIterator[ServerEvent]:
    """`POST /api/tools/execute`: action text or one call. Failed calls are results, not HTTP errors.

    A client that accepts `text/event-stream` gets server-sent events: each `item` of a stream that a tool gives, while
    it comes, and each `result` in the end.
    """
    body = await request.body_as(ExecuteBody)
    asked = ToolCallRequest.construct(tool_id=body.tool_id or body.id or "", arguments=body.arguments)
    manager = context.services.get(TOOL_MANAGER)
    streams = "text/event-stream" in request.headers.get("accept", "")
    if body.text is not None:
        scope = ToolScope(callback=body.callback)
        if streams:
            parsed = await manager.parse_text(body.text, protocols=body.protocols)
            return _events(manager, context.own(State).streams, parsed.calls, scope, request.call)
        done = await manager.call_text(body.text, protocols=body.protocols, scope=scope, call=request.call)
        return HttpResponse(data=done.to_json())
    if streams:
        scope = ToolScope(callback=body.callback, streams=True)
        return _events(manager, context.own(State).streams, [asked], scope, request.call)
    limits = None if body.callback is None else ToolScope(callback=body.callback)
    result = await manager.call(asked, scope=limits, call=request.call)
    return HttpResponse.construct(data={"results": [result.to_json()]})  # which is JSON: it is not checked once more


async def _events(
    manager: ToolManager, streams: Streams, calls: list[ToolCallRequest], scope: ToolScope, call: CallContext
) -> AsyncIterator[ServerEvent]:
    """Yield what comes of calls, and keep-alives while nothing does. Leaving before the end cancels the calls and
    closes their streams."""
    making = asyncio.create_task(manager.call_all(calls, scope=scope, call=call))
    try:
        while not making.done():
            await asyncio.wait([making], timeout=_KEEP_ALIVE)
            if not making.done():
                yield ServerEvent()
        for result in making.result():
            for handle in _handles([result]):
                async for event in _stream_events(manager, handle, call):
                    yield event
            yield ServerEvent(event="result", data=result.to_json())
    finally:
        making.cancel()
        await asyncio.wait([making])
        if not making.cancelled() and making.exception() is None:
            for handle in _handles(making.result()):
                streams.leave(handle, call.principal)


def _handles(results: list[ToolResult]) -> list[str]:
    parts = (part for result in results for part in result.content)
    return [part.uri for part in parts if part.type == "stream" and part.uri is not None]


async def _stream_events(manager: ToolManager, handle: str, call: CallContext) -> AsyncIterator[ServerEvent]:
    """Yield the items of a stream; one that breaks off ends with an `error`."""
    while True:
        read = await manager.read_stream(handle, wait=_KEEP_ALIVE, call=call)
        for item in read.items:
            yield ServerEvent(event="item", data=item)
        if read.error is not None:
            yield ServerEvent(event="error", data=read.error)
        if read.finished:
            return
        if not read.items:
            yield ServerEvent()
