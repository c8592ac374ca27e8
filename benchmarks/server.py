"""What the server costs: lists that many ask for at once, against a bare handler that returns the same bytes."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.harness import Result, compare_awaited
from benchmarks.serverchild import TOKEN

PATHS = ("/api/nodes", "/api/tools", "/api/plugins")
AT_ONCE = 32
"""How many connections ask at a time."""

_MOST = 1.0 / 0.5
"""The time of a bare handler is at least half of ours."""
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def lists() -> list[Result]:
    """Return what one answer of each list takes, of 32 that are asked for at once by another process."""
    return asyncio.run(_lists())


async def _lists() -> list[Result]:
    with tempfile.TemporaryDirectory() as place:
        command = ["-m", "benchmarks.serverchild", place, *PATHS]
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe)
        assert child.stdin is not None and child.stdout is not None
        try:
            ports = json.loads(await child.stdout.readline())
            async with _connected(ports[0]) as ours, _connected(ports[1]) as bare:
                return [await _compared(path, ours, bare) for path in PATHS]
        finally:
            child.stdin.close()
            await child.wait()


async def _compared(path: str, ours: list[_Connection], bare: list[_Connection]) -> Result:
    name = f"GET {path}, {AT_ONCE} at once"
    floor_name = "a bare aiohttp handler, the same bytes"
    return await compare_awaited(
        name, lambda: _all(ours, path), lambda: _all(bare, path), floor_name=floor_name, limit=_MOST
    )


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[list[_Connection]]:
    """Give connections to a port, with the port itself in the requests that are sent on them."""
    connections = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 20) for _ in range(AT_ONCE)]
    try:
        yield connections
    finally:
        for _, writer in connections:
            writer.close()


async def _all(connections: list[_Connection], path: str) -> None:
    await asyncio.gather(*(_get(reader, writer, path) for reader, writer in connections))


async def _get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    host, port = writer.get_extra_info("peername")
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert head.startswith("http/1.1 200 "), head
    await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))


FIGURES = {"lists": lists}
