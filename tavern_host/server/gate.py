"""Who may enter: every request names this server in its Host header and, where a browser sends one, its Origin, and
has the token that `tavern serve` printed, or that of a user. What a user may do is for `require` to say."""

from __future__ import annotations

import hmac
from contextvars import ContextVar

from aiohttp import web

from tavern_host.contracts.accounts import ACCOUNTS, Identity
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.http import RouteInfo
from tavern_host.contracts.log_context import also_log
from tavern_host.host import OPERATOR, Host
from tavern_host.server.connections import STRANGERS
from tavern_host.server.errors import Handler, error_response
from tavern_host.server.routes import OWN_ROUTES
from tavern_host.server.served import SERVED

GATE: web.AppKey[Gate] = web.AppKey("gate")
"""Where an application has its gate."""

_MOST_UNKNOWN = 1 << 16
"""The largest body in bytes that somebody without a token may send."""
_PAGE = """<!doctype html><html lang="en"><title>tavern-host</title><h1>This is a tavern host</h1>
<p>To enter, open the address that <code>tavern serve</code> printed in its terminal: it has a token in it.</p>
<p>Whom the operator has added as a user can <a href="/login">log in</a>.</p></html>
"""
_OPERATOR = Identity(user=OPERATOR.id, role="operator", permissions=["read", "create", "operate"])
_NOBODY = Identity(user="nobody", role="none")
_VISITOR: ContextVar[Identity] = ContextVar("visitor")


class Gate:
    """Decides which requests may enter."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.cookie = f"tavern_{port}"

    def refuse(self, request: web.Request) -> tuple[int, str] | None:
        """Return the status and one line for a request that nobody may send, else None."""
        if request.host not in self._hosts:
            return 421, f"this server is {sorted(self._hosts)[0]}, not {request.host!r}"
        origin = request.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return 403, f"requests from {origin!r} are not accepted"
        if origin is None and request.method not in ("GET", "HEAD", "OPTIONS") and self._carried(request)[1]:
            return 403, "a request with the cookie that changes something needs an Origin header, as browsers send it"
        return None

    async def visitor(self, request: web.Request) -> Identity | None:
        """Return whose token a request carries now; None for one that is no token, or no more."""
        token = self._carried(request)[0]
        if hmac.compare_digest(token.encode(errors="replace"), self._token):
            return _OPERATOR
        try:
            return await request.app[SERVED].default.services.get(ACCOUNTS).identify(token)
        except TavernError:  # without accounts there is the operator alone
            return None

    def _carried(self, request: web.Request) -> tuple[str, bool]:
        """Return the token that a request carries in its header, query or cookie, and whether that is the cookie."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return value.strip(), False
        if named := request.query.get("token"):
            return named, False
        token = request.cookies.get(self.cookie, "")
        return token, bool(token)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let nobody in without a token; a browser that brings it in the address gets a cookie instead."""
    gate = request.app[GATE]
    refused = gate.refuse(request)
    if refused is not None:
        return error_response(refused[0], "forbidden", refused[1])
    known = await gate.visitor(request)
    if known is None and not _is_public(request):
        if _wants_page(request):
            return web.Response(status=401, text=_PAGE, content_type="text/html")
        message = "open the address that `tavern serve` printed, or send 'Authorization: Bearer TOKEN'"
        return error_response(401, "unauthorized", message)
    if known is None and request.can_read_body and not 0 <= (request.content_length or -1) <= _MOST_UNKNOWN:
        message = f"without a token the body has a length of at most {_MOST_UNKNOWN} bytes"
        return error_response(413, "too_large", message)
    _VISITOR.set(known or _NOBODY)
    if request.app[SERVED].is_draining and request.method not in ("GET", "HEAD"):
        message = "the server stops and takes no more work; send it again when it runs again"
        return error_response(503, "stopping", message, {"retry_after": 5})
    if known is not None and STRANGERS in request.app:
        request.app[STRANGERS].discard(request.protocol)
    if known is not None and _wants_page(request) and "token" in request.query:
        clean = str(request.rel_url.without_query_params("token"))
        response = web.HTTPFound("/" + clean.lstrip("/"))  # "//name" would be another server
        response.set_cookie(gate.cookie, request.query["token"], httponly=True, samesite="Strict")
        raise response
    also_log(principal=f"user:{visitor().user}")
    return await handler(request)


def _wants_page(request: web.Request) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def _is_public(request: web.Request) -> bool:
    """Return whether a request is for a route that is open to everybody."""
    resource, registrations = request.match_info.route.resource, request.app[SERVED].default.registrations
    infos = [info for info, _ in request.app[OWN_ROUTES] if resource is not None and info.path == resource.canonical]
    registered = registrations.find(request.method, request.rel_url.path_safe)[0]
    return any(info.needs == "public" for info in [*infos, *([registered.info] if registered is not None else [])])


def visitor() -> Identity:
    """Return who sent the request that is being answered."""
    return _VISITOR.get()


def call_of(host: Host) -> CallContext:
    """Return the context of a call in the name of who sent the request that is being answered."""
    return host.call(visitor().user)


def admitting(info: RouteInfo, handler: Handler) -> Handler:
    """Return a handler that is called for those who may use its route."""

    async def admitted(request: web.Request) -> web.StreamResponse:
        visitor().require(info.needs, info.path)
        return await handler(request)

    return admitted
