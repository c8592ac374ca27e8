"""The way in and out of each request: its id, the line about it in the log, what failed as an answer, no secret in
that, and the headers that all have. Where the log is written is a part of a plugin."""

from __future__ import annotations

import asyncio
import logging
import re
import time

from aiohttp import web

from tavern_host.common.log_context import LOGGED
from tavern_host.common.redaction import redacted_json
from tavern_host.contracts.calls import numbered_id
from tavern_host.contracts.documents import LARGE_TEXT
from tavern_host.contracts.languages import CATALOGUE, of_browser
from tavern_host.runtime.installed import catalogue
from tavern_host.server.connections import HEADERS
from tavern_host.server.door import DOOR
from tavern_host.server.errors import Handler, failed
from tavern_host.server.gate import GATE
from tavern_host.server.packing import pack, vary
from tavern_host.server.plugin_routes import in_form
from tavern_host.server.served import SERVED

REQUEST_ID = web.RequestKey("request_id", str)
"""Where a request has the id that its answer and its lines in the log have."""

_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_OF_PROJECT = re.compile("^/api/projects/[^/]+/")
_log = logging.getLogger("tavern.server")


@web.middleware
async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Log each request that changes something or fails, under an id that its answer has as `X-Request-Id`."""
    request_id, served = request.headers.get("X-Request-Id", ""), request.app[SERVED]
    request_id = request[REQUEST_ID] = request_id if _ID.fullmatch(request_id) else numbered_id("request")
    began = time.perf_counter()
    CATALOGUE.set(catalogue(of_browser(request.headers.get("Accept-Language", ""))))
    LOGGED.set({"request": request_id})
    try:
        response = await handler(request)
    except Exception as error:
        response = failed(request, error)
    if response.status >= 400:
        response = await in_form(request, response)
    await _hide_secrets(response, served.secrets())
    if "ETag" in response.headers:
        await pack(request, response)
    # Strangers, who may be many, are not let in here either.
    is_change, status = request.method not in ("GET", "HEAD"), response.status
    level = logging.INFO if status not in (401, 421) and (is_change or status >= 400) else logging.DEBUG
    spent = (time.perf_counter() - began) * 1000
    path, raw = request.path, served.default.registrations.raw
    if _OF_PROJECT.sub("/api/", path).startswith(raw):
        path = max(raw, key=_OF_PROJECT.sub("/api/", path).startswith) + "…"  # the rest may be a secret
    _log.log(level, "%s %s %d, %.0f ms", request.method, path, status, spent)
    return response


async def _hide_secrets(response: web.StreamResponse, secrets: frozenset[str]) -> None:
    """Let no secret of the settings stand in an answer; files and streams are not looked at here."""
    if not response.prepared:
        for name, value in [*response.headers.items()]:
            if (shown := redacted_json(value.encode(), secrets)) != value.encode():
                response.headers[name] = shown.decode()
    kind = response.content_type
    is_text = kind.startswith("text/") or kind.endswith(("json", "xml"))
    if isinstance(response, web.Response) and is_text and isinstance(body := response.body, bytes):
        is_large = len(body) > LARGE_TEXT
        shown = await asyncio.to_thread(redacted_json, body, secrets) if is_large else redacted_json(body, secrets)
        if shown is not body:
            response.body = shown


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that every answer has, and let pages of the origins in `host.yaml` read it."""
    headers, app = response.headers, request.app
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    if (request_id := request.get(REQUEST_ID)) is not None:
        headers["X-Request-Id"] = request_id
    headers["Server"] = HEADERS["Server"]  # aiohttp has put its version there
    if origins := app[SERVED].default.origins:  # the CORS protocol of the Fetch standard, without cookies
        vary(response, "Origin")
        origin = request.headers.get("Origin", "")
        if origin in origins and app[GATE].reach.is_foreign(request):
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = "*"
    door = app.get(DOOR)
    if door is not None and response.status != 101 and not door.lets_stay(request.protocol):
        response.force_close()
        headers["Connection"] = "close"
