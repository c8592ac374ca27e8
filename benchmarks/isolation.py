"""What a plugin in a process of its own costs: calls of it, hooks, nodes, streams, large values, its start, its memory.

The floor is one byte there and back over a pair of sockets to another asyncio process, or what the figure names.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Result, compare_awaited, compare_once, measured
from benchmarks.isolatedhosts import hosts
from benchmarks.isolationfloods import floods
from tavern_host import Host
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders
from tavern_scripts.sandbox.watch import tree

IDLE = (15.0, 30.0)
"""For how many seconds a host is left alone before its idle time is measured, and for how many it is."""

_CODE = """
from collections.abc import AsyncIterator
from tavern_host import *
from tavern_llm.api.llm import *

@hookimpl
async def tavern_before_execute(request, call, context):
    return None

@hookimpl
def tavern_register_llm_adapters():
    return [LlmAdapterInfo(name="still", handler=f"{__name__}:Still", network=False)]

class Still:
    def __init__(self, options, context):
        pass

    async def complete(self, request, call):
        return LlmResponse(text="", model="")

    async def list_models(self, call):
        return []
"""
_NODES = """
from collections.abc import AsyncIterator
from tavern_host import *

@node()
async def same(text: str) -> str:
    return text

@node()
async def raw(data: bytes) -> bytes:
    return data

@node()
async def count(text: str) -> AsyncIterator[int]:
    for number in range(10_000):
        yield number
"""
_MANIFEST = """
name: acme
displayName: Acme
version: 1.0.0
permissions:
  hooks: [hook:server:workflow:before-execute, hook:server:llm:register-adapters]
nodes: {entry: nodes.py}
"""
_PONG = """
import asyncio, socket, sys
async def main():
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=int(sys.argv[1])), limit=1 << 24)
    while data := await reader.read(1 << 24):
        writer.write(data)
        await writer.drain()
asyncio.run(main())
"""
BYTES = 50_000_000
_BARE = "import asyncio, pydantic; pydantic.create_model('One', number=(int, 1))()"
"""The floor of a start: `import pydantic` alone loads neither models nor what validates them, and nobody stops so."""
_BARE_NAME = "Python with asyncio, one model"


class Pong:
    """Another process that sends back what it gets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def small(self) -> None:
        """Send one byte there and back."""
        self._writer.write(b"x")
        await self._reader.readexactly(1)

    async def large(self) -> None:
        """Send many bytes there and back."""
        data = bytes(BYTES)
        back = asyncio.create_task(self._reader.readexactly(BYTES))
        self._writer.write(data)
        await back


@asynccontextmanager
async def _pong() -> AsyncIterator[Pong]:
    ours, theirs = socket.socketpair()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PONG, str(theirs.fileno()), pass_fds=(theirs.fileno(),)
    )
    theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
    yield Pong(reader, writer)
    writer.close()
    await process.wait()


class Acme:
    """The plugin of a host, and what is measured of it."""

    def __init__(self, host: Host, adapter: Any, nodes: dict[str, Any]) -> None:
        self._host = host
        self._adapter = adapter
        self._nodes = nodes
        self._call = host.call()
        words = {"text": "word " * 20}
        chain = [{"id": f"n{i}", "type": "acme:Same", "inputValues": words} for i in range(50)]
        edges = [
            {"id": f"e{i}", "source": f"n{i}", "target": f"n{i + 1}", "sourceHandle": "result", "targetHandle": "text"}
            for i in range(49)
        ]
        self._request = RunRequest(workflow=Workflow.model_validate({"name": "w", "nodes": chain, "edges": edges}))

    @classmethod
    async def of(cls, host: Host) -> Acme:
        """Return the plugin of a host that is started."""
        manager = host._manager
        (models,) = [
            one for one in await manager.dispatcher.collect("tavern_register_llm_adapters", {}) if one.plugin == "acme"
        ]
        (found,) = [one for one in manager.lifecycle.collected("tavern_register_nodes") if one.plugin == "acme"]
        nodes = {one.type.rpartition(":")[2]: found.open(one).open({}) for one in found.value}
        return cls(host, models.open(models.value[0].handler, {}), nodes)

    @property
    def pids(self) -> list[int]:
        """The processes of the plugin, those that make its sandbox included."""
        return tree(self._child.carrier.pid)

    @property
    def _child(self) -> Any:
        return self._host._manager.lifecycle.active["acme"].runtime.child  # type: ignore[attr-defined]

    async def started_again(self) -> float:
        """Start another process for the plugin; return the seconds until it has loaded it."""
        before, began = self._child._process, time.perf_counter()
        await self._child.start()
        spent = time.perf_counter() - began
        await before.stop()
        return spent

    async def service(self) -> None:
        """Call a method with next to nothing."""
        await self._adapter.list_models(self._call)

    async def hook(self) -> None:
        """Pass a run of 50 nodes through the hook before it."""
        await self._host._manager.dispatcher.filter("tavern_before_execute", self._request, {"call": self._call})

    async def node(self) -> None:
        """Run a node once."""
        await self._nodes["Same"].run({"text": "x"}, None)

    async def nodes(self) -> None:
        """Run a node 200 times at once."""
        await asyncio.gather(*(self.node() for _ in range(200)))

    async def large(self) -> None:
        """Pass many bytes through a node."""
        await self._nodes["Raw"].run({"data": bytes(BYTES)}, None)

    async def items(self) -> float:
        """Return the seconds that one of 10,000 items takes."""
        began, count = time.perf_counter(), 0
        async for _ in self._nodes["Count"].stream({"text": "x"}, None):
            count += 1
        return (time.perf_counter() - began) / count


