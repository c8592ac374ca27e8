"""Plugins are disabled, enabled and reloaded 200 times while workflows run: no run fails, and nothing of them stays.

Two plugins take turns: `acme`, a folder, brings a node, hooks, a service that it publishes, an override, routes, a
command, a task and a subscription; `guest`, an installed package, builds on what `acme` publishes.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_host.lease import Lease
from tavern_host.ledger import Ledger
from tavern_host.loaded import LoadedPlugin
from tavern_host.proxies import ViewHandle
from tavern_host.services import Views

CYCLES = 200

ACME = {
    "plugin.yaml": """
name: acme
displayName: Acme
version: 1.0.0
nodes: {entry: ./nodes}
configOptions:
  - {key: extensions.acme.size, type: number, label: Size, defaultValue: 1}
permissions:
  hooks:
    - hook:server:services:register
    - hook:server:routes:register
    - hook:server:commands:register
    - hook:server:workflow:before-execute
    - hook:server:host:startup
  services: {override: [llm]}
  events: {subscribe: ["EXECUTION_STATUS_UPDATE"]}
publishes:
  services:
    - name: acme.counter
      interface: contracts:Counter
      permissions: [{name: "acme.counter:count", allows: "Count."}]
""",
    "contracts.py": """
from tavern_host import CallContext, ServiceInterface, acts


class Counter(ServiceInterface, name="acme.counter"):
    @acts("acme.counter:count", "Count.")
    async def count(self, *, call: CallContext | None = None) -> int:
        '''Count one more.'''
""",
    "__init__.py": """
import asyncio

from tavern_host import CommandInfo, RouteInfo, ServiceInfo, hookimpl

VERSION = "one"


class Counting:
    counted = 0

    async def count(self, *, call=None):
        self.counted += 1
        return self.counted


class Models:
    def __init__(self, original):
        self.original = original

    async def models(self):
        return await self.original.models()

    async def complete(self, request, *, call=None):
        return await self.original.complete(request, call=call)

    def stream(self, request, *, call=None):
        return self.original.stream(request, call=call)


@hookimpl
def tavern_register_services():
    return [ServiceInfo(service="acme.counter", handler=f"{__name__}:Counting")]


@hookimpl
def tavern_override_services():
    return [ServiceInfo(service="llm", handler=f"{__name__}:Models")]


@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/word", handler=f"{__name__}.web:word")]


@hookimpl
def tavern_register_commands():
    return [CommandInfo(name="acme", help="Do it.", handler=f"{__name__}.web:command")]


@hookimpl
async def tavern_before_execute(request, context):
    await asyncio.sleep(0.001)
    context.settings.get("size")
    return None


@hookimpl
async def tavern_startup(context):
    async def listen(events):
        async for _ in events:
            pass

    context.tasks.spawn(listen(context.events.subscribe("EXECUTION_STATUS_UPDATE")), name="listen")
    context.tasks.spawn(asyncio.sleep(3600), name="wait")
""",
    "web.py": """
from tavern_host import HttpResponse


async def word(request, context):
    return HttpResponse(data="word")


async def command(arguments, context):
    yield None
""",
    "nodes/__init__.py": """
import asyncio
from typing import Annotated

from tavern_host import NodeContext, Slot, node

from .. import VERSION


@node(category="test", display_name="Slow")
async def slow(text: Annotated[str, Slot("Text.")], context: NodeContext) -> Annotated[str, Slot("More text.")]:
    await asyncio.sleep(0.02)
    context.plugin.settings.get("size")
    return f"{text} by {VERSION}"
""",
}
GUEST = {
    "plugin.yaml": """
name: guest
displayName: Guest
version: 1.0.0
requires: {plugins: {acme: ">=1"}}
permissions:
  hooks: [hook:server:workflow:after-execute]
  services: {use: ["acme.counter:count"]}
""",
    "__init__.py": """
from tavern_host import hookimpl


@hookimpl
async def tavern_after_execute(run, context):
    await context.services.get("acme.counter").count()
    return None
""",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install `guest` as pip would, for the length of the test."""
    folder = tmp_path / "site"
    write(folder / "guest_of_acme", GUEST)
    info = folder / "guest_of_acme-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-of-acme\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("[tavern_host.plugins]\nguest = guest_of_acme\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.startswith("guest_of_acme")]:
        del sys.modules[name]


@pytest.fixture
async def host(tmp_path: Path, site: Path) -> AsyncIterator[Host]:
    """Return a running host with both plugins."""
    write(tmp_path / "p" / "plugins" / "acme", ACME)
    async with Host(tmp_path / "p", trust=["acme", "guest"]) as running:
        assert running.plugin("acme").problems == running.plugin("guest").problems == []
        yield running


