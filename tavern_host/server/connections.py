"""The connections of the server: how their requests are read, and for how long."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web
from yarl import URL

from tavern_host.contracts.errors import InvalidInput
from tavern_host.server.door import BACKLOG, DOOR, Door
from tavern_host.server.errors import error_response
from tavern_host.server.reach import ADDRESS, Reach

IDLE_DEADLINE = 75.0
"""Seconds in which one with the token has to send the head of its next request."""
LINGER = 2.0
"""Seconds for which the rest of a body is read that nobody wants, so that its sender sees the answer."""
DRAIN = 2.0
"""Seconds that requests in flight have to finish when the server stops; aiohttp waits as long again for those that it
has cancelled."""

HEADERS = {
    "Server": "tavern-host",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cache-Control": "no-store",
}
"""Headers of every answer. `Server` names no version."""


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what is no HTTP, or what failed outside of the application; what is no HTTP is not logged."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        response = error_response(status, "invalid_input", "this is no HTTP request")
        response.headers.update(HEADERS)
        response.force_close()
        return response


class _Server(web.Server):
    def __init__(self, of: web.Server, door: Door, base_path: str) -> None:
        super().__init__(of.request_handler, request_factory=partial(_below, base_path, of.request_factory))
        self._door = door

    def __call__(self) -> web.RequestHandler:
        loop = asyncio.get_running_loop()
        how: dict[str, Any] = {"keepalive_timeout": IDLE_DEADLINE, "lingering_time": LINGER, "access_log": None}
        return _Connection(self, loop=loop, auto_decompress=False, **how)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._door.forget(handler)


def _below(base_path: str, make: Callable[..., web.BaseRequest], message: Any, *rest: Any) -> web.BaseRequest:
    """Make a request of a message without the base path, which a proxy has taken away or not."""
    if base_path and (message.path == base_path or message.path.startswith((f"{base_path}/", f"{base_path}?"))):
        path = message.path.removeprefix(base_path)
        path = path if path.startswith("/") else f"/{path}"
        message = message._replace(path=path, url=URL(path, encoded=True))
    return make(message, *rest)


@asynccontextmanager
async def listening(app: web.Application, listener: socket.socket, reach: Reach | None = None) -> AsyncIterator[None]:
    """Serve an application on a listener until the end of the `with`."""
    base_path, tls = (reach.base_path, reach.tls) if reach is not None else ("", None)
    door = app[DOOR] = Door()
    inner = web.AppRunner(app)
    await inner.setup()
    assert inner.server is not None
    server = _Server(inner.server, door, base_path)
    runner = web.ServerRunner(server, shutdown_timeout=DRAIN)
    try:
        await runner.setup()
        listener.setblocking(False)
        listener.listen(BACKLOG)
        accepting = asyncio.create_task(door.accept(listener, server, tls), name="accept connections")
        try:
            yield
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            listener.close()
    finally:
        await runner.cleanup()
        await inner.cleanup()


def listening_socket(port: int, address: str = ADDRESS) -> socket.socket:
    """Return a socket that is bound to a port of this machine; 0 takes any free one. Raises `InvalidInput`."""
    if not 0 <= port <= 65535:
        raise InvalidInput(f"--port {port}: a port is a number from 0 to 65535; 0 takes any free one")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise InvalidInput(f"--address {address}: no interface of this machine has it") from None
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise InvalidInput(f"port {port} cannot be used ({error.strerror}); give another with --port") from None
        raise
    return listener