@asynccontextmanager
async def _acme(place: Path, where: Any) -> AsyncIterator[Acme]:
    """Yield the plugin, which runs `in-process`, in a plain `process`, or in a `sandbox`."""
    root = place / where
    plugin = root / "project" / "plugins" / "acme"
    plugin.mkdir(parents=True)
    for name, text in (("__init__.py", _CODE), ("nodes.py", _NODES), ("plugin.yaml", _MANIFEST)):
        (plugin / name).write_text(text)
    folders = Folders(root / "config", root / "state", root / "data")
    if where == "sandbox":
        folders.config.mkdir()
        (folders.config / "host.yaml").write_text("placement: {acme: process}\n")
    placement = None if where == "sandbox" else where
    async with Host(root / "project", folders=folders, trust=["acme"], placement=placement) as host:
        yield await Acme.of(host)


Measure = Callable[[Acme, Acme, Pong], Awaitable[list[Result]]]


def _with_all(measure: Measure) -> Callable[[], list[Result]]:
    async def run() -> list[Result]:
        with tempfile.TemporaryDirectory() as place:
            async with (
                _acme(Path(place), "process") as there,
                _acme(Path(place), "in-process") as here,
                _pong() as pong,
            ):
                return await measure(there, here, pong)

    return lambda: asyncio.run(run())


_PING = "one byte there and back to another process"


async def _calls(there: Acme, here: Acme, pong: Pong) -> list[Result]:
    return [
        await compare_awaited(
            "a method of a plugin's object in its process", there.service, pong.small, floor_name=_PING, limit=5
        ),
        await compare_awaited("a node run in its process", there.node, pong.small, floor_name=_PING, limit=6),
        await compare_awaited(
            "a hook with a run of 50 nodes, in its process", there.hook, here.hook, floor_name="in process", limit=3
        ),
        await compare_awaited(
            "200 node runs at once, in its process", there.nodes, here.nodes, floor_name="in process", limit=8
        ),
    ]


async def _values(there: Acme, here: Acme, pong: Pong) -> list[Result]:
    items = sorted([(await there.items(), await here.items()) for _ in range(5)])
    ours, theirs = items[len(items) // 2]
    item = Result(
        "an item of a stream", ours * 1e6, "µs", theirs * 1e6, "in process", ours / theirs, 5, 30, limited="value"
    )
    large = "50 MB of bytes into a node and back"
    return [item, await compare_awaited(large, there.large, pong.large, floor_name="a bare socket pair", limit=1.3)]


def start() -> list[Result]:
    """Measure a child process until it has loaded a plugin, and return its time as a ratio to that of a bare one."""

    def ours(times: int) -> float:
        return asyncio.run(child_ready(times))

    def floor(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            subprocess.run([sys.executable, "-c", _BARE], check=True)
        return time.perf_counter() - began

    return [compare_once("a child, until it has loaded a plugin", ours, floor, floor_name=_BARE_NAME, limit=1.6)]


async def child_ready(times: int) -> float:
    """Return the seconds that so many children of a plugin take until they are ready."""
    with tempfile.TemporaryDirectory() as place:
        async with _acme(Path(place), "process") as acme:
            return sum([await acme.started_again() for _ in range(times)])


async def _sandboxed() -> list[Result]:
    with tempfile.TemporaryDirectory() as place:
        async with _acme(Path(place), "sandbox") as boxed, _acme(Path(place), "process") as plain:
            pairs = [(await boxed.started_again(), await plain.started_again()) for _ in range(harness.ROUNDS)]
            memory = sum(map(_shared_memory, boxed.pids)) / 2**20
            floor = await asyncio.to_thread(_bare_memory) / 2**20
    more = [(ours - theirs, theirs) for ours, theirs in pairs]
    return [
        measured("the sandbox, until it is ready", more, "a child without", 60, unit="ms", scale=1e3, limited="value"),
        Result(
            *("memory of a child (PSS)", memory, "MiB", floor, _BARE_NAME),
            *(memory / floor, 1, 26),
            limited="value",
        ),
    ]


def _bare_memory() -> int:
    code = f"{_BARE}; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        memory = _shared_memory(process.pid)
        process.communicate(b"\n")
    return memory


def _shared_memory(pid: int) -> int:
    """Return the bytes of a process, where those that it shares with others count for each of them in part."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))


async def _idle() -> list[Result]:
    with tempfile.TemporaryDirectory() as place:
        async with _acme(Path(place), "in-process") as acme:
            floor = await _idle_share(acme, lambda: [])
        async with _acme(Path(place), "sandbox") as acme:
            share = await _idle_share(acme, lambda: acme.pids)
    more = (share - floor) * 100
    name = "a sandboxed child that has nothing to do"
    return [Result(name, more, "%", floor * 100, "the host alone", share / floor, 1, 0.1, limited="value")]


async def _idle_share(acme: Acme, others: Callable[[], list[int]]) -> float:
    """Return which part of a core this process and others take while nothing is asked of the plugin."""
    await acme.service()
    before, seconds = IDLE
    await asyncio.sleep(before)
    pids, began = others(), time.process_time()
    used = sum(map(_seconds_of, pids))
    await asyncio.sleep(seconds)
    return (time.process_time() - began + sum(map(_seconds_of, pids)) - used) / seconds


def _seconds_of(pid: int) -> float:
    """Return the seconds of CPU that a process has used, of all its threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9


FIGURES = {
    "calls": _with_all(_calls),
    "values": _with_all(_values),
    "start": start,
    "sandbox": lambda: asyncio.run(_sandboxed()),
    "idle": lambda: asyncio.run(_idle()),
    "hosts": hosts,
    "floods": floods,
}
