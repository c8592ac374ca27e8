"""A proxy behind which a test's own server has every name there is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest


@dataclass
class UpstreamProxy:
    """What was asked of it; it leads everywhere to one port of this machine, or refuses with a status."""

    leads_to: int = 0
    refuses_with: str = ""
    port: int = 0
    heads: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[str]:
        """What was asked for: method and target."""
        return [" ".join(head.split(" ")[:2]) for head in self.heads]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head.decode())
            if self.refuses_with:
                writer.write(f"HTTP/1.1 {self.refuses_with}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            else:
                there, onward = await asyncio.open_connection("127.0.0.1", self.leads_to)
                if head.startswith(b"CONNECT"):
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    onward.write(head)
                await asyncio.gather(_copy(reader, onward), _copy(there, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    writer.close()


def set_variables(patch: pytest.MonkeyPatch, **variables: str) -> None:
    """Let these variables of proxies alone be set."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        patch.delenv(name, raising=False)
        patch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        patch.setenv(name, value)


@contextlib.asynccontextmanager
async def upstream_proxy(leads_to: int = 0, refuses_with: str = "") -> AsyncIterator[UpstreamProxy]:
    """Run one."""
    proxy = UpstreamProxy(leads_to, refuses_with)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
