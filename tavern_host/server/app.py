"""The aiohttp application: transport, plugins and permissions. Every other route belongs to a plugin.

Listens on 127.0.0.1 only; every request needs the token that `tavern serve` printed, a Host header that
names this server and, where a browser sends one, an Origin that does too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import mimetypes
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from tavern_host.contracts.documents import read_json, read_json_object
from tavern_host.contracts.errors import InvalidInput, TavernError, describe
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.http import SocketMessage, SocketReply
from tavern_host.contracts.plugins import PluginInfo
from tavern_host.events.bus import BusSubscription
from tavern_host.host import Host
from tavern_host.server.blob_routes import ROUTES as BLOB_ROUTES
from tavern_host.server.connections import HEADERS, STRANGERS
from tavern_host.server.plugin_routes import call_message, plugin_route, wrong_method
from tavern_host.server.served import ROUTES as PROJECT_ROUTES
from tavern_host.server.served import SERVED, ServedProjects, host_of, project_of
from tavern_host.server.settings_routes import ROUTES as SETTINGS_ROUTES

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY = 16 << 20
HEARTBEAT = 30.0
SEND_DEADLINE = 20.0
"""The largest body or message in bytes, and seconds between pings and for one send to a client."""
WAITING = 1 << 17
"""How many events may wait for one client; before so many do, those that wait have become too large for it."""
BATCH, SLICE = 256, 0.004
"""How many events are taken for a client at once, and how many seconds they are sent until others get a turn."""

_GATE: web.AppKey[Gate] = web.AppKey("gate")

_STATUS = {
    "invalid_input": 400,
    "invalid_file": 400,
    "permission_denied": 403,
    "not_reviewed": 403,
    "forbidden": 403,
    "vetoed": 403,
    "not_found": 404,
    "conflict": 409,
    "admission": 409,
    "limit_reached": 429,
    "service_unavailable": 503,
    "deadline_exceeded": 504,
}
_CODES = {400: "invalid_input", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}

_log = logging.getLogger("tavern.server")


class Gate:
    """Decides which requests may enter."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self.cookie = f"tavern_{port}"

    def refuse(self, request: web.Request) -> tuple[int, str] | None:
        """Return the status and one line for a request that may not enter, else None."""
        if request.host not in self._hosts:
            return 421, f"this server is {sorted(self._hosts)[0]}, not {request.host!r}"
        origin = request.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
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


def make_app(host: Host | ServedProjects, *, token: str, port: int) -> web.Application:
    """Return the application that serves a started host, or several."""
    app = web.Application(middlewares=[_errors, _guard], client_max_size=MAX_BODY)
    app[SERVED] = served = host if isinstance(host, ServedProjects) else ServedProjects(host)
    app.cleanup_ctx.append(served.of_application)
    app[_GATE] = Gate(token, port)
    handlers: dict[str, dict[str, Handler]] = {}
    for method, path, handler in (
        ("GET", "/ws", _socket),
        ("GET", "/api/plugins", _list_plugins),
        ("POST", "/api/plugins/reload", _reload),
        ("GET", "/api/plugins/{name}", _show_plugin),
        ("PUT", "/api/plugins/{name}/state", _switch_plugin),
        ("POST", "/api/plugins/{name}/grant", _grant_plugin),
        ("POST", "/api/plugins/{name}/revoke", _revoke_plugin),
        ("POST", "/api/plugins/{name}/reload", _reload),
        ("GET", "/api/permissions", _list_permissions),
        ("GET", "/api/why/{subject}", _why),
        *SETTINGS_ROUTES,
        *BLOB_ROUTES,
        ("GET", "/plugins/{name}/{path:.+}", _plugin_file),
    ):
        for address in (path, _in_project(path)):
            handlers.setdefault(address, {})[method] = handler
    for method, path, handler in PROJECT_ROUTES:
        handlers.setdefault(path, {})[method] = handler
    for path, by_method in handlers.items():
        resource = app.router.add_resource(path)
        for method, handler in by_method.items():
            resource.add_route(method, handler)
        if "GET" in by_method and path != "/ws":
            resource.add_route("HEAD", by_method["GET"])
        resource.add_route("*", _refuse_other_methods(sorted(by_method)))
    app.router.add_route("*", "/api/projects/{projectId}/{path:.*}", plugin_route)
    app.router.add_route("*", "/{path:.*}", plugin_route)
    app.on_response_prepare.append(_add_headers)
    return app


