"""What failed as answers: problem details (RFC 9457) with a stable code."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web

from tavern_host.contracts.errors import HTTP_STATUS, TavernError, Vetoed, describe, one_line
from tavern_host.contracts.languages import say

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PROBLEM = "application/problem+json"

_CODES = {400: "invalid_input", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}

_log = logging.getLogger("tavern.server")


def failed(request: web.Request, error: Exception) -> web.Response:
    """Return a failure as problem details. Raises again what is no failure: a redirection, and that the client is gone,
    of which aiohttp says no more."""
    if isinstance(error, ConnectionError) or (isinstance(error, web.HTTPException) and error.status < 400):
        raise error
    if isinstance(error, web.HTTPException):
        response = error_response(error.status, _CODES.get(error.status, "http"), error.text or error.reason)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    if isinstance(error, TavernError):
        info = error.info
        plugin = info.plugin if isinstance(error, Vetoed) else None  # of which the message speaks
        return error_response(HTTP_STATUS.get(info.code, 500), info.code, error.message, info.details, plugin)
    if isinstance(error, web.RequestPayloadError):
        return error_response(400, "invalid_input", f"the body cannot be read: {one_line(str(error))}")
    _log.error("%s %s failed: %s", request.method, request.path, describe(error), exc_info=error)
    return error_response(500, "plugin_error", f"{request.method} {request.path} failed; the log says why")


def error_response(
    status: int, code: str, message: str, details: Any = None, plugin: str | None = None
) -> web.Response:
    """Return an error as problem details, with the members that the platform's clients read beside those of the RFC;
    what is for a person is in its language."""
    message = say(message)
    body = {
        "type": f"urn:tavern-host:error:{code}",
        "title": say(HTTPStatus(status).phrase),
        "status": status,
        "detail": message,
        "code": code,
        "error": message,
        "success": False,
        "message": message,
    }
    wait = (details or {}).get("retry_after") if status in (429, 503) else None
    headers = {"Retry-After": str(-int(-wait // 1))} if isinstance(wait, int | float) else None  # whole seconds
    body |= {"details": details} if details else {}
    body |= {"plugin": plugin} if plugin else {}
    return web.json_response(body, status=status, headers=headers, content_type=PROBLEM)
