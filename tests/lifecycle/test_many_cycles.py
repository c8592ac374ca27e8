"""Plugins are disabled, enabled and reloaded many times while workflows run: no run fails, and nothing of them stays.

`acme`, a folder, brings one of everything that a plugin can bring; `guest`, an installed package, builds on what
`acme` publishes. Both have a new version at each reload.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import sys
import threading
import types
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import repetitions
from helpers.waiting import let_pass
from lifecycle_maker import begin, get, installed, plugin

from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import LLM, Host, PluginContext
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import Run, RunStatus
from tavern_host.plugins.record import LoadedPlugin
from tavern_host.runtime.in_flight import InFlight, Use
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.ledger import Ledger
from tavern_host.services.calls import Provider
from tavern_host.services.registry import Views
from tavern_host.services.views import ViewHandle
from tavern_host.settings.store import PluginSettings

CYCLES = repetitions(10, 200)
FIRST_LOOK = repetitions(6, 50)
"""After how many cycles what is there is counted for the first time."""

ACME = {
    "contracts.py": """
from tavern_host import CallContext, PluginContext, ServiceInterface, acts, hookspec

class Counter(ServiceInterface, name="acme.counter"):
    @acts("acme.counter:count", "Count.")
    async def count(self, *, call: CallContext | None = None) -> str:
        '''Count one more, and say who counted.'''

@hookspec(permission="hook:plugin:acme:counting", level="add", policy="collect", description="Be told of counting.")
def acme_counting(context: PluginContext, number: int) -> list[str] | None:
    '''Return words.'''
""",
    "__init__.py": """
import asyncio

from helpers.forwarding import forwarding
from tavern_host import CommandInfo, MessageInfo, RouteInfo, ServiceInfo, WORKFLOW_MANAGER, hookimpl

VERSION = "VERSION"

class State:
    def __init__(self, context):
        self.heard, self.ready = 0, False

class Counting:
    def __init__(self, context):
        self.context = context
        self.counted = 0

    async def count(self, *, call=None):
        self.counted += 1
        await asyncio.sleep(0)
        await self.context.hooks.collect("acme_counting", number=self.counted)
        return VERSION

class Workflows(forwarding(WORKFLOW_MANAGER)):
    pass

@hookimpl
def tavern_register_services():
    return [ServiceInfo(service="acme.counter", handler=f"{__name__}:Counting")]

@hookimpl
def tavern_override_services():
    return [ServiceInfo(service="workflowManager", handler=f"{__name__}:Workflows")]

@hookimpl
def tavern_register_routes():
    return [
        RouteInfo(method="GET", path="/api/x/acme/version", handler=f"{__name__}.web:version"),
        MessageInfo(type="ACME_ASK", handler=f"{__name__}.web:message"),
    ]

@hookimpl
def tavern_register_commands():
    return [CommandInfo(name="acme", help="Do it.", handler=f"{__name__}.web:command")]

@hookimpl
async def tavern_before_execute(request, context):
    await asyncio.sleep(0.001)
    return request.model_copy(update={"metadata": {**request.metadata, "size": context.settings.get("size")}})

@hookimpl
async def tavern_startup(context):
    async def follow(items):
        async for _ in items:
            context.own(State).heard += 1

    context.own(State).ready = True
    context.tasks.spawn(follow(context.events.subscribe("EXECUTION_STATUS_UPDATE")), name="listen")
    context.tasks.spawn(follow(context.settings.changes()), name="follow")
    context.tasks.spawn(asyncio.sleep(3600), name="wait")

@hookimpl
async def tavern_shutdown(context):
    await asyncio.sleep(0)
""",
    "web.py": """
from tavern_host import HttpResponse
from tavern_host.contracts.http import SocketReply

from . import VERSION

async def version(request, context):
    return HttpResponse(data=VERSION)

async def message(message, context):
    return [SocketReply(type="ACME_TOLD", payload={"version": VERSION})]

async def command(arguments, context):
    yield None
""",
    "nodes.py": """
import asyncio
from typing import Annotated

from tavern_host import NodeContext, Slot, node

from . import VERSION, State

@node(category="test", display_name="Slow")
async def slow(text: Annotated[str, Slot("Text.")], context: NodeContext) -> Annotated[str, Slot("More text.")]:
    await asyncio.sleep(0.03)
    counted = await context.plugin.services.get("acme.counter").count()
    ready = context.plugin.own(State).ready, context.plugin.settings.get("size") == 1
    return f"{text}, by acme {VERSION} {ready} (counted by {counted})"
