"""The way in and out of each request: its id, the line about it in the log, and no secret in its answer. Where the log
is written is a part of a plugin."""

from __future__ import annotations

import logging
import re
import time

from aiohttp import web

from tavern_host.common.log_context import logged_with
from tavern_host.common.redaction import redacted_json
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.documents import LARGE_TEXT, to_thread_if_large
from tavern_host.contracts.languages import CATALOGUE, of_browser
from tavern_host.runtime.installed import catalogue
from tavern_host.server.errors import Handler
from tavern_host.server.packing import packed
from tavern_host.server.served import SERVED

REQUEST_ID = web.RequestKey("request_id", str)
"""Where a request has the id that its answer and its lines in the log have."""

_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_log = logging.getLogger("tavern.server")


@web.middleware
async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Log each request that changes something or fails, under an id that its answer has as `X-Request-Id`."""
    given = request.headers.get("X-Request-Id", "")
    request[REQUEST_ID] = given if _ID.fullmatch(given) else new_id("request")
    began = time.perf_counter()
    CATALOGUE.set(catalogue(of_browser(request.headers.get("Accept-Language", ""))))
    with logged_with(request=request[REQUEST_ID]):
        response = await packed(request, await _without_secrets(request, await handler(request)))
        # Strangers, who may be many, are not let in here either.
        is_change, is_in = request.method not in ("GET", "HEAD"), response.status not in (401, 421)
        level = logging.INFO if is_in and (is_change or response.status >= 400) else logging.DEBUG
        spent = (time.perf_counter() - began) * 1000
        _log.log(level, "%s %s %d, %.0f ms", request.method, request.path, response.status, spent)
    return response


async def _without_secrets(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Return an answer in which no secret of the settings stands; files and streams are not looked at here."""
    secrets = request.app[SERVED].secrets()
    if not response.prepared:
        for name, value in [*response.headers.items()]:
            if (shown := redacted_json(value.encode(), secrets)) != value.encode():
                response.headers[name] = shown.decode()
    is_text = response.content_type.startswith("text/") or response.content_type.endswith(("json", "xml"))
    if isinstance(response, web.Response) and is_text and isinstance(body := response.body, bytes):
        shown = await to_thread_if_large(len(body) > LARGE_TEXT, redacted_json, body, secrets)
        if shown is not body:
            response.body = shown
    return response
