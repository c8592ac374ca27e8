"""A host behind the real server, in this process and on a socket of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientResponse

from tavern_host import Host
from tavern_host.testing import http
from tavern_host.testing.http import TOKEN

__all__ = ["TOKEN", "Site", "served"]


class Site(http.HttpClient):
    """A running server with its host. Requests carry the token unless told otherwise."""

    async def ask(self, method: str, path: str, **options: Any) -> ClientResponse:
        """Send a request and return the answer with its body read."""
        return await self.request(method, path, **options)


@asynccontextmanager
async def served(host: Host) -> AsyncIterator[Site]:
    """Serve a started host until the end of the `with`."""
    async with http.served(host) as client:
        yield Site(client.host, client.client, client.port)