def _in_project(path: str) -> str:
    """Return where a route of one project is found among several: the API below the project, all else beside it."""
    api = path.removeprefix("/api/")
    return f"/projects/{{projectId}}{path}" if api == path else f"/api/projects/{{projectId}}/{api}"


def _refuse_other_methods(allowed: list[str]) -> Handler:
    async def refuse(request: web.Request) -> web.StreamResponse:
        raise wrong_method(request, allowed)

    return refuse


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = HEADERS["Server"]  # aiohttp has put its version there


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every failure into one JSON line with a stable code."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = _error(error.status, _CODES.get(error.status, "http"), error.text or error.reason)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except TavernError as error:
        return _error(_STATUS.get(error.info.code, 500), error.info.code, error.message, error.info.details)
    except Exception as error:
        _log.error("%s %s failed: %s", request.method, request.path, describe(error), exc_info=error)
        return _error(500, "plugin_error", f"{request.method} {request.path} failed; the log says why")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let nobody in without the token; a browser that brings it in the address gets a cookie instead."""
    gate = request.app[_GATE]
    refused = gate.refuse(request)
    if refused is not None:
        return _error(refused[0], "unauthorized" if refused[0] == 401 else "forbidden", refused[1])
    if STRANGERS in request.app:
        request.app[STRANGERS].discard(request.protocol)
    if request.method == "GET" and "token" in request.query and "text/html" in request.headers.get("Accept", ""):
        clean = str(request.rel_url.without_query_params("token"))
        response = web.HTTPFound("/" + clean.lstrip("/"))  # "//name" would be another server
        response.set_cookie(gate.cookie, request.query["token"], httponly=True, samesite="Strict")
        raise response
    return await handler(request)


def _error(status: int, code: str, message: str, details: Any = None) -> web.Response:
    body = {"error": message, "code": code, "success": False, "message": message}
    wait = (details or {}).get("retry_after") if status in (429, 503) else None
    headers = {"Retry-After": str(-int(-wait // 1))} if isinstance(wait, int | float) else None  # whole seconds
    return web.json_response(body | ({"details": details} if details else {}), status=status, headers=headers)


# --- plugins --------------------------------------------------------------------------------------


async def _list_plugins(request: web.Request) -> web.Response:
    return web.json_response([_shown(request, plugin) for plugin in host_of(request).plugins()])


async def _show_plugin(request: web.Request) -> web.Response:
    return web.json_response(_shown(request, host_of(request).plugin(request.match_info["name"])))


def _shown(request: web.Request, plugin: PluginInfo) -> dict[str, Any]:
    """Return a plugin as clients see it, its front end with the addresses that it has in its project."""
    host, shown = host_of(request), plugin.to_json()
    if plugin.frontend is not None and host is not request.app[SERVED].default:
        base = f"/projects/{host.project.id}"
        entry, styles = plugin.frontend.entry_url, plugin.frontend.style_urls
        moved = {"entry_url": entry and base + entry, "style_urls": [base + style for style in styles]}
        shown["frontend"] = plugin.frontend.model_copy(update=moved).to_json()
    return shown


async def _grant_plugin(request: web.Request) -> web.Response:
    return web.json_response(_shown(request, await host_of(request).grant(request.match_info["name"])))


async def _revoke_plugin(request: web.Request) -> web.Response:
    return web.json_response(_shown(request, await host_of(request).revoke(request.match_info["name"])))


async def _switch_plugin(request: web.Request) -> web.Response:
    """Enable or disable a plugin: `{"enabled": true}` (the platform's shape)."""
    host, name = host_of(request), request.match_info["name"]
    body = read_json_object(await request.read(), "the body")
    enabled = body.get("enabled")
    if not isinstance(enabled, bool) or set(body) != {"enabled"}:
        raise InvalidInput('the body must be {"enabled": true} or {"enabled": false}')
    plugin = await (host.enable(name) if enabled else host.disable(name))
    return _done(request, f"{name} is {plugin.state.value}", [plugin])


async def _reload(request: web.Request) -> web.Response:
    """Reload the plugin that the path names; without a name, all that are new, changed or gone."""
    plugins = await host_of(request).reload(request.match_info.get("name"))
    changed = ", ".join(f"{p.name} is {p.state.value}" for p in plugins)
    return _done(request, changed or "no plugin is new, changed or gone", plugins)


def _done(request: web.Request, message: str, plugins: list[PluginInfo]) -> web.Response:
    body = {"success": True, "message": message, "plugins": [_shown(request, plugin) for plugin in plugins]}
    return web.json_response(body)


async def _list_permissions(request: web.Request) -> web.Response:
    """Answer with every permission that there is, and the plugins that ask for it."""
    permissions = [
        {
            "name": permission.name,
            "level": permission.level,
            "description": permission.description,
            "plugins": [{"name": name, "granted": granted} for name, granted in asking.items()],
        }
        for permission, asking in host_of(request).permissions()
    ]
    return web.json_response(permissions)


async def _why(request: web.Request) -> web.Response:
    return web.json_response(host_of(request).why(request.match_info["subject"]).to_json())


async def _plugin_file(request: web.Request) -> web.StreamResponse:
    """Serve a file of a loaded plugin's front end; nothing outside of that folder, nothing hidden, and of a folder that
    was reviewed, nothing that is not as it was then."""
    name, path = request.match_info["name"], request.match_info["path"]
    folder = host_of(request).frontend_folder(name)
    missing = web.HTTPNotFound(text=f"the plugin {name!r} serves no file {path!r}")
    if folder is None or "\0" in path or any(part.startswith(".") for part in path.split("/")):
        raise missing
    try:
        root = folder.resolve()
        file = (root / path).resolve()
        found = file.is_relative_to(root) and file.is_file()
    except (OSError, RuntimeError, UnicodeError):  # too long a name, links in a circle, no text
        found = False
    if not found:
        raise missing
    reviewed = host_of(request).frontend_review(name)
    if reviewed is None:
        return web.FileResponse(file)
    content = await asyncio.to_thread(file.read_bytes)
    if reviewed.get(file) != hashlib.sha256(content).digest():
        message = f"{path!r} of {name} was changed after it was reviewed; look at the plugin and grant it again"
        return _error(403, "not_reviewed", message)
    kind, encoding = mimetypes.guess_type(file.name)
    return web.Response(body=content, content_type="application/octet-stream" if encoding else kind)


# --- the socket -----------------------------------------------------------------------------------


async def _socket(request: web.Request) -> web.WebSocketResponse:
    """Speak the platform's wire: `{"type", "payload", "seq"}`; `?since=SEQ` replays what was missed."""
    host = host_of(request)
    since = _since(request, host.events.last_seq)
    # Nothing leaves this machine: compressing would cost more than it saves.
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_BODY, compress=False)
    subscription = host.events.subscribe(since=since, limit=WAITING)  # before the client knows that it is connected
    forward: asyncio.Task[None] | None = None
    try:
        await socket.prepare(request)
        forward = asyncio.create_task(_forward(socket, subscription), name="forward events")
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await _answer(request, socket, message.data)
            elif message.type is WSMsgType.BINARY:
                await _send(socket, _error_reply("messages are JSON text, not binary"))
    finally:
        await subscription.close()
        if forward is not None:
            forward.cancel()
            await asyncio.wait([forward])
    return socket


