"""A client for the routes of plugins: a host behind the real server, in the test process, on a socket of its own."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientWebSocketResponse
    from aiohttp.test_utils import TestClient

    from tavern_host.host import Host

TOKEN = "let-me-in"


@dataclass
class HttpClient:
    """Sends requests to a served host, with the token unless `headers` says otherwise (None leaves a header out)."""

    host: Host
    client: TestClient[Any, Any]
    port: int

    async def request(self, method: str, path: str, **options: Any) -> ClientResponse:
        """Send a request and return the answer with its body read; `options` are those of `aiohttp.ClientSession`."""
        headers = {"Authorization": f"Bearer {TOKEN}", **options.pop("headers", {})}
        answer = await self.client.request(
            method, path, headers={k: v for k, v in headers.items() if v is not None}, allow_redirects=False, **options
        )
        await answer.read()
        return answer

    async def get(self, path: str, **options: Any) -> ClientResponse:
        """Send a GET."""
        return await self.request("GET", path, **options)

    async def post(self, path: str, **options: Any) -> ClientResponse:
        """Send a POST; `json={…}` gives its body."""
        return await self.request("POST", path, **options)

    async def socket(self, path: str = "/ws") -> ClientWebSocketResponse:
        """Open a socket."""
        return await self.client.ws_connect(path, headers={"Authorization": f"Bearer {TOKEN}"})


@asynccontextmanager
async def served(host: Host) -> AsyncIterator[HttpClient]:
    """Serve a started host until the end of the `with`."""
    from aiohttp import DummyCookieJar, test_utils

    from tavern_host.server.app import make_app

    listening = socket.create_server(("127.0.0.1", 0))
    app = make_app(host, token=TOKEN, port=(port := listening.getsockname()[1]))
    server = test_utils.TestServer(app, socket_factory=lambda *_: listening)
    await server.start_server(auto_decompress=False)  # as `listening` does; see `bodies`
    async with test_utils.TestClient(server, cookie_jar=DummyCookieJar()) as client:
        yield HttpClient(host, client, port)
