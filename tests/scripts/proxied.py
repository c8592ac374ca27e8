"""What tests of the proxy use: a proxy with its log, an HTTP server that says what it got, and raw requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web
from helpers.certificates import write_certificate
from helpers.waiting import until

from tavern_scripts.api.allowlist import Address
from tavern_scripts.network.proxy import Proxy
from tavern_scripts.network.proxy_limits import Connection, ProxyLimits


@dataclass
class Proxied:
    """A proxy that runs: its socket and what it recorded."""

    socket: Path
    connections: list[Connection] = field(default_factory=list)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to it."""
        return await asyncio.open_unix_connection(self.socket)

    async def say(self, text: str | bytes, *, more: str | bytes = b"", end: bool = False) -> bytes:
        """Send a request, and what is to follow it, and return all that comes back."""
        reader, writer = await self.open()
        try:
            for part in (text, more):
                writer.write(part.encode("latin-1") if isinstance(part, str) else part)
            if end:
                writer.write_eof()
            async with asyncio.timeout(60):
                return await _all(reader)
        finally:
            writer.close()

    async def last(self) -> Connection:
        """Return the last connection recorded, as soon as there is one."""
        await until(lambda: self.connections, "something was recorded")
        return self.connections[-1]


@asynccontextmanager
async def proxied(
    allowed: Sequence[str],
    limits: ProxyLimits | None = None,
    names: dict[str, list[str]] | None = None,
    upstream: str | None = None,
) -> AsyncIterator[Proxied]:
    """Run a proxy; `names` are the addresses of host names in the world of the test, and `upstream` the proxy behind
    which this host is."""

    async def resolve(host: str, port: int) -> list[Address]:
        if host not in (names or {}):
            raise OSError("there is no such name")
        return [ip_address(text) for text in (names or {})[host]]

    log: list[Connection] = []
    found = None if names is None else resolve
    running = Proxy(allowed, limits or ProxyLimits(), log.append, resolve=found, upstream=lambda address: upstream)
    async with running as path:
        yield Proxied(path, log)


@dataclass
class Told:
    """A server that says what it was asked."""

    port: int
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)


@asynccontextmanager
async def secure_server(folder: Path) -> AsyncIterator[Told]:
    """Run an HTTPS server; its certificate is left in `folder` / cert.pem."""
    context = write_certificate(folder)
    async with telling_server(context) as told:
        yield told


@asynccontextmanager
async def telling_server(secured: ssl.SSLContext | None = None) -> AsyncIterator[Told]:
    """Run an HTTP server on 127.0.0.1 that remembers requests; `/to?place=…` redirects."""
    told = Told(0)

    async def answer(request: web.Request) -> web.StreamResponse:
        told.requests.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        if request.path == "/to":
            return web.Response(status=302, headers={"Location": request.query["place"]})
        if request.path == "/large":
            return web.Response(body=b"x" * int(request.query["size"]))
        return web.Response(text=f"hello from {request.path}")

    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=secured)
        await site.start()
        told.port = runner.addresses[0][1]
        yield told
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw_server(answer: bytes = b"", *, echo: bool = False) -> AsyncIterator[Told]:
    """Run a TCP server that sends `answer` when something came, or all back that comes; it remembers what came."""
    told = Told(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                told.requests.append(("", "", {}, piece))
                writer.write(piece if echo else answer)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    told.port = server.sockets[0].getsockname()[1]
    try:
        yield told
    finally:
        server.close()


async def _all(reader: asyncio.StreamReader) -> bytes:
    received = bytearray()
    try:
        while piece := await reader.read(1 << 16):
            received += piece
    except ConnectionError:
        pass
    return bytes(received)
