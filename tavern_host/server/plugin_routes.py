"""Calls the handlers of plugins' routes and messages, and encodes what they return."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pkgutil import resolve_name
from typing import Any, TypeVar
from urllib.parse import unquote

from aiohttp import web

from tavern_host import clock
from tavern_host.common.redaction import redacted_json
from tavern_host.contracts.documents import LARGE_TEXT, to_thread_if_large
from tavern_host.contracts.errors import PluginFailure, TavernError
from tavern_host.contracts.http import (
    HttpRequest,
    HttpResponse,
    MessageInfo,
    RouteInfo,
    ServerEvent,
    SocketMessage,
    SocketReply,
)
from tavern_host.host import Host
from tavern_host.plugins.registrations import Registered
from tavern_host.server.blob_routes import SANDBOXED, blob_response
from tavern_host.server.bodies import body_of
from tavern_host.server.errors import PROBLEM
from tavern_host.server.gate import GATE, STILL_IN, call_of
from tavern_host.server.served import HOST, SERVED, host_of, take_project, visitor

T = TypeVar("T")

_PRIVATE_HEADERS = frozenset({"authorization", "cookie", "content-encoding", "content-length"})
"""Those that are the server's to read: who asks, and how the body was sent."""
MAX_ANSWER = 64 << 20
"""The largest body in bytes that a plugin answers with; a Blob, which is sent as a stream, may be larger."""
_COOKIE_SECONDS = 600
_IMPORTED = set[str]()
"""First-party handlers that are there: the first request waits for an import, the event loop never."""
_LOOK = 0.5
"""Seconds between two looks whether a client is still there."""
_CONTROL = re.compile(r"[\x00-\x1f]")
_HOSTS_HEADERS = re.compile(
    "(access-control-.*|clear-site-data|content-security-policy.*|cross-origin-.*|refresh|service-worker-allowed"
    "|set-cookie|strict-transport-security|x-.*-options)",
    re.IGNORECASE,
)
"""Headers that say what a browser does with the host's own origin."""


async def plugin_route(request: web.Request) -> web.StreamResponse:
    """Answer a request with the plugin that registered its route."""
    is_there = request.content.is_eof() and "Content-Encoding" not in request.headers
    body, app = await (request.read() if is_there else body_of(request)), request.app
    named = None
    if b'"projectId"' in body and not request.path.startswith(app[SERVED].default.registrations.raw):
        named, body = await to_thread_if_large(len(body) > LARGE_TEXT, take_project, body)
    host, who = host_of(request, named), visitor()
    path = path_in_project(request) if "projectId" in request.match_info else request.rel_url.path_safe
    registered, parameters, allowed = host.registrations.find(request.method, path)
    if registered is None:
        if allowed:
            raise wrong_method(request, allowed)
        raise web.HTTPNotFound(text=f"there is nothing at {request.path}")
    needs, where = registered.info.needs, registered.info.path
    who.require(needs, where, host.project.id)
    may_create = who.may("create", where, host.project.id)
    gate = app[GATE]
    cookies, call = gate.cookies(request, registered.plugin), call_of(host, needs, where, who)
    asked = HttpRequest.construct(
        method=request.method,
        path=unquote(path),
        parameters={key: unquote(value) for key, value in parameters.items()},
        query={key: value for key, value in request.query.items() if key not in ("token", "projectId")},
        headers={k.lower(): v for k, v in request.headers.items() if k.lower() not in _PRIVATE_HEADERS},
        body=body,
        cookies=cookies,
        client=gate.reach.client(request),
        base=gate.reach.base(request),
        session=who.session,
        may_create=may_create,
        call=call,
    )
    answering = call_route(host, registered, asked)
    response = await (_while_there(request, answering) if registered.info.ends_with_client else answering)
    if not isinstance(response, HttpResponse):
        report = partial(host.report_failure, registered.plugin, f"{registered.info.method} {where}")
        return await send_events(request, response, report, partial(gate.still, request, needs, where, host))
    response = response if registered.first_party else bounded(response)
    if response.headers and any(_CONTROL.search(part) for header in response.headers.items() for part in header):
        raise ValueError(f"{registered.info.handler} of {registered.plugin} gave a header with control characters")
    if response.blob is not None:
        return await blob_response(host, response.blob, response.headers)
    answer = answered(request, response)
    if response.session is not None:
        gate.set_cookie(request, answer, response.session, response.session_seconds)
    for name, value in response.cookies.items():
        gate.set_cookie(request, answer, value, _COOKIE_SECONDS if value else 0, f"_{registered.plugin}_{name}")
    return answer


def bounded(response: HttpResponse) -> HttpResponse:
    """Return a third-party plugin's answer as it is sent: without a session and headers about the host's origin; where
    a browser shows it as a page, one without scripts and without the rights of whoever looks at it."""
    headers = {name: value for name, value in response.headers.items() if not _HOSTS_HEADERS.fullmatch(name)}
    headers["Content-Security-Policy"] = SANDBOXED
    return response.model_copy(update={"headers": headers, "session": None})


def answered(request: web.Request, response: HttpResponse) -> web.Response:
    """Return a response as it is sent: without its body to a client that has it already."""
    if response.status == 200 and is_known(request, response.headers.get("ETag", "")):
        return web.Response(status=304, headers=response.headers)
    return web.Response(
        status=response.status,
        body=response.body,
        headers=response.headers,
        content_type=response.content_type,
        charset="utf-8" if response.content_type.startswith(("text/", "application/json")) else None,
    )