def workflow(node: str, slot: str, output: str) -> Workflow:
    """Return a workflow of two nodes of one type, one after the other."""
    nodes = [
        {"id": "in", "type": "core:GroupInput", "position": {"x": 0, "y": 0}},
        {"id": "a", "type": node, "position": {"x": 0, "y": 0}},
        {"id": "b", "type": node, "position": {"x": 0, "y": 0}},
        {"id": "out", "type": "core:GroupOutput", "position": {"x": 0, "y": 0}},
    ]
    edges = [
        {"id": "1", "source": "in", "sourceHandle": "text", "target": "a", "targetHandle": slot},
        {"id": "2", "source": "a", "sourceHandle": output, "target": "b", "targetHandle": slot},
        {"id": "3", "source": "b", "sourceHandle": output, "target": "out", "targetHandle": "text"},
    ]
    interface = {"text": {"key": "text", "dataFlowType": "STRING"}}
    return Workflow.model_validate(
        {"name": node, "nodes": nodes, "edges": edges, "interfaceInputs": interface, "interfaceOutputs": interface}
    )


@dataclass
class Traffic:
    """Workflows that run all the time: some of core nodes, and some of the plugin's while it is there."""

    host: Host
    ended: list[Run] = field(default_factory=list)

    async def begin_slow(self) -> asyncio.Task[Run]:
        """Begin a run of the plugin's own nodes; it is accepted when this returns."""
        engine = self.host.services.get(EXECUTION_ENGINE)
        request = RunRequest(workflow=workflow("acme:Slow", "text", "result"), inputs={"text": "made"})
        return asyncio.create_task(engine.wait(await engine.submit(request)))

    async def keep_running(self) -> None:
        """Run a workflow of core nodes, one after the other, without end."""
        engine = self.host.services.get(EXECUTION_ENGINE)
        request = RunRequest(workflow=workflow("core:TextMerge", "text_inputs__0", "merged_text"), inputs={"text": "x"})
        while True:
            self.ended.append(await engine.run(request))


def kernel_objects() -> dict[str, int]:
    """Return how many objects of the kernel's types that belong to one load of a plugin there are."""
    gc.collect()
    kinds = (LoadedPlugin, Views, ViewHandle, Lease, Ledger)
    found = [type(thing) for thing in gc.get_objects() if type(thing) in kinds]
    return {kind.__name__: found.count(kind) for kind in kinds}


def grown(host: Host) -> dict[str, Any]:
    """Return what would grow if something of a plugin stayed."""
    return {
        **kernel_objects(),
        "threads": len([t for t in threading.enumerate() if "waiting for a job" not in t.name]),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "modules": len(sys.modules),
        "tasks": len(asyncio.all_tasks()),
    }


async def test_two_hundred_cycles_under_running_workflows(host: Host) -> None:
    traffic = Traffic(host)
    running = [asyncio.create_task(traffic.keep_running()) for _ in range(2)]
    slow: list[asyncio.Task[Run]] = []
    dead: list[weakref.ref[Any]] = []
    sizes: list[dict[str, Any]] = []
    for cycle in range(CYCLES):
        slow.append(await traffic.begin_slow())
        dead.append(weakref.ref(_loaded(host, "acme")))
        if cycle % 2:
            await host.disable("acme")
            assert host.owned("acme") == host.owned("guest") == {}
            assert (host.plugin("acme").state, host.plugin("guest").state) == (
                PluginState.DISABLED,
                PluginState.INCOMPATIBLE,
            )
            assert "/api/x/acme/word" not in {path for _, path in host.registrations.routes}
            await host.enable("acme")
        else:
            await host.reload("acme")
        assert (host.plugin("acme").state, host.plugin("acme").problems) == (PluginState.STARTED, [])
        assert (host.plugin("guest").state, host.plugin("guest").problems) == (PluginState.STARTED, [])
        if cycle in (CYCLES // 4, CYCLES - 1):
            await asyncio.gather(*slow)
            await _drained(host)
            sizes.append(grown(host))
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    runs = [*traffic.ended, *[task.result() for task in slow]]
    assert {run.status for run in runs} == {RunStatus.COMPLETE}, next(r for r in runs if r.error).error
    assert {task.result().outputs["text"] for task in slow} == {"made by one by one"}
    assert len(traffic.ended) > CYCLES
    del slow, runs
    gc.collect()
    assert sum(1 for reference in dead if reference() is not None) <= 1
    first, last = sizes
    assert {key: last[key] - first[key] for key in first if last[key] > first[key] + 3} == {}


async def test_new_code_answers_new_runs_and_old_runs_end_with_the_old(host: Host, tmp_path: Path) -> None:
    traffic = Traffic(host)
    plugin = tmp_path / "p" / "plugins" / "acme" / "__init__.py"
    began: list[tuple[str, asyncio.Task[Run]]] = []
    for word in ("one", "two", "three", "four"):
        plugin.write_text(ACME["__init__.py"].replace('"one"', f'"{word}"'))
        await host.reload("acme")
        began.append((word, await traffic.begin_slow()))
    for word, task in began:
        run = await task
        assert (run.status, run.outputs["text"]) == (RunStatus.COMPLETE, f"made by {word} by {word}")


def _loaded(host: Host, name: str) -> LoadedPlugin:
    manager: Any = host._manager
    found: LoadedPlugin = manager.active[name]
    return found


async def _drained(host: Host) -> None:
    manager: Any = host._manager
    await manager.lifecycle.drained()
