"""The connections of the server: how many clients may be connected without the token, and for how long.

A client that has sent the token may stay; the application says which have.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tavern_host.contracts.errors import InvalidInput
from tavern_host.server.errors import error_response

ADDRESS = "127.0.0.1"
TOKEN_DEADLINE = 10.0
"""Seconds in which a client has to send the token once it is connected."""
IDLE_DEADLINE = 75.0
"""Seconds in which one with the token has to send the head of its next request."""
LINGER = 2.0
"""Seconds for which the rest of a body is read that nobody wants, so that its sender sees the answer."""
DRAIN = 2.0
"""Seconds that requests in flight have to finish when the server stops; aiohttp waits as long again for those that it
has cancelled."""
MOST_STRANGERS = 128
"""How many clients may be connected that have not sent the token; with few file descriptors, a quarter of those."""
BACKLOG = 128
"""How many clients may wait until they are accepted."""

HEADERS = {
    "Server": "tavern-host",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cache-Control": "no-store",
}
"""Headers of every answer. `Server` names no version."""


class Strangers:
    """The connections that have not sent the token. The oldest is closed where there are too many."""

    def __init__(self) -> None:
        self.most = max(4, min(MOST_STRANGERS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def add(self, connection: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Give a new connection its time."""
        # What it has not read is not waited for.
        self._deadlines[connection] = asyncio.get_running_loop().call_later(TOKEN_DEADLINE, transport.abort)
        if len(self._deadlines) > self.most:
            oldest = next(iter(self._deadlines))
            self.discard(oldest)
            if oldest.transport is not None:
                oldest.transport.abort()

    def discard(self, connection: web.RequestHandler) -> None:
        """Forget a connection that has sent the token, or is gone."""
        if (deadline := self._deadlines.pop(connection, None)) is not None:
            deadline.cancel()


STRANGERS: web.AppKey[Strangers] = web.AppKey("strangers")
"""With these an application says which connection has sent the token."""


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
    def __init__(self, of: web.Server, strangers: Strangers) -> None:
        super().__init__(of.request_handler, request_factory=of.request_factory)
        self._strangers = strangers

    def __call__(self) -> web.RequestHandler:
        loop = asyncio.get_running_loop()
        return _Connection(self, loop=loop, keepalive_timeout=IDLE_DEADLINE, lingering_time=LINGER, access_log=None)  # type: ignore[arg-type]

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._strangers.add(handler, transport)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._strangers.discard(handler)


@asynccontextmanager
async def listening(app: web.Application, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a listener until the end of the `with`."""
    strangers = app[STRANGERS] = Strangers()
    inner = web.AppRunner(app)
    await inner.setup()
    assert inner.server is not None
    runner = web.ServerRunner(_Server(inner.server, strangers), shutdown_timeout=DRAIN)
    try:
        await runner.setup()
        # So few are accepted at once that those with a token are known before they would have to make room.
        await web.SockSite(runner, listener, backlog=max(1, strangers.most // 8)).start()
        listener.listen(BACKLOG)
        yield
    finally:
        await runner.cleanup()
        await inner.cleanup()


def listening_socket(port: int) -> socket.socket:
    """Return a socket that is bound to a port of this machine; 0 takes any free one. Raises `InvalidInput`."""
    if not 0 <= port <= 65535:
        raise InvalidInput(f"--port {port}: a port is a number from 0 to 65535; 0 takes any free one")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise InvalidInput(f"port {port} cannot be used ({error.strerror}); give another with --port") from None
        raise
    return listener
