"""The socket: the wire `{"type", "payload", "seq"}` of docs/websocket.md, for each client at its own speed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import WSMsgType, web

from tavern_host.common.redaction import redacted_json
from tavern_host.contracts.documents import read_json, read_model, to_thread_if_large
from tavern_host.contracts.errors import InvalidInput, LimitReached, TavernError, describe
from tavern_host.contracts.events import AUDITED, Event, Gap
from tavern_host.contracts.http import Access, SocketMessage, SocketReply
from tavern_host.contracts.languages import say
from tavern_host.events.bus import BusSubscription
from tavern_host.host import Host
from tavern_host.server.gate import GATE, STILL_IN, call_of, count_refusal
from tavern_host.server.plugin_routes import call_message
from tavern_host.server.refusals import REFUSED
from tavern_host.server.routes import route
from tavern_host.server.served import SERVED, host_of, project_of, visitor
from tavern_host.server.subscriptions import Filter, Wanted, joined, state_of, wanted_of

MAX_MESSAGE = 16 << 20
HEARTBEAT = 30.0
SEND_DEADLINE = 20.0
"""The largest message in bytes, and seconds between pings and for one send to a client."""
WAITING = 1 << 17
"""How many events may wait for one client; before so many do, those that wait have become too large for it."""
MOST_SOCKETS = 4096
"""How many sockets one server has open at a time."""
BATCH, SLICE = 256, 0.004
"""How many events are taken for a client at once, and how many seconds they are sent until others get a turn."""

_SIGNED_OUT = b"this session is over"
_LOOK = 1.0
"""Seconds between two looks at whether the operator's token is another."""

SOCKETS: web.AppKey[dict[web.WebSocketResponse, web.Request]] = web.AppKey("sockets")
"""Where an application has the sockets that are open, each with the request that opened it."""
OWN_MESSAGES: dict[str, Access] = {"SUBSCRIBE": "read"}
"""Who may send the messages that the host answers itself; plugins answer all others."""

_log = logging.getLogger("tavern.server")


async def socket_route(request: web.Request) -> web.WebSocketResponse:
    """Speak the platform's wire: `{"type", "payload", "seq"}`; `?since=SEQ&epoch=EPOCH` replays what was missed."""
    host, sockets = host_of(request), request.app[SOCKETS]
    admits = Filter(wanted_of(request.query))
    since, is_of_another_life = _since(request, host)
    if len(sockets) >= MOST_SOCKETS:
        raise LimitReached(f"{MOST_SOCKETS} sockets are open, and this server has no more", retry_after=5)
    # Nothing leaves this machine: compressing would cost more than it saves.
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_MESSAGE, compress=False)
    # Before the client knows that it is connected.
    subscription = host.events.subscribe(since=since, limit=WAITING, admits=admits)
    subscription.state_of, subscription.joined = state_of, joined
    sockets[socket] = request
    host.registrations.sockets += 1
    forward: asyncio.Task[None] | None = None
    try:
        await socket.prepare(request)
        if is_of_another_life:
            await _send(host, socket, {"type": "RELOAD_NEEDED", "payload": _now(host)})
        forward = asyncio.create_task(_forward(request, host, socket, subscription), name="forward events")
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await _answer(request, socket, subscription, message.data)
            elif message.type is WSMsgType.BINARY:
                await _send(host, socket, _error_reply("messages are JSON text, not binary"))
    finally:
        del sockets[socket]
        host.registrations.sockets -= 1
        await subscription.close()
        if forward is not None:
            forward.cancel()
            await asyncio.wait([forward])
    return socket


async def end_sessions(app: web.Application) -> AsyncIterator[None]:
    """While an application runs, close the sockets whose session ended when the operator's token was renewed."""

    async def look() -> None:
        gate, known = app[GATE], app[GATE].token()
        while True:
            await asyncio.sleep(_LOOK)
            if known != (known := gate.token()):
                ended = [one for one, request in app[SOCKETS].items() if await gate.visitor(request) is None]
                await asyncio.gather(*(one.close(code=1008, message=_SIGNED_OUT) for one in ended))

    looking = asyncio.create_task(look(), name="end sessions of an old token")
    yield
    looking.cancel()
    await asyncio.wait([looking])


def _since(request: web.Request, host: Host) -> tuple[int | None, bool]:
    """Return after which event a client wants to begin, and whether it means one from before a restart of the host;
    then it begins with everything."""
    text = request.query.get("since")
    if text is None:
        return None, False
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise web.HTTPBadRequest(text="since must be the `seq` of the last message received, a whole number")
    if int(text) > host.events.last_seq or request.query.get("epoch", host.events.epoch) != host.events.epoch:
        return 0, True
    return int(text), False


