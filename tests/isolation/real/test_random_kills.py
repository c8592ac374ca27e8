"""Children that are killed at any moment while they are asked for all kinds of things: every call settles, none is made
twice, a guard that is gone denies, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.plugin_files import write_whole
from helpers.repetition import repetitions
from helpers.waiting import until

from tavern_host import EXECUTION_ENGINE, WORKFLOW_MANAGER, Host, HttpRequest
from tavern_host.contracts.errors import PluginEnded, Vetoed
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_host.server.plugin_routes import call_route
from tavern_isolation import supervisor

KILLS = repetitions(30, 1_000)

CODE = """
import asyncio
from tavern_host import *
from tavern_host.contracts.http import *

@hookimpl
async def tavern_before_execute(request, call, context):
    context.events.publish("acme.did", {"n": request.metadata["n"]})
    await asyncio.sleep(0.002)
    return request.model_copy(update={"metadata": {**request.metadata, "seen": request.metadata["n"]}})

@hookimpl
def tavern_override_services():
    from .over import Over
    return [service_info(WORKFLOW_MANAGER, Over)]

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/items", handler=f"{__name__}:items")]

async def items(request, context):
    context.events.publish("acme.did", {"n": int(request.query["n"])})
    async def sent():
        for number in range(50):
            yield ServerEvent(data=str(number))
            await asyncio.sleep(0.0005)
    return sent()
"""
OVER = """
from tavern_host import *
from tavern_workflows.api.workflows import WorkflowManager

class Over(ServiceOverride[WorkflowManager]):
    def __init__(self, original, context):
        super().__init__(original)
        self.context = context

    async def parse(self, document):
        self.context.events.publish("acme.did", {"n": int(document["name"])})
        return await self.original.parse(document)
"""
NODES = """
import asyncio
from collections.abc import AsyncIterator
from tavern_host import *

@node()
async def once(n: int, context: NodeContext) -> int:
    context.plugin.events.publish("acme.did", {"n": n})
    context.progress(1, 2)
    await asyncio.sleep(0.002)
    return n

@node()
async def many(n: int, context: NodeContext) -> AsyncIterator[int]:
    context.plugin.events.publish("acme.did", {"n": n})
    for number in range(50):
        yield number
        await asyncio.sleep(0.0005)
