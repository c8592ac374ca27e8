"""The proxy that a sandbox reaches the network through: one Unix socket for each run, tunnels and plain HTTP, only to
what the run's allow-list says. It does not look into what goes through a tunnel."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType

import h11

from tavern_host import clock
from tavern_host.common.proxies import NO_PROXY_HINT
from tavern_host.contracts.errors import Misconfigured
from tavern_scripts.api.allowlist import Address, AllowList, Scheme, Target
from tavern_scripts.network.http1 import (
    MAX_HEAD,
    PIECE,
    body_of,
    client_side,
    read_request,
    read_response,
    server_side,
)
from tavern_scripts.network.proxy_limits import Connection, ConnectionBudget, ProxyLimits
from tavern_scripts.network.upstream import open_tunnel

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Looks up the addresses of a name; the port is the one that will be connected to."""

_log = logging.getLogger("tavern.scripts.proxy")

_LONGEST_SOCKET = 100
"""How long a Unix socket's path may be, with some room."""

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_ADDRESSES = 4
_PER_ADDRESS = 5.0


class _Stopped(Exception):
    """A connection ends here; `status` and the text are for the client if it was sent nothing yet."""

    def __init__(self, status: str, reason: str, *, allowed: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.allowed = allowed


class Proxy:
    """`async with Proxy(…) as path` serves at the Unix socket `path` until the block ends, and leaves nothing."""

    def __init__(
        self,
        allowed: Sequence[str],
        limits: ProxyLimits,
        record: Callable[[Connection], None],
        *,
        budget: ConnectionBudget | None = None,
        resolve: Resolve | None = None,
        upstream: Callable[[str], str | None] = lambda address: None,
    ) -> None:
        """Take the patterns that are granted, and a callback for each connection that has ended; `upstream` returns the
        proxy through which this host reaches an address itself, which then looks up the name.

        Raises `InvalidInput` for a pattern that is none.
        """
        self._allowed = AllowList(allowed)
        self._limits = limits
        self._record = record
        self._budget = budget or ConnectionBudget(2 * limits.at_once)
        self._resolve = resolve or self._look_up
        self._upstream = upstream
        self._lookups: ThreadPoolExecutor | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._folder: Path | None = None
        self._turns = asyncio.Semaphore(limits.at_once)
        self._count = 0
        self._bytes = 0

    async def __aenter__(self) -> Path:
        folder = _private_folder()
        path = folder / "proxy"
        try:
            self._server = await asyncio.start_unix_server(self._accept, path, limit=MAX_HEAD)
            path.chmod(0o666)  # the folder keeps others out; inside of the sandbox it may be another user who connects
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folder = folder
        return path

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        handlers = list(self._handlers)
        for task in handlers:
            task.cancel()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lookups is not None:
            self._lookups.shutdown(wait=False, cancel_futures=True)
        if handlers:
            await asyncio.wait(handlers)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it came at the moment of the end
            writer.transport.abort()
            return
        self._count += 1
        full = self._count > self._limits.in_all or len(self._handlers) >= 2 * self._limits.at_once
        if full or not self._budget.take():
            if self._count <= self._limits.in_all + 1:  # the rest would only fill the log
                self._tell(Connection("", None, "http", False, "too many connections"))
            writer.write(_TOO_MANY)
            writer.close()
            return
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all is with the system
        task = asyncio.get_running_loop().create_task(self._serve(_Exchange(self, reader, writer)))
        self._handlers.add(task)
        task.add_done_callback(lambda task: self._ended(task, writer))

    async def _serve(self, exchange: _Exchange) -> None:
        async with self._turns:
            await exchange.run()

    def _ended(self, task: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._handlers.discard(task)
        self._budget.give()
        writer.transport.abort()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection of a script ended in an error", exc_info=error)

    # What the connections share

    @property
    def limits(self) -> ProxyLimits:
        """The limits of this run."""
        return self._limits

    def spend(self, size: int) -> bool:
        """Count bytes of the run; return whether it may continue."""
        self._bytes += size
        return self._bytes <= self._limits.run_bytes

    def tell(self, connection: Connection) -> None:
        """Hand over what became of a connection."""
        self._tell(connection)

    def upstream(self, target: Target, scheme: Scheme) -> str | None:
        """Return the proxy through which `target` is reached, if it may be reached at all."""
        if not self._allowed.allows(target, scheme):
            raise _Stopped("403 Forbidden", f"{target} is not among the hosts that this script may reach")
        return self._upstream(f"{'http' if scheme == 'http' else 'https'}://{target}")

    async def addresses(self, target: Target, scheme: Scheme) -> list[Address]:
        """Return the addresses that `target` may be reached at; it is looked up this once."""
        if target.address is not None:
            return [target.address]
        try:
            found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError):
            reason = f"{target.host} cannot be looked up, and {NO_PROXY_HINT}"
            raise _Stopped("502 Bad Gateway", reason, allowed=True) from None
        usable = self._allowed.usable(target, found, scheme)
        if not usable:
            raise _Stopped(
                "403 Forbidden",
                f"{target.host} leads to an address that is not of the public internet; "
                "such an address must be allowed itself",
            )
        return usable[:_ADDRESSES]

    def _tell(self, connection: Connection) -> None:
        try:
            self._record(connection)
        except Exception:
            _log.exception("a connection of a script to %s could not be recorded", connection.host or "nowhere")

    async def _look_up(self, host: str, port: int) -> list[Address]:
        if self._lookups is None:  # of its own, so that slow answers keep no other part of the host waiting
            self._lookups = ThreadPoolExecutor(max_workers=4, thread_name_prefix="tavern-proxy")
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._lookups, _getaddrinfo, host, port)
        return [ip_address(text) for text in dict.fromkeys(found)]


