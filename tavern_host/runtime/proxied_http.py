"""A connector of aiohttp that reaches each address through the proxy that the host names for it at that moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import ClientRequest, TCPConnector
from aiohttp.connector import Connection
from aiohttp.helpers import strip_auth_from_url
from yarl import URL


class ProxiedConnector(TCPConnector):
    """`proxy_for` returns the proxy for an address, or None; redirects are asked for again."""

    def __init__(self, proxy_for: Callable[[str], str | None], **options: Any) -> None:
        super().__init__(**options)
        self._proxy_for = proxy_for

    async def connect(self, req: ClientRequest, traces: Any, timeout: Any) -> Connection:  # noqa: ASYNC109
        """Return a connection for a request, made or reused."""
        if req.proxy is None and (found := self._proxy_for(str(req.url))) is not None:
            req.update_proxy(*strip_auth_from_url(URL(found)), None)
        return await super().connect(req, traces, timeout)
