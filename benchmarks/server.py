"""What the server costs: lists and calls of tools that many ask for at once, against a bare handler that returns the
same bytes; sockets that hear of runs; and how soon it is ready where there are many runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType

from benchmarks.harness import ROUNDS, Result, Timed, compare_by_clocks, compare_once, measured
from benchmarks.holds import hold
from benchmarks.load import write_project
from benchmarks.serverchild import ARGUMENTS, NODE_TOOL, RATE, SERVICE_TOOL, TOKEN
from benchmarks.serving import Served, cpu_seconds, private_memory, server_of
from benchmarks.triggers import triggers

AT_ONCE = 32
"""How many connections ask at a time."""
MANY = 500
SOCKETS, RUNS, EVENTS = 1000, 100, 500
"""How many sockets there are, of how many runs, and how many events they hear of, 100 a second."""
JOURNAL = 10_000
"""How many runs there were before the start."""
_FLOOR = "a bare aiohttp handler, the same bytes"
_LISTS = ("/api/nodes", "/api/tools", "/api/plugins")
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Request:
    """A request that the bare handler answers too."""

    method: str
    path: str
    body: Any = None

    def sent(self, port: int) -> bytes:
        """Return it as it is sent to a port."""
        body = b"" if self.body is None else json.dumps(self.body).encode()
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _call(tool: str, arguments: dict[str, Any]) -> Request:
    return Request("POST", "/api/tools/execute", {"toolId": tool, "arguments": arguments})


def lists() -> list[Result]:
    """Measure one answer of each list, of 32 that another process asks for at once."""
    return asyncio.run(_all_compared([(f"GET {path}", Request("GET", path), 2, None) for path in _LISTS]))


def calls() -> list[Result]:
    """Measure the call of a tool that does nothing, of a service and of a node."""
    service, node = _call(SERVICE_TOOL, ARGUMENTS), _call(NODE_TOOL, {"text": "ale"})
    rows = [("a service tool that does nothing", service, 3, 5), ("a node tool that does nothing", node, 8, 12)]
    return asyncio.run(_all_compared(rows))


async def _all_compared(rows: Sequence[tuple[str, Request, float, float | None]]) -> list[Result]:
    return [result for row in rows for result in await _compared(*row)]


async def _compared(name: str, request: Request, most: float, most_cpu: float | None) -> list[Result]:
    """Compare a request with the bare handler, by the clock, which the client counts in, and by the CPU time of the
    server's process alone; say how many times as much it may take."""
    async with _child(request) as (child, ours, bare), _connected(ours) as asked, _connected(bare) as floor:
        return await compare_by_clocks(
            [f"{name}, {AT_ONCE} at once", "  CPU of the server's process"],
            lambda: _at_once(asked, request.sent(ours)),
            lambda: _at_once(floor, request.sent(bare)),
            [time.perf_counter, partial(cpu_seconds, child.pid)],
            [most, most_cpu],
            floor_name=_FLOOR,
        )


@asynccontextmanager
async def _child(request: Request) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, int]]:
    """Serve; give the process, and its ports of a host and of a bare handler that answers with the same bytes."""
    with tempfile.TemporaryDirectory() as place:
        command = ["-m", "benchmarks.serverchild", place, request.method, request.path, json.dumps(request.body)]
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe)
        assert child.stdin is not None and child.stdout is not None
        try:
            ours, bare = json.loads(await child.stdout.readline())
            yield child, ours, bare
        finally:
            child.stdin.close()
            await child.wait()


@asynccontextmanager
async def _connected(port: int, count: int = AT_ONCE) -> AsyncIterator[list[_Connection]]:
    connections = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 20) for _ in range(count)]
    try:
        yield connections
    finally:
        for _, writer in connections:
            writer.close()


async def _at_once(connections: list[_Connection], sent: bytes) -> list[float]:
    """Send a request on all connections at once; return the seconds until each was answered."""
    return await asyncio.gather(*(_answered(reader, writer, sent) for reader, writer in connections))


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> float:
    began = time.perf_counter()
    writer.write(sent)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert head.startswith("http/1.1 200 "), head
    await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
    return time.perf_counter() - began


