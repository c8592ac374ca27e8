"""Who may enter: every request names this server in its Host header and, where a browser sends one, its Origin, and
has the operator's token, or that of a user. What a user may do is for `require` to say."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tavern_host import clock
from tavern_host.common.log_context import LOGGED
from tavern_host.contracts.accounts import ACCOUNTS, Identity
from tavern_host.contracts.calls import Admission, CallContext
from tavern_host.contracts.errors import LimitReached, TavernError
from tavern_host.contracts.http import Access, RouteInfo
from tavern_host.host import OPERATOR, Host
from tavern_host.server import pages
from tavern_host.server.bodies import is_packed
from tavern_host.server.door import DOOR
from tavern_host.server.errors import Handler, error_response
from tavern_host.server.reach import Reach
from tavern_host.server.refusals import REFUSALS, REFUSED
from tavern_host.server.routes import OWN_ROUTES
from tavern_host.server.served import HOST, SERVED, VISITOR, host_of, visitor

GATE: web.AppKey[Gate] = web.AppKey("gate")
"""Where an application has its gate."""

_MOST_UNKNOWN = 1 << 16
"""The largest body in bytes that somebody without a token may send."""
MOST_REQUESTS = 1024
"""How many requests one server answers at a time, sockets apart, which have a limit of their own."""
_ENCODINGS = "a body is sent as it is, or with a token with 'Content-Encoding: gzip', once"
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, *",
    "Access-Control-Max-Age": "600",
}
STILL_IN = 5.0
"""Seconds for which what is sent as it comes is sent until it is looked at whether its receiver may still have it."""
_OPERATOR = Identity(user=OPERATOR.id, role="operator", permissions=["read", "create", "operate"])
_NOBODY = Identity(user="nobody", role="none")


class Gate:
    """Decides which requests may enter."""

    def __init__(self, token: Callable[[], str], reach: Reach) -> None:
        self.token = token
        self.reach = reach
        self._cookie = f"tavern_{reach.port}"  # cookies are shared by all ports of a machine
        self._answering = 0

    def refuse(self, request: web.Request) -> tuple[int, str] | None:
        """Return the status and one line for a request that nobody may send, else None."""
        if not self.reach.admits(request):
            return 403, "this server is reached through its proxy only"
        if not self.reach.knows(request.host, by_proxy=self.reach.is_from_proxy(request)):
            this = f"this server is {self.reach.address}:{self.reach.port}, not {request.host!r}"
            return 421, f"{this}; give `tavern serve` its other names with --name NAME[:PORT]"
        origin = request.headers.get("Origin")
        if origin is not None and self.reach.is_foreign(request) and origin not in request.app[SERVED].default.origins:
            return 403, f"requests from {origin!r} are not accepted: it is not among `origins` in host.yaml"
        if origin is None and request.method not in ("GET", "HEAD", "OPTIONS") and self._carried(request)[1]:
            return 403, "a request with the cookie that changes something needs an Origin header, as browsers send it"
        return None

    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request among those that are answered at this moment. Raises `LimitReached` for one too many."""
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical.endswith("/ws"):
            return await handler(request)
        if self._answering >= MOST_REQUESTS:
            raise LimitReached(f"{MOST_REQUESTS} requests are being answered, and no more at a time", retry_after=1)
        self._answering += 1
        try:
            return await handler(request)
        finally:
            self._answering -= 1

    def set_cookie(
        self, request: web.Request, response: web.StreamResponse, token: str, seconds: int | None, name: str = ""
    ) -> None:
        """Let a browser have a token as this server's cookie from now on, as long as it runs or for some seconds; with
        a name, a cookie of a plugin."""
        path, secure = self.reach.base_path or "/", self.reach.is_secure(request) or None
        how: dict[str, Any] = {"path": path, "secure": secure, "samesite": "Lax" if name else "Strict"}
        response.set_cookie(self._cookie + name, token, max_age=seconds, httponly=True, **how)

    def cookies(self, request: web.Request, plugin: str) -> dict[str, str]:
        """Return the cookies of a plugin."""
        own = f"{self._cookie}_{plugin}_"
        return {name.removeprefix(own): value for name, value in request.cookies.items() if name.startswith(own)}

    async def visitor(self, request: web.Request) -> Identity | None:
        """Return whose token a request carries now; None for one that is no token, or no more."""
        token = self._carried(request)[0]
        if hmac.compare_digest(token.encode(errors="replace"), self.token().encode()):
            return _OPERATOR
        try:
            return await request.app[SERVED].default.services.get(ACCOUNTS).identify(token)
        except TavernError:  # without accounts there is the operator alone
            return None

    async def still(self, request: web.Request, access: Access, where: str, host: Host) -> Identity | None:
        """Return who sent a request that is still being answered; None for somebody who might send it no more."""
        who = await self.visitor(request)
        return who if who is not None and who.may(access, where, host.project.id) else None

    def _carried(self, request: web.Request) -> tuple[str, bool]:
        """Return the token that a request carries in its header, query or cookie, and whether that is the cookie."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return value.strip(), False
        if named := request.query.get("token"):
            return named, False
        token = "" if self.reach.is_foreign(request) else request.cookies.get(self._cookie, "")
        return token, bool(token)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let nobody in without a token; a browser that brings it in the address gets a cookie instead."""
    gate, door = (app := request.app)[GATE], app.get(DOOR)
    VISITOR.set(_NOBODY)  # a connection may be shared, and has somebody else's request before this one
    if door is not None:
        door.hear(request.protocol, gate.reach.client(request))
    refused = gate.refuse(request)
    if refused is not None:
        count_refusal(request, "forbidden")
        return error_response(refused[0], "forbidden", refused[1])
    if (
        request.method == "OPTIONS"
        and "Access-Control-Request-Method" in request.headers
        and gate.reach.is_foreign(request)
    ):
        return web.Response(status=204, headers=_PREFLIGHT)
    known = await gate.visitor(request)
    if door is not None and known is None and door.is_too_many(request.protocol):
        count_refusal(request, "unauthorized")
        message = "so many requests without a token are not answered at a time; send the token, or ask again later"
        return error_response(429, "limit_reached", message, {"retry_after": 1})
    if known is None and not _is_public(request):
        count_refusal(request, "unauthorized")
        if _wants_page(request):
            return pages.signed_out(request, gate.reach.base_path)
        message = "you are signed out: send 'Authorization: Bearer TOKEN'; `tavern token` shows the token"
        return error_response(401, "unauthorized", message)
    if known is None and request.can_read_body and not 0 <= (request.content_length or -1) <= _MOST_UNKNOWN:
        message = f"without a token the body has a length of at most {_MOST_UNKNOWN} bytes"
        return error_response(413, "too_large", message)
    encodings = request.headers.getall("Content-Encoding", ())
    is_plain = not encodings or [one.strip().lower() for one in encodings] in ([""], ["identity"])
    if not is_plain and (known is None or not is_packed(request) or len(encodings) > 1):
        return error_response(415, "unsupported_encoding", _ENCODINGS)
    VISITOR.set(who := known or _NOBODY)
    if app[SERVED].is_draining and request.method not in ("GET", "HEAD"):
        message = "the server is stopping and rejects new work; send it again when it runs again"
        return error_response(503, "stopping", message, {"retry_after": 5})
    if known is not None and door is not None:
        door.welcome(request.protocol)
    if known is not None and _wants_page(request) and "token" in request.query:
        clean = str(request.rel_url.without_query_params("token"))
        response = web.HTTPFound(gate.reach.base_path + "/" + clean.lstrip("/"))  # "//name" would be another server
        gate.set_cookie(request, response, request.query["token"], None)
        raise response
    is_start = request.path == "/" and _wants_page(request)
    if known is not None and is_start and not known.sees(host_of(request).project.id):
        return pages.projects(app[SERVED].seen_by(known), gate.reach.base_path)
    LOGGED.set({**LOGGED.get(), "principal": f"user:{who.user}"})
    try:
        return await gate.answer(request, handler)
    except TavernError as error:
        if error.info.code in REFUSED and known is not None:  # a login has records of its own
            count_refusal(request, error.info.code)
        raise


