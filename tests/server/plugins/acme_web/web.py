"""The handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tavern_host import HttpRequest, HttpResponse, InvalidInput, NotFound, PluginContext
from tavern_host.contracts import errors
from tavern_host.contracts.http import ServerEvent, SocketMessage, SocketReply

FAILURES: dict[str, Exception] = {
    "input": InvalidInput("not like that", field="name"),
    "denied": errors.PermissionDenied("not you"),
    "forbidden": errors.Forbidden("nobody"),
    "vetoed": errors.Vetoed("not today"),
    "missing": NotFound("not here"),
    "conflict": errors.Conflict("not any more"),
    "unavailable": errors.ServiceUnavailable("not now"),
    "busy": errors.ServiceUnavailable("not now", retry_after=3),
    "spent": errors.LimitReached("not today", retry_after=0.2, used=7),
    "limited": errors.LimitReached("never"),
    "late": errors.DeadlineExceeded("not in time"),
    "plugin": errors.PluginFailure("not well"),
    "foreign": RuntimeError("the password is swordfish"),
}


async def echo(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the request."""
    data = {name: dict(getattr(request, name)) for name in ("parameters", "query", "headers")}
    data |= {"method": request.method, "path": request.path, "body": request.body.decode()}
    data["principal"] = request.call.principal.id
    return HttpResponse(status=201 if request.method == "PUT" else 200, data=data, headers={"X-Acme": "yes"})


async def json(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the body's JSON."""
    return HttpResponse(data=request.json_body())


async def fail(request: HttpRequest, context: PluginContext) -> Any:
    """Fail as the path says."""
    how = request.parameters["how"]
    if how == "nothing":
        return None
    if how == "header":
        return HttpResponse(headers={"X-Acme": "a\r\nSet-Cookie: b"})
    if how == "nan":
        return HttpResponse(data=[float("nan")])
    raise FAILURES[how]


async def page(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a page."""
    return HttpResponse(body="<p>Grüße</p>".encode(), content_type="text/html")


async def on_echo(message: SocketMessage, context: PluginContext) -> list[SocketReply]:
    """Answer with the payload, twice."""
    return [SocketReply(type="ACME_FIRST", payload=message.payload), SocketReply(type="ACME_SECOND")]


async def on_fail(message: SocketMessage, context: PluginContext) -> Any:
    """Fail as the payload says."""
    raise FAILURES[str(message.payload["how"])]


async def on_publish(message: SocketMessage, context: PluginContext) -> list[SocketReply]:
    """Publish as many events as asked for, or one that is not JSON."""
    broken: list[Any] = [float("nan"), b"x", {1}] if message.payload.get("broken") else []
    for value in broken:
        with contextlib.suppress(InvalidInput):
            context.events.publish("ACME_EVENT", {"value": value})
    for number in range(int(str(message.payload.get("count", 0)))):
        context.events.publish("ACME_EVENT", {"number": number, "text": message.payload.get("text")})
    return []


async def events(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Give so many events; of 0 signs of life without an end, of 3 a failure behind them."""
    count = int(request.parameters["count"])

    async def stream() -> AsyncIterator[ServerEvent]:
        try:
            for number in range(count):
                yield ServerEvent(event="number", data=number)
            while not count:
                yield ServerEvent()
                await asyncio.sleep(0.01)
            if count == 3:
                raise RuntimeError("no more numbers")
        finally:
            context.events.publish("acme-web.closed", {})

    return stream()