""",
}
GUEST = {
    "__init__.py": """
from tavern_host import RouteInfo, hookimpl

VERSION = "VERSION"

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/guest/version", handler=f"{__name__}.web:version")]

@hookimpl
async def tavern_after_execute(run, context):
    await context.services.get("acme.counter").count()
    return None

@hookimpl
def acme_counting(number):
    return ["hear, hear"]
""",
    "web.py": """
from tavern_host import HttpResponse

from guest import VERSION

async def version(request, context):
    return HttpResponse(data=VERSION)
""",
    "nodes/__init__.py": """
import asyncio
from typing import Annotated

from guest.words import WORD
from tavern_host import NodeContext, Slot, node

@node(category="test", display_name="Pass")
async def pass_on(text: Annotated[str, Slot("Text.")], context: NodeContext) -> Annotated[str, Slot("More text.")]:
    await asyncio.sleep(0.01)
    counted = await context.plugin.services.get("acme.counter").count()
    return f"{text}, by guest {WORD} (counted by {counted})"
""",
    "words.py": """
from guest import VERSION

WORD = VERSION
""",
}


COUNTS = {"name": "acme.counter:count", "allows": "Count."}
COUNTER = {"name": "acme.counter", "interface": "contracts:Counter", "permissions": [COUNTS]}
COUNTING = {"spec": "contracts:acme_counting", "permission": "hook:plugin:acme:counting", "level": "add"}
COUNTING["allows"] = "Be told of counting."


def write_acme(project: Path, version: str) -> None:
    """Write a version of the folder plugin."""
    plugin(
        project / "plugins",
        "acme",
        {name: text.replace('"VERSION"', f'"{version}"') for name, text in ACME.items()},
        "tavern_register_services",
        "tavern_register_routes",
        "tavern_register_commands",
        "tavern_before_execute",
        "tavern_startup",
        "tavern_shutdown",
        nodes={"entry": "nodes"},
        configOptions=[{"key": "extensions.acme.size", "type": "number", "label": "Size", "defaultValue": 1}],
        permissions={
            "services": {"override": ["workflowManager"], "use": ["acme.counter:count"]},
            "events": {"subscribe": ["EXECUTION_STATUS_UPDATE"]},
        },
        publishes={"services": [COUNTER], "hooks": [COUNTING]},
    )


def write_guest(site: Path, version: str) -> None:
    """Write a version of the installed plugin."""
    installed(
        site,
        "guest",
        {name: text.replace('"VERSION"', f'"{version}"') for name, text in GUEST.items()},
        "tavern_register_routes",
        "tavern_after_execute",
        version=f"1.0.{version.removeprefix('v')}",
        nodes={"entry": "nodes"},
        requires={"plugins": {"acme": ">=1"}},
        permissions={"hooks": ["hook:plugin:acme:counting"], "services": {"use": ["acme.counter:count"]}},
    )


class Tavern:
    """A running host with both plugins, and the versions that it has of them."""

    def __init__(self, host: Host, project: Path, site: Path) -> None:
        self.host = host
        self.versions = {"acme": "v0", "guest": "v0"}
        self._folders = {"acme": project, "guest": site}
        self._numbers = itertools.count(1)

    def write(self, name: str) -> None:
        """Write a new version of a plugin."""
        self.versions[name] = f"v{next(self._numbers)}"
        (write_acme if name == "acme" else write_guest)(self._folders[name], self.versions[name])

    def result(self) -> str:
        """Return the text that a run gives that begins now."""
        acme, guest = self.versions["acme"], self.versions["guest"]
        by_acme, by_guest = f"by acme {acme} (True, True) (counted by {acme})", f"by guest {guest}"
        return f"made, {by_acme}, {by_guest} (counted by {acme}), {by_acme}"

    async def begin(self) -> asyncio.Task[Run]:
        """Begin a run of the plugins' own nodes; it is accepted when this returns."""
        return await begin(self.host, "acme:Slow", "guest:PassOn", "acme:Slow")

    @contextlib.asynccontextmanager
    async def traffic(self, seen: Counter[str]) -> AsyncIterator[None]:
        """Run workflows and ask routes without end; count in `seen` what came of it."""
        stop = asyncio.Event()

        async def run_without_end(*types: str) -> None:
            while not stop.is_set():
                try:
                    run = await (await begin(self.host, *types))
                except InvalidInput as error:
                    assert not types[0].startswith("core:"), error  # else one of the plugins is not there just now
                    seen["not accepted"] += 1
                else:
                    seen[f"{run.status}: {run.error.message if run.error else ''}"] += 1
                await let_pass(0.02)

        async def ask_without_end(name: str) -> None:
            while not stop.is_set():
                version = await get(self.host, f"/api/x/{name}/version")
                seen["asked" if version else "not there"] += 1
                await let_pass(0.001)

        async with asyncio.TaskGroup() as group:
            group.create_task(run_without_end("core:UpperCase"))
            group.create_task(run_without_end("acme:Slow"))
            group.create_task(run_without_end("acme:Slow", "guest:PassOn"))
            group.create_task(ask_without_end("acme"))
            group.create_task(ask_without_end("guest"))
            yield
            stop.set()