def count_refusal(request: web.Request, code: str, message: str = "") -> None:
    """Record that the visitor was kept from the route, or from a message of the socket."""
    host = request.get(HOST) or request.app[SERVED].default
    where = message or f"{request.method} {request.path}"
    request.app[REFUSALS].count(host, visitor().user, request.app[GATE].reach.client(request), where, code)


def _wants_page(request: web.Request) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def _is_public(request: web.Request) -> bool:
    """Return whether a request is for a route that is open to everybody."""
    resource, registrations = request.match_info.route.resource, request.app[SERVED].default.registrations
    infos = [info for info, _ in request.app[OWN_ROUTES] if resource is not None and info.path == resource.canonical]
    registered = registrations.find(request.method, request.rel_url.path_safe)[0]
    return any(info.needs == "public" for info in [*infos, *([registered.info] if registered is not None else [])])


def call_of(host: Host, access: Access = "operate", where: str = "", who: Identity | None = None) -> CallContext:
    """Return the context of a call in the name of who sent the request that is being answered, or a message, and has
    the access that it needs."""
    who = who or visitor()
    if not who.session:  # the operator, or somebody who logs in
        return host.call(who.user)
    asked = {"access": access, "where": where, "at": clock.now()}
    return host.call(who.user, Admission.construct(user=who.user, session=who.session, **asked))


def admitting(info: RouteInfo, handler: Handler) -> Handler:
    """Return a handler that is called for those who may use its route."""

    async def admitted(request: web.Request) -> web.StreamResponse:
        visitor().require(info.needs, info.path, host_of(request).project.id)
        return await handler(request)

    return admitted
