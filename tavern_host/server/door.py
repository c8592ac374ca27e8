"""Accepts connections where there is room for them: strangers, who have not sent a token, never take that of others.

Whoever finds no room waits in the backlog of the listener, with the request that is sent already. Room is made by
closing connections that have sent no request for a while. Once its request is read it is known whether a client has a
token: if not, its connection ends with the answer, and one address has only so many at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from dataclasses import dataclass

from aiohttp import web

from tavern_host.common.system import most_open_files

TOKEN_DEADLINE = 10.0
"""Seconds in which a client has to send the token once it is connected."""
MOST_STRANGERS = 1024
"""How many clients may be connected that have not sent the token; with few file descriptors, a quarter of those."""
MOST_OF_ONE = 32
"""How many requests without a token are answered at a time that come from one address."""
GRACE = 1.0
"""Seconds that a connection may be silent while others wait."""
BACKLOG = 1024
"""How many clients may wait until they are accepted."""
_LOOK = 0.05
"""Seconds until it is looked again whether there is room."""
_PAUSE = 1.0
"""Seconds for which nobody is accepted where the system can give no more."""

_log = logging.getLogger("tavern.server")


@dataclass(eq=False)
class _Stranger:
    """A connection without a token. `asks` is the address that its request is from, once that is read."""

    since: float
    deadline: asyncio.TimerHandle
    admission: asyncio.Task[None] | None = None
    asks: str | None = None


class Door:
    """The connections of one listener."""

    def __init__(self) -> None:
        descriptors = most_open_files()
        self._most = max(8, descriptors // 2)
        self._most_strangers = max(4, min(MOST_STRANGERS, descriptors // 4))
        self._strangers: dict[web.RequestHandler, _Stranger] = {}  # the oldest first
        self._asking: Counter[str] = Counter()
        self._guests: set[web.RequestHandler] = set()
        self._has_changed = asyncio.Event()

    # --- what the server tells --------------------------------------------------------------------

    def welcome(self, connection: web.RequestHandler) -> None:
        """Let a connection stay that has sent a token."""
        if connection in self._strangers:
            self._forget_stranger(connection)
            self._guests.add(connection)

    def hear(self, connection: web.RequestHandler, address: str) -> None:
        """Take note that a connection has sent a request, for a client at an address, which a proxy may have named."""
        stranger = self._strangers.get(connection)
        if stranger is not None and stranger.asks is None:
            stranger.asks = address
            self._asking[address] += 1

    def is_too_many(self, connection: web.RequestHandler) -> bool:
        """Return whether a request without a token is one too many of its address."""
        stranger = self._strangers.get(connection)
        return stranger is not None and stranger.asks is not None and self._asking[stranger.asks] > MOST_OF_ONE

    def lets_stay(self, connection: web.RequestHandler) -> bool:
        """Return whether a connection may stay after an answer."""
        is_crowded = len(self._strangers) + len(self._guests) >= self._most * 3 // 4
        return connection in self._guests and not is_crowded

    def forget(self, connection: web.RequestHandler) -> None:
        """Forget a connection that has ended."""
        if connection in self._strangers:
            self._forget_stranger(connection)
        self._guests.discard(connection)
        self._has_changed.set()

    def _forget_stranger(self, connection: web.RequestHandler) -> _Stranger:
        stranger = self._strangers.pop(connection)
        stranger.deadline.cancel()
        if stranger.asks is not None:
            self._asking[stranger.asks] -= 1
            if not self._asking[stranger.asks]:
                del self._asking[stranger.asks]
        self._has_changed.set()
        return stranger

    # --- accepting --------------------------------------------------------------------------------

    async def accept(self, listener: socket.socket, server: web.Server, tls: ssl.SSLContext | None) -> None:
        """Accept the connections of a listener until cancelled, each as soon as there is room."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as admissions:
            while True:
                while not self._has_room():
                    await self._change()
                    self._make_room()
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except ConnectionAbortedError:
                    continue
                except OSError as error:  # such as no file descriptor
                    _log.error("no connection can be accepted: %s", error.strerror)
                    await asyncio.sleep(_PAUSE)
                    continue
                connection = server()
                deadline = loop.call_later(TOKEN_DEADLINE, self._cut, connection)
                stranger = self._strangers[connection] = _Stranger(loop.time(), deadline)
                stranger.admission = admissions.create_task(self._admit(connection, accepted, tls))
                await asyncio.sleep(0)  # what others have sent is read before more are accepted

    async def _admit(self, connection: web.RequestHandler, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Let a connection be served; with TLS, once its handshake is done."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls)
        except BaseException as error:
            accepted.close()
            self.forget(connection)
            if not isinstance(error, OSError):  # a client that went away, or speaks no TLS
                raise

    def _has_room(self) -> bool:
        return len(self._strangers) < self._most_strangers and len(self._strangers) + len(self._guests) < self._most

    async def _change(self) -> None:
        """Wait a little, in which what clients have sent is read."""
        self._has_changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await self._has_changed.wait()

    def _make_room(self) -> None:
        """Close those who keep others waiting, if there are such."""
        if self._has_room():
            return
        silent_since = asyncio.get_running_loop().time() - GRACE
        for connection, stranger in list(self._strangers.items()):
            if stranger.since > silent_since:
                break
            if stranger.asks is None:
                self._cut(connection)
        if not self._has_room():
            for guest in self._guests:
                guest.close()  # once it is idle

    def _cut(self, connection: web.RequestHandler) -> None:
        """Close the connection of a stranger at once: what it has not read is not waited for."""
        stranger = self._forget_stranger(connection)
        if connection.transport is not None:
            connection.transport.abort()
        elif stranger.admission is not None:
            stranger.admission.cancel()


DOOR: web.AppKey[Door] = web.AppKey("door")
"""With it an application says what connections have sent."""