def _since(request: web.Request, last_seq: int) -> int | None:
    """Return after which event a client wants to begin; one from before a restart of the host wants all."""
    text = request.query.get("since")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise web.HTTPBadRequest(text="since must be the `seq` of the last message received, a whole number")
    return int(text) if int(text) <= last_seq else 0


async def _forward(socket: web.WebSocketResponse, events: BusSubscription) -> None:
    """Send events as they come, with turns for others between them; a client that does not take one in time is
    cut off."""
    clock = asyncio.get_running_loop().time
    while batch := await events.some(BATCH):
        try:
            async with asyncio.timeout(SEND_DEADLINE) as deadline:
                began = clock()
                for event in batch:
                    data = _event_bytes(event)
                    if data is not None:
                        await socket.send_frame(data, WSMsgType.TEXT)
                    if clock() - began > SLICE:
                        await asyncio.sleep(0)
                        began = clock()
                        deadline.reschedule(began + SEND_DEADLINE)
        except (TimeoutError, ConnectionError):
            await socket.close(code=1008, message=b"too slow")
            return
        if len(batch) == BATCH:
            await asyncio.sleep(0)
    await socket.close(code=1001, message=b"the host stops")


def _event_bytes(event: Event | Gap) -> bytes | None:
    if isinstance(event, Event):
        return _bytes({"type": event.type, "payload": event.payload, "seq": event.seq}, event.plugin)
    return _bytes({"type": "GAP", "payload": event.to_json()})


