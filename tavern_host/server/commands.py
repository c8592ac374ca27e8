"""`POST /api/commands/{name}`: carries out what the command line hands to the server of a project."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from aiohttp import web

from tavern_host.contracts.calls import COMMANDED
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.documents import read_json_object
from tavern_host.contracts.errors import NotFound, PluginFailure, TavernError
from tavern_host.contracts.http import ServerEvent
from tavern_host.host import Host
from tavern_host.plugins.registrations import Registered
from tavern_host.server.bodies import body_of
from tavern_host.server.gate import GATE, call_of
from tavern_host.server.plugin_routes import send_events
from tavern_host.server.routes import route
from tavern_host.server.served import host_of

_PATH = "/api/commands/{name}"
_LIFE = 5.0
"""Seconds without output after which a sign of life is sent, which shows whether the client is still there."""
_WAITING = 64
"""How many outputs may wait for the client before the command waits too."""


async def _carry_out(request: web.Request) -> web.StreamResponse:
    """Carry out a command of a plugin with the arguments in the body, and send what it says as server-sent events:
    `output`, and in the end `end` or `error`. Closing the connection cancels it."""
    host, name = host_of(request), request.match_info["name"]
    command = host.registrations.commands.get(name)
    if command is None or not command.info.at_server:
        raise NotFound(f"there is no command {name!r} that a server carries out")
    body = read_json_object(await body_of(request), "the body")
    COMMANDED.set(call_of(host, "operate", _PATH).admission)
    events = _events(host, command, command.info.arguments(body))
    still = partial(request.app[GATE].still, request, "operate", _PATH, host)
    return await send_events(
        request, events, partial(host.report_failure, command.plugin, f"the command {name}"), still
    )


async def _events(
    host: Host, command: Registered[CommandInfo], arguments: dict[str, Any]
) -> AsyncIterator[ServerEvent]:
    said: asyncio.Queue[ServerEvent] = asyncio.Queue(_WAITING)
    running = asyncio.create_task(_run(host, command, arguments, said), name=f"command {command.info.name}")
    try:
        while True:
            try:
                async with asyncio.timeout(_LIFE):
                    event = await said.get()
            except TimeoutError:
                event = ServerEvent()
            yield event
            if event.event in ("end", "error"):
                return
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _run(
    host: Host, command: Registered[CommandInfo], arguments: dict[str, Any], said: asyncio.Queue[ServerEvent]
) -> None:
    name = command.info.name
    try:
        async with contextlib.aclosing(command.call(arguments)) as outputs:
            async for output in outputs:
                await said.put(ServerEvent(event="output", data=output.model_dump(mode="json", by_alias=True)))
        end = ServerEvent(event="end", data={})
    except TavernError as error:
        end = ServerEvent(event="error", data=error.info.to_json())
    except Exception as error:
        host.report_failure(command.plugin, f"the command {name}", error)
        failure = PluginFailure(f"{command.plugin} failed in {name}; the log says why", plugin=command.plugin)
        end = ServerEvent(event="error", data=failure.info.to_json())
    await said.put(end)


ROUTES = (
    route(
        "POST",
        _PATH,
        _carry_out,
        body="tavern_host.contracts.host_api:CommandArguments",
        content_type="text/event-stream",
        access="operate",
    ),
)