"""

Ask = Callable[[int], Awaitable[None]]


def written(tmp_path: Path) -> None:
    write_whole(
        tmp_path / "project" / "plugins" / "acme",
        "acme",
        {"__init__.py": CODE, "over.py": OVER, "nodes.py": NODES},
        ["tavern_before_execute", "tavern_register_routes"],
        permissions={"services": {"override": ["workflowManager"]}},
        nodes={"entry": "nodes.py"},
        runtime={"placement": "process"},
    )


class Load:
    """What is asked of the plugin all the time, and what became of it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._numbers = itertools.count(1)
        self.made: Counter[int] = Counter()
        self.ended: Counter[str] = Counter()
        self._is_over = False

    async def hook(self, number: int) -> None:
        """Ask the guard, which must have been asked where it does not deny."""
        run = await self._run(number)
        assert run.metadata["seen"] == number

    async def node(self, number: int) -> None:
        """Run a node."""
        await self._run(number, "Once")

    async def stream(self, number: int) -> None:
        """Run a node that gives a stream."""
        await self._run(number, "Many")

    async def override(self, number: int) -> None:
        """Call what stands in front of the host's own provider."""
        found = await self._host.services.get(WORKFLOW_MANAGER).parse({"name": str(number)})
        assert found.name == str(number)

    async def route(self, number: int) -> None:
        """Read the events of a route to their end."""
        route, _, _ = self._host.registrations.find("GET", "/api/x/acme/items")
        request = HttpRequest(method="GET", path="/", query={"n": str(number)}, call=self._host.call())
        events: Any = await call_route(self._host, route, request)
        async with contextlib.aclosing(events):
            assert [int(event.data) async for event in events] == [*range(50)]

    async def _run(self, number: int, node: str = "") -> Any:
        nodes = [{"id": "n", "type": f"acme:{node}", "inputValues": {"n": -number}}] if node else []
        workflow = Workflow.model_validate({"name": "w", "nodes": nodes})
        request = RunRequest(workflow=workflow, metadata={"n": number})
        run = await self._host.services.get(EXECUTION_ENGINE).run(request)
        if run.error is not None:
            raise PluginEnded(run.error.message)
        return run

    async def go_on(self, ask: Ask) -> None:
        """Ask one after the other until it is over."""
        while not self._is_over:
            try:
                await ask(next(self._numbers))
                self.ended[f"{ask.__name__}: done"] += 1
            except (PluginEnded, Vetoed) as error:
                assert "ended" in error.message or "could not be started" in error.message, error.message
                self.ended[f"{ask.__name__}: {error.code}"] += 1

    async def count(self) -> None:
        """Count what the plugin says that it did."""
        async for event in self._host.events.subscribe("acme.did"):
            assert isinstance(event, Event), "some are missing"
            self.made[event.payload["n"]] += 1

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Ask for all of it, by several at once, while the block runs; then wait for what is in flight."""
        counting = asyncio.create_task(self.count())
        await asyncio.sleep(0)
        kinds: tuple[Ask, ...] = (self.hook, self.node, self.stream, self.override, self.route)
        async with asyncio.TaskGroup() as group:
            for kind in kinds * 3:
                group.create_task(self.go_on(kind))
            yield
            self._is_over = True
        counting.cancel()


def left() -> dict[str, Any]:
    """What a host with one child has of the machine, which is the same before and after."""
    gc.collect()
    me = os.getpid()
    children = [each.read_text().split() for each in Path(f"/proc/{me}/task").glob("*/children")]
    return {
        "processes": len([*itertools.chain(*children)]),
        "descriptors": len([one for one in _descriptors() if not one.startswith("/")]),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "groups": len([*Path("/sys/fs/cgroup").rglob(f"tavern-{me}-*")]),
        "folders": sorted(each.name for each in Path(tempfile.gettempdir()).glob("tavern*")),
    }


def _descriptors() -> list[str]:
    """What the descriptors of this process are: pipes and sockets, and files, of which databases open more."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(one.readlink()))
    return found


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(120 + 3 * KILLS)
async def test_killed_at_any_moment_every_call_settles_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    monkeypatch.setattr(supervisor, "PERIOD", 0.0)  # it is never given up, and started again at once
    monkeypatch.setattr(supervisor, "DELAYS", (0.0, 0.0))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests have theirs
    written(tmp_path)
    chance = random.Random(7)
    others = left()["processes"], left()["groups"]  # such as a browser that tests before it share
    async with Host(tmp_path / "project", create=True, trust=["acme"]) as host:
        info = host.plugin("acme")
        assert info.state is PluginState.STARTED and info.placement == "process", info.problems
        runtime: Any = host._manager.lifecycle.active["acme"].runtime
        child, load, settled, grown = runtime.child, Load(host), [0.0], 0
        warming = Load(host)
        async with warming.going_on():  # what the host opens once, such as databases, is open before
            await until(lambda: len(warming.ended) == 5, "each kind was asked for")
        before = left()
        async with load.going_on():
            for number in range(KILLS):
                await until(lambda: not child.is_lost and child._process.link.in_flight, "it is at work")
                await asyncio.sleep(chance.random() * 0.03)
                if child.is_lost:
                    continue
                process = child._process
                waiting = [asked.answer for asked in process.link._asked.values() if not asked.answer.done()]
                began = time.perf_counter()
                os.kill(process.carrier.pid, signal.SIGKILL)
                await asyncio.wait([asyncio.ensure_future(over(process.link)), *waiting])
                settled.append(time.perf_counter() - began)
                if number == KILLS // 3:
                    grown = resident()
        said = {"settled, ms": round(max(settled) * 1e3), "starts": child.generation, **load.ended}
        grown = resident() - grown
        record_property("killed", said)
        print(f"{KILLS} kills: {said}; the host has grown by {grown:,} bytes")
        assert max(load.made.values()) == 1, "none is made twice"
        assert len([each for each in load.ended if each.endswith(": done")]) == 5, "each was done, too"
        assert load.ended["hook: vetoed"] and not load.ended["hook: plugin_ended"], "a guard that is gone denies"
        assert runtime.requests.reports == {} and runtime.lent._streams == {} and child._process.link.is_idle
        assert grown < 60_000_000
        await until(lambda: all(left()[key] <= before[key] for key in before), f"no more than {before}, not {left()}")
        await host.disable("acme")
        await until(lambda: (left()["processes"], left()["groups"]) == others, "no process and no group is left")


async def over(link: Any) -> None:
    """Wait until a link has ended."""
    while not link._reason:
        await asyncio.sleep(0.001)
