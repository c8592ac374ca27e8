"""Who may enter: every request needs the token that `tavern serve` printed, a Host header that names this server and,
where a browser sends one, an Origin that does too."""

from __future__ import annotations

import hmac

from aiohttp import web

from tavern_host.contracts.log_context import logged_with
from tavern_host.host import OPERATOR
from tavern_host.server.connections import STRANGERS
from tavern_host.server.errors import Handler, error_response
from tavern_host.server.served import SERVED

GATE: web.AppKey[Gate] = web.AppKey("gate")
"""Where an application has its gate."""
PUBLIC = frozenset({"/healthz", "/readyz"})
"""What answers without the token."""


class Gate:
    """Decides which requests may enter."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        self.hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.cookie = f"tavern_{port}"

    def refuse(self, request: web.Request) -> tuple[int, str] | None:
        """Return the status and one line for a request that may not enter, else None."""
        if request.host not in self.hosts:
            return 421, f"this server is {sorted(self.hosts)[0]}, not {request.host!r}"
        origin = request.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.hosts:
            return 403, f"requests from {origin!r} are not accepted"
        if not self.knows(self.token_of(request)):
            return 401, "open the address that `tavern serve` printed, or send 'Authorization: Bearer TOKEN'"
        return None

    def knows(self, token: str) -> bool:
        """Return whether a token is the right one."""
        return hmac.compare_digest(token.encode(errors="replace"), self._token)

    def token_of(self, request: web.Request) -> str:
        """Return the token that a request carries: header, query or cookie."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return value.strip()
        return request.query.get("token") or request.cookies.get(self.cookie, "")


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let nobody in without the token; a browser that brings it in the address gets a cookie instead."""
    gate = request.app[GATE]
    if request.path in PUBLIC and request.host in gate.hosts:
        return await handler(request)
    refused = gate.refuse(request)
    if refused is not None:
        return error_response(refused[0], "unauthorized" if refused[0] == 401 else "forbidden", refused[1])
    if request.app[SERVED].is_draining and request.method not in ("GET", "HEAD"):
        message = "the server stops and takes no more work; send it again when it runs again"
        return error_response(503, "stopping", message, {"retry_after": 5})
    if STRANGERS in request.app:
        request.app[STRANGERS].discard(request.protocol)
    if request.method == "GET" and "token" in request.query and "text/html" in request.headers.get("Accept", ""):
        clean = str(request.rel_url.without_query_params("token"))
        response = web.HTTPFound("/" + clean.lstrip("/"))  # "//name" would be another server
        response.set_cookie(gate.cookie, request.query["token"], httponly=True, samesite="Strict")
        raise response
    with logged_with(principal=str(OPERATOR)):
        return await handler(request)