def is_known(request: web.Request, etag: str) -> bool:
    """Return whether a client that reads has the state of this ETag already (RFC 9110 §13.1.2)."""
    if not etag or request.method not in ("GET", "HEAD"):
        return False
    return any(tag.value in ("*", etag.removeprefix("W/").strip('"')) for tag in request.if_none_match or ())


async def send_events(
    request: web.Request,
    events: AsyncIterator[ServerEvent],
    report: Callable[[Exception], object],
    still: Callable[[], Awaitable[object]],
) -> web.StreamResponse:
    """Send events as they come, to their end or until the client is gone, or `still` returns None; what fails then is
    reported, and ends the stream."""
    looked = clock.monotonic()
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await stream.prepare(request)
    try:
        async for one in events:
            if clock.monotonic() - looked > STILL_IN:
                looked = clock.monotonic()
                if await still() is None:
                    break
            await stream.write(redacted_json(_event(one).encode(), request.app[SERVED].secrets()))
    except ConnectionError:  # the client is gone
        pass
    except Exception as error:
        report(error)
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    return stream


def _event(one: ServerEvent) -> str:
    if not one.event and one.text is None:
        return ":\n\n"
    lines = [f"event: {one.event}"] if one.event else []
    text = json.dumps(one.data) if one.text is None else one.text
    return "\n".join([*lines, *(f"data: {line}" for line in text.split("\n")), "\n"])


async def _while_there(request: web.Request, answering: Coroutine[Any, Any, T]) -> T:
    """Return the answer to a request. Where its client is gone before that, it is cancelled, and `ConnectionResetError`
    raised."""
    task = asyncio.create_task(answering, name=f"answer {request.method} {request.path}")
    try:
        while not (await asyncio.wait([task], timeout=_LOOK))[0]:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError(f"the client of {task.get_name()} is gone")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


def path_in_project(request: web.Request) -> str:
    """Return the path of a request without the project that it may name. An encoded slash belongs to the part that it
    stands in."""
    path = request.rel_url.path_safe
    if "projectId" not in request.match_info:
        return path
    below = "/api/projects/" if path.startswith("/api/") else "/projects/"
    return below.removesuffix("projects/") + path.removeprefix(below).partition("/")[2]


async def in_form(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Return a failure in the form of the protocol that the request belongs to, where that has one of its own."""
    if response.prepared or response.content_type != PROBLEM or not isinstance(response, web.Response):
        return response
    host = request.get(HOST) or request.app[SERVED].default
    form = host.registrations.error_form(path_in_project(request))
    if not form:
        return response
    said: HttpResponse = (await _imported(form))(json.loads(response.body or b"{}"))  # type: ignore[arg-type]
    kept = {name: response.headers[name] for name in ("Retry-After", "Allow") if name in response.headers}
    return web.json_response(said.data, status=said.status, headers={**kept, **said.headers})


async def _imported(handler: str) -> Any:
    """Return a function of the host's own, imported in a thread the first time."""
    if handler in _IMPORTED:
        return resolve_name(handler)
    found = await asyncio.to_thread(resolve_name, handler)
    _IMPORTED.add(handler)
    return found


def wrong_method(request: web.Request, allowed: list[str]) -> web.HTTPMethodNotAllowed:
    """Return the error for a path that takes other methods."""
    text = f"{request.path} takes {', '.join(allowed)}, not {request.method}"
    return web.HTTPMethodNotAllowed(request.method, allowed, text=text)


async def call_route(
    host: Host, registered: Registered[RouteInfo], request: HttpRequest
) -> HttpResponse | AsyncIterator[ServerEvent]:
    """Return the response of a route's handler, its data encoded as JSON in `body`, or the events that it sends.

    Raises the handler's `TavernError`, and `PluginFailure` for any other failure, which is reported.
    """
    where = f"{registered.info.method} {registered.info.path}"
    return await _called(host, registered, where, request, _response)


async def call_message(
    host: Host, registered: Registered[MessageInfo], message: SocketMessage
) -> Sequence[SocketReply]:
    """Return the replies of a message's handler. Raises as `call_route`."""
    return await _called(host, registered, f"the message {registered.info.type}", message, _replies)


async def _called(
    host: Host, registered: Registered[Any], where: str, argument: Any, read: Callable[[str, Any], T]
) -> T:
    try:
        if registered.first_party and (handler := registered.info.handler) not in _IMPORTED:
            await _imported(handler)
        return read(registered.info.handler, await registered.call(argument))
    except Exception as error:
        if not isinstance(error, TavernError) or isinstance(error, PluginFailure):
            host.report_failure(registered.plugin, where, error)
        if isinstance(error, TavernError):
            raise
        message = f"{registered.plugin} failed in {where}; the log says why"
        raise PluginFailure(message, plugin=registered.plugin) from None


def _response(handler: str, result: Any) -> HttpResponse | AsyncIterator[ServerEvent]:
    if not isinstance(result, HttpResponse):
        if isinstance(result, AsyncIterator):
            return result
        raise TypeError(f"{handler} returned {type(result).__name__}, expected an HttpResponse")
    if result.blob is not None:
        return result
    body = result.body
    if body is None:
        try:
            body = json.dumps(result.data, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{handler} returned data that is not JSON: {error}") from None
    if len(body) > MAX_ANSWER:
        raise ValueError(
            f"{handler} returned {len(body)} bytes, of which there may be {MAX_ANSWER}; a Blob has no limit"
        )
    return result if result.body is body else result.model_copy(update={"body": body})


def _replies(handler: str, result: Any) -> Sequence[SocketReply]:
    if not isinstance(result, list | tuple) or not all(isinstance(reply, SocketReply) for reply in result):
        raise TypeError(f"{handler} returned {type(result).__name__}, expected a list of SocketReply")
    return result