def burst() -> list[Result]:
    """Return how evenly many requests at once are answered."""
    return asyncio.run(_burst(Request("GET", "/api/nodes")))


async def _burst(request: Request) -> list[Result]:
    async with _child(request) as (_, port, _), contextlib.AsyncExitStack() as stack:
        known: list[_Connection] = []
        while len(known) < MANY:  # a few at a time, as there may be few without the token
            more = await stack.enter_async_context(_connected(port, AT_ONCE))
            await _at_once(more, request.sent(port))
            known += more
        spans = []
        for _ in range(ROUNDS):
            found = sorted(await _at_once(known[:MANY], request.sent(port)))
            spans.append((found[int(MANY * 0.99)], statistics.median(found)))
    return [measured(f"p99 of {MANY} requests at once", spans, "their median", 3, unit="ms", scale=1e3)]


def sockets() -> list[Result]:
    """Return when events arrive at many sockets, and what a socket takes in the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))  # the child has the same
    return asyncio.run(_sockets())


async def _sockets() -> list[Result]:
    late: list[float] = []
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        _child(Request("GET", "/api/nodes")) as (child, port, _),
        ClientSession(connector=TCPConnector(limit=0), headers=headers) as session,
    ):
        assert child.stdin is not None
        before = private_memory(child.pid)
        urls = (f"http://127.0.0.1:{port}/ws?runs=run-{number % RUNS}" for number in range(SOCKETS))
        hearing = [asyncio.create_task(_hear(await session.ws_connect(url), late)) for url in urls]
        taken = (private_memory(child.pid) - before) / SOCKETS / 1024
        child.stdin.write(f"{EVENTS} {RUNS}\n".encode())
        await asyncio.sleep(EVENTS / RATE + 3)
        for task in hearing:
            task.cancel()
    said = f"{len(late)} of {EVENTS * SOCKETS // RUNS} heard"
    median = statistics.median(late) * 1e3
    return [
        Result(f"an event at one of {SOCKETS} sockets", median, "ms", 0, said, 0, len(late), 20, limited="value"),
        Result("memory of a socket", taken, "KiB", 0, "", 0, SOCKETS, 60, limited="value"),
    ]


async def _hear(socket: ClientWebSocketResponse, late: list[float]) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            late.append(time.monotonic() - json.loads(message.data)["payload"]["at"])


def start() -> list[Result]:
    """Return how soon a server is ready where there were many runs before, against none."""
    with tempfile.TemporaryDirectory() as place:
        full, empty = Path(place) / "full", Path(place) / "empty"
        for folder in (full, empty):
            write_project(folder / "project")
        asyncio.run(_fill(full))
        name = f"ready after a start with {JOURNAL} runs"
        return [compare_once(name, _starting(full), _starting(empty), floor_name="with none", limit=1.5)]


async def _fill(place: Path) -> None:
    """Let a server have carried out many runs."""
    async with server_of(place) as server:
        one = {"nodes": [{"id": "shout", "type": "core:UpperCase", "inputValues": {"text": "ale"}}], "edges": []}
        for _ in range(JOURNAL // AT_ONCE):
            await asyncio.gather(*(_submit(server, one) for _ in range(AT_ONCE)))
        left = [server.ask("GET", "/api/runs?status=queued,running&limit=1")]
        while (await left.pop())[1]["runs"]:
            await asyncio.sleep(0.1)
            left.append(server.ask("GET", "/api/runs?status=queued,running&limit=1"))


async def _submit(server: Served, run: dict[str, Any]) -> None:
    """Let a server accept a run, once its queue has room."""
    for _ in range(10_000):
        status, answer, _ = await server.ask("POST", "/api/prompt", run)
        if status == 200:
            return
        assert status == 429, answer
        await asyncio.sleep(0.05)


def _starting(place: Path) -> Timed:
    async def start() -> float:
        began = time.perf_counter()
        async with server_of(place, PYTHONDONTWRITEBYTECODE=""):
            return time.perf_counter() - began

    return lambda times: sum(asyncio.run(start()) for _ in range(times))


FIGURES = {
    **{"lists": lists, "calls": calls, "burst": burst, "sockets": sockets, "start": start, "hold": hold},
    "triggers": triggers,
}