async def _forward(request: web.Request, host: Host, socket: web.WebSocketResponse, events: BusSubscription) -> None:
    """Send events as they come, with turns for others between them; a client that does not take one in time is
    cut off."""
    clock = asyncio.get_running_loop().time
    looked, who = clock(), visitor()
    while batch := await events.some(BATCH):
        if clock() - looked > STILL_IN:
            looked = clock()
            still = await request.app[GATE].still(request, "read", "/ws", host)
            if still is None:
                await socket.close(code=1008, message=_SIGNED_OUT)
                return
            who = still
        secrets = host.settings.secrets()
        try:
            async with asyncio.timeout(SEND_DEADLINE) as deadline:
                began = clock()
                for event in batch:
                    is_audited = isinstance(event, Event) and event.type in AUDITED
                    if is_audited and not who.may("operate", "/api/audit", host.project.id):
                        continue
                    data = _event_bytes(event, secrets)
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


def _event_bytes(event: Event | Gap, secrets: frozenset[str]) -> bytes | None:
    if isinstance(event, Event):
        return _bytes({"type": event.type, "payload": event.payload, "seq": event.seq}, secrets, event.plugin)
    return _bytes({"type": "GAP", "payload": event.to_json()}, secrets)


async def _answer(
    request: web.Request, socket: web.WebSocketResponse, subscription: BusSubscription, text: str
) -> None:
    """Hand one message to the plugin that registered its type, and send its replies; the host's own it answers."""
    host = host_of(request)
    visitor = await request.app[GATE].still(request, "read", "/ws", host)
    if visitor is None:
        await socket.close(code=1008, message=_SIGNED_OUT)
        return
    try:
        message = await to_thread_if_large(len(text) > BATCH * 1024, _parse, text)
        meant = project_of(message["payload"])
        if meant is not None and request.app[SERVED].get(meant) is not host:
            raise InvalidInput(f"this socket is of {host.project.id}; open /ws?projectId={meant} for the other project")
        if message["type"] == "SUBSCRIBE":
            visitor.require(OWN_MESSAGES["SUBSCRIBE"], "/ws/SUBSCRIBE", host.project.id)
            await _send(host, socket, _subscribed(host, subscription, message["payload"]))
            return
        registered = host.registrations.messages.get(message["type"])
        if registered is None:
            known = ", ".join(sorted([*host.registrations.messages, *OWN_MESSAGES]))
            await _send(host, socket, _error_reply(f"unknown message type {message['type']!r}; known are {known}"))
            return
        access, where = registered.info.access, f"/ws/{message['type']}"
        visitor.require(access, where, host.project.id)
        call = call_of(host, access, where, visitor)
        asked = SocketMessage(type=message["type"], payload=message["payload"], call=call)
        for reply in await call_message(host, registered, asked):
            await _send(host, socket, SocketReply.to_json(reply))
    except TavernError as error:
        if error.info.code in REFUSED:
            count_refusal(request, error.info.code, f"/ws/{message['type']}")
        await _send(host, socket, _error_reply(error.message, {"code": error.info.code, **error.info.details}))
    except Exception as error:
        _log.error("a message failed: %s", describe(error), exc_info=error)
        await _send(host, socket, _error_reply("the message could not be handled; the log says why"))


def _subscribed(host: Host, subscription: BusSubscription, payload: dict[str, Any]) -> dict[str, Any]:
    """Let a socket hear what it wants from now on, and return the reply. Raises `InvalidInput`."""
    payload.pop("projectId", None)
    wanted = read_model(Wanted, payload, "the payload")
    subscription.admits = Filter(wanted)
    return {"type": "SUBSCRIBED", "payload": _now(host) | wanted.to_json()}


def _now(host: Host) -> dict[str, Any]:
    return {"epoch": host.events.epoch, "seq": host.events.last_seq}


def _parse(text: str) -> dict[str, Any]:
    message = read_json(text, "the message")
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise InvalidInput('a message is {"type": "…", "payload": {…}}')
    payload = message.get("payload")
    if not isinstance(payload, dict | None):
        raise InvalidInput("the payload of a message is an object")
    return {**message, "payload": payload or {}}


def _error_reply(message: str, details: Any = None) -> dict[str, Any]:
    return {"type": "error", "payload": {"message": say(message), "details": details}}


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _bytes(message: dict[str, Any], secrets: frozenset[str], plugin: str | None = None) -> bytes | None:
    """Return a message as it is sent, without secrets; None for one that is no JSON, which is logged and left out."""
    try:
        try:
            data = _encode(message).encode()
        except UnicodeEncodeError:  # half a surrogate pair can only be sent as an escape
            data = json.dumps(message, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        _log.error("%s published a %s that is not JSON: %s", plugin or "the host", message["type"], error)
        return None
    return redacted_json(data, secrets)


async def _send(host: Host, socket: web.WebSocketResponse, message: dict[str, Any]) -> None:
    """Send one message; a client that does not take it in time is cut off, and what is no JSON is left out."""
    data = _bytes(message, host.settings.secrets())
    if data is None:
        return
    try:
        async with asyncio.timeout(SEND_DEADLINE):
            await socket.send_frame(data, WSMsgType.TEXT)
    except (TimeoutError, ConnectionError):
        await socket.close(code=1008, message=b"too slow")


ROUTES = (route("GET", "/ws", socket_route, status=101),)