@pytest.fixture
async def tavern(project: Path, site: Path) -> AsyncIterator[Tavern]:
    write_acme(project, "v0")
    write_guest(site, "v0")
    async with Host(project, trust=["acme", "guest"]) as host:
        assert host.plugin("acme").problems == host.plugin("guest").problems == []
        yield Tavern(host, project, site)


async def cycle(tavern: Tavern, number: int) -> None:
    """Take a plugin out and bring it back, in one of the ways in which that can be done."""
    host = tavern.host
    name = ("acme", "guest")[number // 4 % 2]
    if number % 4 < 2:
        await host.disable(name)
        gone = ["acme", "guest"] if name == "acme" else ["guest"]
        for one in gone:
            assert host.owned(one) == host.plugin(one).contributions == {}
            assert await get(host, f"/api/x/{one}/version") is None
        assert host.plugin(name).state == "disabled"
        if name == "acme":
            assert "acme" not in host.registrations.commands
            assert "acme.counter" not in tables(host)["services"]
            assert [layer.plugin for layer in host._manager.services.layers("workflowManager")] == ["tavern-workflows"]
        await host.enable(name)
    else:
        tavern.write(name)
        names = [plugin.name for plugin in await host.reload(name if number % 4 == 2 else None)]
        assert names == [name]
    for one in ("acme", "guest"):
        assert (host.plugin(one).state, host.plugin(one).problems) == ("started", [])
        assert await get(host, f"/api/x/{one}/version") == tavern.versions[one]


async def test_cycles_under_running_workflows_leave_nothing(tavern: Tavern) -> None:
    host = tavern.host
    expected: list[tuple[str, asyncio.Task[Run]]] = []
    seen: Counter[str] = Counter()
    dead: dict[str, list[weakref.ref[Any]]] = {}
    looks: list[dict[str, Any]] = []
    await (await tavern.begin())
    assert await host.services.get(
        EXECUTION_ENGINE
    ).history()  # the store of runs reads now and then, on a thread of its own
    for numbers in (range(FIRST_LOOK), range(FIRST_LOOK, CYCLES)):
        async with tavern.traffic(seen):
            for number in numbers:
                for _ in range(2):
                    expected.append((tavern.result(), await tavern.begin()))
                remember(host, dead)
                await cycle(tavern, number)
                expected.append((tavern.result(), await tavern.begin()))
        await asyncio.gather(*(task for _, task in expected))
        await all_taken_out(host)
        looks.append(await at_rest(host, looks))
    wrong = Counter(outcome for text, task in expected if (outcome := of_run(task.result(), text)) is not None)
    assert wrong == {}
    assert {outcome for outcome in seen if outcome.startswith(tuple(RunStatus))} == {"complete: "}
    assert seen["complete: "] > CYCLES
    assert seen["asked"] > CYCLES
    expected.clear()
    assert alive(host, dead) == {}
    first, last = looks
    assert {key: (first[key], last[key]) for key in last if first[key] != last[key]} == {}


def of_run(run: Run, text: str) -> str | None:
    """Return the problem of a run that was to give a text, or None."""
    if run.status is not RunStatus.COMPLETE:
        return f"{run.status}: {run.error.message if run.error else ''}"
    return None if run.outputs == {"text": text} else f"{run.outputs['text']} instead of {text}"


# --- what is there --------------------------------------------------------------------------------------

KINDS = (
    LoadedPlugin,
    PluginContext,
    Views,
    ViewHandle,
    Provider,
    InFlight,
    Use,
    Ledger,
    PluginSettings,
    InProcessRuntime,
)


def of_the_plugins(name: Any) -> bool:
    return isinstance(name, str) and (name.startswith("tavern_plugins.acme") or name.split(".")[0] == "guest")


def remember(host: Host, dead: dict[str, list[weakref.ref[Any]]]) -> None:
    """Note what there is of the plugins now, which is to be dead when they have been taken out."""
    for name in ("acme", "guest"):
        loaded = host._manager.active[name]
        for thing in (loaded, loaded.context, loaded.views, loaded.in_flight, loaded.ledger, loaded.runtime):
            dead.setdefault(type(thing).__name__, []).append(weakref.ref(thing))
    for name, module in list(sys.modules.items()):
        if of_the_plugins(name):
            dead.setdefault(f"module {name.rpartition('.')[2]}", []).append(weakref.ref(module))


def alive(host: Host, dead: dict[str, list[weakref.ref[Any]]]) -> dict[str, int]:
    """Return how many are left of the things that were noted, those in use now apart."""
    gc.collect()
    now: dict[str, list[weakref.ref[Any]]] = {}
    remember(host, now)
    in_use = {id(reference()) for references in now.values() for reference in references}
    left = {kind: {id(r()) for r in references if r() is not None} - in_use for kind, references in dead.items()}
    return {kind: len(ids) for kind, ids in left.items() if ids}


POOLS = ("waiting for a job", "asyncio_")
"""How the names of threads begin that wait for work; how many there are is bounded, and up to how much came at once."""

LEASES = "leases of "
"""How the name of the task begins that prolongs the leases of runs: it ends within a second of the last run."""


def counted(host: Host) -> dict[str, Any]:
    """Return how much there is of all that would grow if something of a plugin stayed."""
    gc.collect()
    everything = [thing for thing in gc.get_objects() if type(thing) not in weakref.ProxyTypes]
    kinds = Counter(type(thing).__name__ for thing in everything if isinstance(thing, KINDS))
    functions = (thing for thing in everything if isinstance(thing, types.FunctionType))
    classes = (thing for thing in everything if isinstance(thing, type))
    modules = (thing for thing in everything if isinstance(thing, types.ModuleType))
    return {
        **kinds,
        **{name: len(table) for name, table in tables(host).items()},
        "functions of plugins": sum(of_the_plugins(function.__module__) for function in functions),
        "classes of plugins": sum(of_the_plugins(kind.__module__) for kind in classes),
        "module objects of plugins": sum(of_the_plugins(vars(module).get("__name__")) for module in modules),
        "modules": len(sys.modules),
        "finders": len(sys.meta_path),
        "threads": sum(not thread.name.startswith(POOLS) for thread in threading.enumerate()),
        "tasks": sum(not task.get_name().startswith(LEASES) for task in asyncio.all_tasks()),
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }


async def at_rest(host: Host, looks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how much there is once it is as at the first look, or twice the same: on a busy machine what ends with a
    run takes its time."""
    look: dict[str, Any] = {}
    for _ in range(100):
        before, look = look, counted(host)
        if look == (looks[0] if looks else before):
            break
        await let_pass(1)
    return look


def tables(host: Host) -> dict[str, Any]:
    """Return the tables of a host that plugins are in."""
    manager: Any = host._manager
    services, dispatcher, lifecycle = manager.services, manager.dispatcher, manager.lifecycle
    return {
        "records": manager.records,
        "problems": [problem for record in manager.records.values() for problem in record.problems],
        "in use": lifecycle.active,
        "on their way": lifecycle.loads()[len(lifecycle.active) :],
        "imported": lifecycle._imported,
        "decisions": [*manager.operations._tasks, *manager.operations._nested],
        "services": services.services(),
        "providers": services._living,
        "overrides": [one for service in services.services() for one in services.overrides(service)],
        "views": services._views,
        "hooks": dispatcher.catalogue.hooks,
        "interfaces": dispatcher.catalogue.interfaces,
        "specs": dispatcher.catalogue._specs,
        "implementations": [i for hook in dispatcher.catalogue.hooks for i in dispatcher.implementations(hook)],
        "routes": host.registrations.routes,
        "messages": host.registrations.messages,
        "commands": host.registrations.commands,
        "subscriptions": host.events._subscriptions,
        "open settings": host._store._open,
        "timers": lifecycle._drain_timers,
    }


async def all_taken_out(host: Host) -> None:
    """Wait until nothing is on its way out, and nobody holds what he was told of it."""
    await host._manager.lifecycle.drained()
    await (await begin(host, "core:UpperCase"))
    await host.services.get(LLM).models()
    await let_pass(1)