class _Exchange:
    """One connection of a script, from its request to its end."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._limits = proxy.limits
        self._reader = reader
        self._writer = writer
        self._client = client_side()
        self._target: Target | None = None
        self._scheme: Scheme = "http"
        self._address: Address | None = None
        self._allowed, self._reason = False, "the host ended it"
        self._answered = False
        self._sent = 0
        self._received = 0
        self._active = 0.0

    async def run(self) -> None:
        """Serve the connection and record it, whatever happens."""
        began = time.perf_counter()
        try:
            try:
                await self._serve()
                self._allowed, self._reason = self._target is not None, ""
            except _Stopped as stop:
                self._allowed, self._reason = stop.allowed, stop.reason
                await self._refuse(stop)
        finally:
            target = self._target
            if target is not None or self._reason:
                self._proxy.tell(
                    Connection(
                        host=target.host if target else "",
                        port=target.port if target else None,
                        scheme=self._scheme,
                        allowed=self._allowed or self._address is not None,
                        reason=self._reason,
                        address=str(self._address or ""),
                        sent=self._sent,
                        received=self._received,
                        seconds=time.perf_counter() - began,
                    )
                )

    async def _serve(self) -> None:
        """Raise `_Stopped` where it is refused or cut short."""
        try:
            async with asyncio.timeout(self._limits.connection_seconds):
                await self._proceed()
        except TimeoutError:
            raise _Stopped("504 Gateway Timeout", "it took too long", allowed=self._address is not None) from None
        except h11.ProtocolError as error:
            status = "502 Bad Gateway" if self._address else "400 Bad Request"
            raise _Stopped(status, str(error), allowed=self._address is not None) from None
        except OSError:
            raise _Stopped("502 Bad Gateway", "the connection broke", allowed=self._address is not None) from None

    async def _proceed(self) -> None:
        head = await self._head()
        if head is None:
            return
        request = read_request(self._client, head)
        self._target, self._scheme = request.target, "http" if request.message else "connect"
        reader, writer = await self._connect(request.target)
        try:
            if request.message is None:
                await self._tunnel(reader, writer)
            else:
                await self._pass_on(request.message, request.expects_continue, reader, writer)
        finally:
            writer.transport.abort()

    async def _head(self) -> bytes | None:
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                return await self._reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            raise _Stopped("408 Request Timeout", "the request did not come in time") from None
        except asyncio.LimitOverrunError:
            raise _Stopped("431 Request Header Fields Too Large", "the request's head is too long") from None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise _Stopped("400 Bad Request", "the request ended before its time") from None
            return None

    async def _connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            upstream = self._proxy.upstream(target, self._scheme)
            async with asyncio.timeout(self._limits.connect_seconds):
                if upstream is not None:
                    streams = await open_tunnel(upstream, str(target))
                    self._address = ip_address(streams[1].get_extra_info("peername")[0])
                    streams[1].transport.set_write_buffer_limits(0)
                    return streams
                for address in await self._proxy.addresses(target, self._scheme):
                    with contextlib.suppress(OSError, TimeoutError):
                        async with asyncio.timeout(min(_PER_ADDRESS, self._limits.connect_seconds)):
                            streams = await asyncio.open_connection(str(address), target.port, limit=MAX_HEAD)
                        self._address = address
                        streams[1].transport.set_write_buffer_limits(0)
                        return streams
        except TimeoutError:
            raise _Stopped("504 Gateway Timeout", f"{target} does not answer", allowed=True) from None
        except (ConnectionError, Misconfigured) as error:  # of a tunnel
            raise _Stopped("502 Bad Gateway", str(error), allowed=True) from None
        raise _Stopped("502 Bad Gateway", f"{target} cannot be reached", allowed=True)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answered = True
        self._writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with self._guarded():
            await _both(
                self._copy(_pieces(self._reader), writer, out=True),
                self._copy(_pieces(reader), self._writer, out=False),
            )

    async def _pass_on(
        self, request: h11.Request, expects: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        server = server_side()
        writer.write(server.send(request) or b"")
        if expects:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with self._guarded():
            # The server may answer before it has read all; what comes after the body is dropped.
            body = body_of(self._reader, self._client, server)
            sending = asyncio.ensure_future(self._copy(body, writer, out=True, end=False))
            answering = asyncio.ensure_future(self._answer(server, reader))
            try:
                await asyncio.wait((sending, answering), return_when=asyncio.FIRST_COMPLETED)
                failure = sending.exception() if sending.done() else None
                if failure is not None and not isinstance(failure, OSError):
                    raise failure
                await answering
            finally:
                for task in (sending, answering):
                    task.cancel()
                await asyncio.gather(sending, answering, return_exceptions=True)

    async def _answer(self, server: h11.Connection, reader: asyncio.StreamReader) -> None:
        response = None
        while response is None:
            try:
                response = read_response(server, await reader.readuntil(b"\r\n\r\n"))
            except asyncio.IncompleteReadError:
                raise h11.RemoteProtocolError("the server answered with nothing") from None
            except asyncio.LimitOverrunError:
                raise h11.RemoteProtocolError("the head of the server's answer is too long") from None
        self._answered = True
        self._writer.write(self._client.send(response) or b"")
        await self._copy(body_of(reader, server, self._client), self._writer, out=False)

    async def _copy(
        self, pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter, *, out: bool, end: bool = True
    ) -> None:
        async for piece in pieces:
            self._active = clock.monotonic()
            if out:
                self._sent += len(piece)
            else:
                self._received += len(piece)
            if self._sent + self._received > self._limits.connection_bytes:
                raise _Stopped("502 Bad Gateway", "the connection carried more than it may", allowed=True)
            if not self._proxy.spend(len(piece)):
                raise _Stopped("502 Bad Gateway", "the script's connections carried more than they may", allowed=True)
            writer.write(piece)
            await writer.drain()
        if end and writer.can_write_eof():
            writer.write_eof()
            await writer.drain()

    @contextlib.asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        """Raise `_Stopped` in the block when nothing has gone either way for too long."""
        loop = asyncio.get_running_loop()
        self._active = clock.monotonic()
        try:
            async with asyncio.timeout(self._limits.idle_seconds) as guard:

                def look() -> None:
                    if not guard.expired():
                        silent = clock.monotonic() - self._active
                        guard.reschedule(loop.time() + self._limits.idle_seconds - silent)
                        timers.append(loop.call_later(self._limits.idle_seconds / 4, look))
                        timers.popleft()

                timers = deque([loop.call_later(self._limits.idle_seconds / 4, look)])
                try:
                    yield
                finally:
                    timers[0].cancel()
        except TimeoutError:
            raise _Stopped("504 Gateway Timeout", "nothing was sent or received for too long", allowed=True) from None

    async def _refuse(self, stop: _Stopped) -> None:
        if self._answered:
            return
        self._answered = True
        text = f"tavern: {stop.reason}\n".encode("ascii", "replace")
        self._writer.write(
            f"HTTP/1.1 {stop.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
            "Connection: close\r\n\r\n".encode("ascii")
            + text
        )
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.drain()
                self._writer.write_eof()
                while await self._reader.read(PIECE):  # else what is unread would take the answer with it
                    pass


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(PIECE):
        yield piece


async def _both(first: Awaitable[None], second: Awaitable[None]) -> None:
    """Wait for both; the first that raises ends the other."""
    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _getaddrinfo(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]).partition("%")[0] for entry in found]


def _private_folder() -> Path:
    """Make a folder for nobody else, short enough for a Unix socket."""
    folder = tempfile.mkdtemp(prefix="tavern-net-")
    if len(os.fsencode(folder)) > _LONGEST_SOCKET - len("/proxy"):
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="tavern-net-", dir="/tmp")
    return Path(folder)