async def _answer(request: web.Request, socket: web.WebSocketResponse, text: str) -> None:
    """Hand one message to the plugin that registered its type, and send its replies."""
    host = host_of(request)
    try:
        message = _parse(text)
        meant = project_of(message["payload"])
        if meant is not None and request.app[SERVED].get(meant) is not host:
            raise InvalidInput(f"this socket is of {host.project.id}; open /ws?projectId={meant} for the other project")
        registered = host.registrations.messages.get(message["type"])
        if registered is None:
            known = ", ".join(sorted(host.registrations.messages)) or "none"
            await _send(socket, _error_reply(f"unknown message type {message['type']!r}; known are {known}"))
            return
        asked = SocketMessage(type=message["type"], payload=message["payload"], call=host.call())
        for reply in await call_message(host, registered, asked):
            await _send(socket, SocketReply.to_json(reply))
    except TavernError as error:
        await _send(socket, _error_reply(error.message, {"code": error.info.code, **error.info.details}))
    except Exception as error:
        _log.error("a message failed: %s", describe(error), exc_info=error)
        await _send(socket, _error_reply("the message could not be handled; the log says why"))


def _parse(text: str) -> dict[str, Any]:
    message = read_json(text, "the message")
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise InvalidInput('a message is {"type": "…", "payload": {…}}')
    payload = message.get("payload")
    if not isinstance(payload, dict | None):
        raise InvalidInput("the payload of a message is an object")
    return {**message, "payload": payload or {}}


def _error_reply(message: str, details: Any = None) -> dict[str, Any]:
    return {"type": "error", "payload": {"message": message, "details": details}}


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _bytes(message: dict[str, Any], plugin: str | None = None) -> bytes | None:
    """Return a message as it is sent; None for one that is no JSON, which is logged and left out."""
    try:
        try:
            return _encode(message).encode()
        except UnicodeEncodeError:  # half a surrogate pair can only be sent as an escape
            return json.dumps(message, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        _log.error("%s published a %s that is not JSON: %s", plugin or "the host", message["type"], error)
        return None


async def _send(socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    """Send one message; a client that does not take it in time is cut off, and what is no JSON is left out."""
    data = _bytes(message)
    if data is None:
        return
    try:
        async with asyncio.timeout(SEND_DEADLINE):
            await socket.send_frame(data, WSMsgType.TEXT)
    except (TimeoutError, ConnectionError):
        await socket.close(code=1008, message=b"too slow")
