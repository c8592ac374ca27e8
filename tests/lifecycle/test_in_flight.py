"""Calls in flight in a plugin that is unloaded or reloaded end, up to a deadline, with the code they began with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.forwarding import overriding
from helpers.repetition import Failures
from helpers.stage import STAGE
from helpers.waiting import let_pass, until
from lifecycle_maker import HEAD, begin, get, nodes, plugin, problems, run, states, write

from tavern_host import EXECUTION_ENGINE, WORKFLOW_MANAGER, Host
from tavern_host.contracts.errors import (
    DeadlineExceeded,
    InvalidInput,
    PermissionDenied,
    ServiceUnavailable,
    TavernError,
    Vetoed,
)
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.services import ServiceInterface, ServiceKey
from tavern_host.plugins import lifecycle

WAITS_IN_ALL = {
    "contracts.py": """
from collections.abc import AsyncIterator
from tavern_host import CallContext, ServiceInterface, acts, reads

class Slow(ServiceInterface, name="acme.slow"):
    @acts("acme.slow:act", "Act.")
    async def act(self, *, call: CallContext | None = None) -> str:
        '''Act.'''

    @acts("acme.slow:act", "Act.")
    async def count(self, *, call: CallContext | None = None) -> str:
        '''Say which version this is.'''

    @reads
    async def read(self) -> str:
        '''Read.'''

    @reads
    def stream(self) -> AsyncIterator[str]:
        '''Stream.'''
""",
    "__init__.py": f"""{HEAD}
class Provider:
    async def act(self, *, call=None):
        await STAGE.wait("act")
        return "acted"

    async def count(self, *, call=None):
        return "VERSION"

    async def read(self):
        await STAGE.wait("read")
        return "was read"

    async def stream(self):
        yield "first"
        await STAGE.wait("stream")
        yield "last"

    async def close(self):
        STAGE.log.append("provider closed")

@hookimpl
def tavern_register_services():
    return [ServiceInfo(service="acme.slow", handler=f"{{__name__}}:Provider")]

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/go", handler=f"{{__name__}}:go")]

async def go(request, context):
    await STAGE.wait("handler")
    return HttpResponse(data="answered")

@hookimpl
async def tavern_before_execute(request):
    if "hook" in request.inputs:
        await STAGE.wait("hook")

@hookimpl
async def tavern_startup(context):
    async def work():
        await STAGE.wait("task")
        STAGE.log.append("task done")

    context.tasks.spawn(work(), name="work", finish=True)
    await STAGE.seen("task").wait()
    STAGE.cue("task").set()

@hookimpl
def tavern_shutdown():
    STAGE.log.append("shut down")
""",
    "nodes.py": f"""{HEAD}
@node()
async def wait(text: str) -> str:
    await STAGE.wait("node")
    return text

@node()
async def mine(text: str, context: NodeContext) -> str:
    await STAGE.wait("mine")
    return f"{{text}}, {{await context.plugin.services.get('acme.slow').count()}}"
""",
}


class Slow(ServiceInterface, name="acme.slow"):
    """What names the service; its interface is the plugin's."""


MAY_ACT = {"services": {"use": ["acme.slow:act"]}}


def waits_in_all(project: Path, version: str = "one") -> Path:
    """Write a plugin that waits in everything in which it can be waited for, and publishes a service that it uses."""
    acts = [{"name": "acme.slow:act", "allows": "Act."}]
    return plugin(
        project / "plugins",
        "acme",
        {name: text.replace("VERSION", version) for name, text in WAITS_IN_ALL.items()},
        "tavern_register_services",
        "tavern_register_routes",
        "tavern_before_execute",
        "tavern_startup",
        "tavern_shutdown",
        nodes={"entry": "nodes"},
        publishes={"services": [{"name": "acme.slow", "interface": "contracts:Slow", "permissions": acts}]},
        permissions=MAY_ACT,
    )


def slow(host: Host) -> Any:
    return host.services.get(ServiceKey(Slow))


async def stream(host: Host) -> Any:
    return [item async for item in slow(host).stream()]


async def handler(host: Host) -> Any:
    return await get(host, "/api/x/acme/go")


async def hook(host: Host) -> Any:
    return await host._manager.dispatcher.filter("tavern_before_execute", HOOKED_RUN, {"call": host.call()})


async def node(host: Host) -> Any:
    return (await run(host, "acme:Wait")).outputs["text"]


async def withdrawn(host: Host, name: str) -> None:
    """Wait until nothing of a plugin is offered any more."""
    await until(lambda: host.plugin(name).state != "started")


async def both_wait(host: Host) -> tuple[asyncio.Task[Run], asyncio.Future[Any]]:
    """Begin a run and a request, both of which wait in the plugin."""
    under_way, asked = await begin(host, "acme:Wait"), asyncio.ensure_future(handler(host))
    await STAGE.seen("node").wait()
    await STAGE.seen("handler").wait()
    return under_way, asked


HOOKED_RUN = RunRequest(workflow_id="nope", inputs={"hook": True})
BEGIN: dict[str, tuple[Callable[[Host], Awaitable[Any]], Any]] = {
    "act": (lambda host: slow(host).act(), "acted"),
    "read": (lambda host: slow(host).read(), "was read"),
    "stream": (stream, ["first", "last"]),
    "handler": (handler, "answered"),
    "hook": (hook, HOOKED_RUN),
    "node": (node, "made"),
}
"""How a call in flight begins, and what it gives."""


async def test_disabling_waits_for_calls_in_flight(project: Path) -> None:
    waits_in_all(project)
    async with Host(project, trust=["acme"]) as host:
        with Failures() as failures:
            for what, (begin_call, gives) in BEGIN.items():
                STAGE.reset()
                await host.enable("acme")
                with failures.row(what):
                    under_way = asyncio.ensure_future(begin_call(host))
                    await STAGE.seen(what).wait()
                    going = asyncio.create_task(host.disable("acme"))
                    await withdrawn(host, "acme")
                    assert states(host, "acme") == ["disabled"]
                    assert not going.done()
                    assert "shut down" not in STAGE.log
                    assert await handler(host) is None
                    with pytest.raises(ServiceUnavailable):
                        await slow(host).read()
                    with pytest.raises(InvalidInput, match="acme:Wait"):
                        await begin(host, "acme:Wait")
                    STAGE.cue(what).set()
                    assert await under_way == gives
                    await going
                    assert host.owned("acme") == {}
                    assert STAGE.log[-2:] == ["shut down", "provider closed"]
                    assert problems(host) == ["the operator has disabled it (`tavern plugins enable acme`)"]


async def test_disabling_gives_up_calls_at_the_deadline(project: Path) -> None:
    waits_in_all(project)
    async with Host(project, trust=["acme"]) as host:
        with Failures() as failures:
            for what, (begin_call, _) in BEGIN.items():
                STAGE.reset()
                await host.enable("acme")
                with failures.row(what):
                    under_way = await begin(host, "acme:Wait") if what == "node" else begin_call(host)
                    under_way = asyncio.ensure_future(under_way)
                    await STAGE.seen(what).wait()
                    await host.disable("acme")
                    assert host.owned("acme") == {}
                    if what == "node":
                        ended = await under_way
                        assert ended.status is RunStatus.INTERRUPTED
                        assert ended.error.message == "the run was interrupted: acme was unloaded before it ended"
                    elif what == "hook":
                        with pytest.raises(Vetoed, match="acme failed in tavern_before_execute, so .*did not end"):
                            await under_way
                    else:
                        with pytest.raises(DeadlineExceeded, match="acme was unloaded before .* ended"):
                            await under_way
        await host.enable("acme")
        items = slow(host).stream()
        assert await anext(items) == "first"
        await host.disable("acme")
        with pytest.raises(PermissionDenied, match="acme is not loaded any more"):
            await anext(items)  # a stream that nobody read meanwhile


async def test_tasks_marked_finish_end_before_unload(project: Path) -> None:
    code = f"""{HEAD}
@hookimpl
async def tavern_startup(context):
    async def save():
        await STAGE.wait("saving")
        context.events.publish("acme.saved", {{}})
        context.services.get(WORKFLOW_MANAGER)
        STAGE.log.append("saved")

    async def idle():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            STAGE.log.append("idle cancelled")
            raise

    context.tasks.spawn(save(), name="save", finish=True)
    context.tasks.spawn(idle(), name="idle")
"""
    plugin(project / "plugins", "acme", code, "tavern_startup")
    async with Host(project, trust=["acme"]) as host:
        await STAGE.seen("saving").wait()
        going = asyncio.create_task(host.disable("acme"))
        await withdrawn(host, "acme")
        STAGE.cue("saving").set()
        await going
        assert STAGE.log == ["saved", "idle cancelled"]
        assert host.owned("acme") == {}


async def test_a_task_does_not_go_on_while_others_of_its_plugin_end(project: Path) -> None:
    code = f"""{HEAD}
@hookimpl
async def tavern_startup(context):
    going, cancelled = asyncio.Event(), asyncio.Event()

    async def older():
        going.set()
        await cancelled.wait()
        context.tasks.spawn(asyncio.sleep(0), name="more")

    async def newer():
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()
            await asyncio.sleep(0)
            STAGE.log.append("newer ended")

    context.tasks.spawn(older(), name="older")
    context.tasks.spawn(newer(), name="newer")
    await going.wait()
"""
    plugin(project / "plugins", "acme", code, "tavern_startup")
    async with Host(project, trust=["acme"]) as host:
        await host.disable("acme")
        assert STAGE.log == ["newer ended"]
        assert host.owned("acme") == {}
        assert [problem.message for problem in host.plugin("acme").problems] == ["the operator has disabled it"]


async def test_revoking_waits_for_nothing(project: Path) -> None:
    waits_in_all(project)
    async with Host(project) as host:
        await host.grant("acme")
        under_way, asked = await both_wait(host)
        async with asyncio.timeout(lifecycle.DRAIN_DEADLINE / 2):
            await host.revoke("acme")
        assert host.owned("acme") == {}
        assert STAGE.log[-2:] == ["shut down", "provider closed"]
        STAGE.cue("node").set()
        STAGE.cue("handler").set()
        assert (await under_way).status.is_final
        assert await asked == "answered"


# --- what they end with ---------------------------------------------------------------------------------

USER = nodes("""
@node()
async def theirs(text: str, context: NodeContext) -> str:
    counter = context.plugin.services.get("acme.slow")
    await STAGE.wait("theirs")
    return f"{text}, {await counter.count()}, {await context.plugin.services.get('acme.slow').count()}"
""")
NEEDS = {"plugins": {"acme": ">=1"}}


@pytest.mark.parametrize("how", ["disable", "reload"])
async def test_dependents_reach_a_plugin_while_both_unload(project: Path, how: str) -> None:
    waits_in_all(project, "one")
    plugin(project / "plugins", "user", USER, requires=NEEDS, nodes={"entry": "nodes"}, permissions=MAY_ACT)
    async with Host(project, trust=["acme", "user"]) as host:
        under_way = await begin(host, "user:Theirs")
        await STAGE.seen("theirs").wait()
        waits_in_all(project, "two")
        decision = asyncio.create_task(getattr(host, how)("acme"))
        await let_pass(lifecycle.DRAIN_DEADLINE / 2)
        assert host.owned("acme") != {}
        STAGE.cue("theirs").set()
        assert (await under_way).outputs == {"text": "made, one, one"}
        await decision
        await host._manager.lifecycle.drained()
        assert states(host, "acme", "user") == (["disabled", "incompatible"] if how == "disable" else ["started"] * 2)
        if how == "reload":
            assert (await run(host, "user:Theirs")).outputs == {"text": "made, two, two"}


ACCEPTS = """
    async def accept(self, *args, **kwargs):
        await STAGE.wait("accept")
        return await self.original.accept(*args, **kwargs)
"""
SLOW_STORE = overriding("RUN_STORE", ACCEPTS, head=f"{HEAD}from tavern_engine.api.runs import RUN_STORE")
"""An override of the store of runs that takes its time to accept one."""


@pytest.mark.parametrize("how", ["disable", "reload"])
async def test_an_accepted_run_keeps_the_code_it_planned(project: Path, how: str) -> None:
    STAGE.cue("mine").set()
    waits_in_all(project, "one")
    plugin(project / "plugins", "slow", SLOW_STORE, permissions={"services": {"override": ["runStore"]}})
    async with Host(project, trust=["acme", "slow"]) as host:
        accepted = asyncio.create_task(run(host, "acme:Mine"))
        await STAGE.seen("accept").wait()
        waits_in_all(project, "two")
        decision = asyncio.create_task(getattr(host, how)("acme"))
        await let_pass(lifecycle.DRAIN_DEADLINE / 2)
        STAGE.cue("accept").set()
        assert (await accepted).outputs == {"text": "made, one"}
        await decision
        if how == "disable":
            await host.enable("acme")
        assert (await run(host, "acme:Mine")).outputs == {"text": "made, two"}


async def test_a_view_reaches_the_provider_after_reload(project: Path) -> None:
    waits_in_all(project, "one")
    keeps = f"""{HEAD}
@hookimpl
async def tavern_startup(context):
    counter = context.services.get("acme.slow")

    async def ask():
        while True:
            await STAGE.cue("ask").wait()
            STAGE.cue("ask").clear()
            STAGE.log.append(await counter.count())
            STAGE.cue("asked").set()

    context.tasks.spawn(ask(), name="ask")
"""
    plugin(project / "plugins", "keeper", keeps, "tavern_startup", requires=NEEDS, permissions=MAY_ACT)
    async with Host(project, trust=["acme", "keeper"]) as host:
        mine = slow(host)
        assert await mine.count() == "one"
        waits_in_all(project, "two")
        await host.reload("acme")
        assert await mine.count() == "two"
        STAGE.cue("ask").set()
        await STAGE.cue("asked").wait()
        assert "two" in STAGE.log and "one" not in STAGE.log
        await host.disable("acme")
        with pytest.raises(ServiceUnavailable, match=r"no plugin provides the service acme\.slow any more"):
            await mine.count()
        await host.enable("acme")
        assert await mine.count() == "two"


async def test_new_calls_skip_an_override_being_unloaded(project: Path) -> None:
    body = """
    async def list_workflows(self):
        STAGE.log.append("asked the override")
        await STAGE.wait("override")
        return await self.original.list_workflows()
"""
    code = overriding("WORKFLOW_MANAGER", body, head=HEAD)
    plugin(project / "plugins", "acme", code, permissions={"services": {"override": ["workflowManager"]}})
    async with Host(project, trust=["acme"]) as host:
        manager = host.services.get(WORKFLOW_MANAGER)
        under_way = asyncio.ensure_future(manager.list_workflows())
        await STAGE.seen("override").wait()
        going = asyncio.create_task(host.disable("acme"))
        await withdrawn(host, "acme")
        assert await manager.list_workflows() == []
        assert not going.done()
        STAGE.cue("override").set()
        assert await under_way == []
        await going
        assert STAGE.log == ["asked the override"]
        assert host.owned("acme") == {}


HOOKED = f"""{HEAD}
@hookimpl
async def tavern_before_execute(request, context):
    STAGE.log.append("NAME")
    await STAGE.wait("NAME")
"""


async def test_a_hook_call_skips_plugins_unloaded_meanwhile(project: Path) -> None:
    for name in ("a", "b", "c"):
        plugin(project / "plugins", name, HOOKED.replace("NAME", name), "tavern_before_execute")
    async with Host(project, trust=["a", "b", "c"]) as host:
        under_way = asyncio.ensure_future(hook(host))
        await STAGE.seen("c").wait()
        await host.disable("b")
        plugin(project / "plugins", "a", HOOKED.replace("NAME", "a again"), "tavern_before_execute")
        await host.reload("a")
        for cue in ("a again", "c"):
            STAGE.cue(cue).set()
        await under_way
        assert STAGE.log == ["c", "a again"]


async def test_a_veto_holds_while_its_plugin_reloads(project: Path) -> None:
    refuses = f"{HEAD}\n@hookimpl\ndef tavern_before_execute(request):\n    return Veto(reason='closed')\n"
    plugin(project / "plugins", "guard", refuses, "tavern_before_execute")
    plugin(project / "plugins", "slow", HOOKED.replace("NAME", "slow"), "tavern_before_execute")
    async with Host(project, trust=["guard", "slow"]) as host:
        under_way = asyncio.ensure_future(hook(host))
        await STAGE.seen("slow").wait()
        renamed = "@hookimpl(specname='tavern_before_execute')\ndef guard"
        renamed = refuses.replace("@hookimpl\ndef tavern_before_execute", renamed)
        plugin(project / "plugins", "guard", renamed, "tavern_before_execute")
        await host.reload("guard")
        await host._manager.lifecycle.drained()
        STAGE.cue("slow").set()
        with pytest.raises(Vetoed, match="guard refused: closed"):
            await under_way


# --- modules --------------------------------------------------------------------------------------------

LAZY = {
    "__init__.py": f"""{HEAD}
@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/go", handler=f"{{__name__}}.web:go")]
""",
    "web.py": f"""{HEAD}
async def go(request, context):
    await STAGE.wait("handler")
    from .words import WORD
    return HttpResponse(data=WORD)
""",
    "words.py": "WORD = 'one'\n",
}


async def test_calls_in_flight_import_only_reviewed_code(project: Path) -> None:
    folder = plugin(project / "plugins", "acme", LAZY, "tavern_register_routes")
    async with Host(project) as host:
        await host.grant("acme")
        under_way = asyncio.ensure_future(handler(host))
        await STAGE.seen("handler").wait()
        write(folder / "words.py", "WORD = 'two'\n")
        await host.reload("acme")
        assert states(host, "acme") == ["needs-review"]
        assert "its code has changed since it was reviewed" in problems(host)[0]
        STAGE.cue("handler").set()
        with pytest.raises(TavernError, match=r"words\.py was changed after it was reviewed"):
            await under_way


async def test_the_engine_unloads_after_its_runs(project: Path) -> None:
    after = f"""{HEAD}
@hookimpl
async def tavern_after_execute(run, context):
    return run.model_copy(update={{"outputs": {{"text": "seen"}}}})
"""
    waits_in_all(project)
    plugin(project / "plugins", "after", after, "tavern_after_execute")
    async with Host(project, trust=["acme", "after"]) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        under_way = asyncio.ensure_future(node(host))
        await STAGE.seen("node").wait()
        going = asyncio.create_task(host.disable("tavern-engine"))
        await withdrawn(host, "tavern-engine")
        with pytest.raises(ServiceUnavailable):
            await engine.queue()
        STAGE.cue("node").set()
        assert await under_way == "seen"
        await going
        assert host.owned("tavern-engine") == {}
        await host.enable("tavern-engine")
        assert await engine.queue()
        assert (await run(host, "core:UpperCase")).outputs == {"text": "seen"}


@pytest.mark.parametrize("drains", [False, True])
async def test_stopping_a_host_interrupts_calls_in_flight(project: Path, drains: bool) -> None:
    waits_in_all(project)
    async with asyncio.timeout(lifecycle.DRAIN_DEADLINE / 2):
        async with Host(project, trust=["acme"]) as host:
            under_way, asked = await both_wait(host)
            if drains:
                going = asyncio.create_task(host.disable("acme"))
                await withdrawn(host, "acme")
        assert (await under_way).status is RunStatus.INTERRUPTED
        with pytest.raises(DeadlineExceeded, match="acme was unloaded before"):
            await asked
        if drains:
            await going
        assert STAGE.log[-2:] == ["shut down", "provider closed"]
        assert host.owned("acme") == {}


async def test_what_a_host_left_waits_for_plugins_that_start(project: Path) -> None:
    code = nodes("""
    @node()
    async def use(text: str, context: NodeContext) -> str:
        await STAGE.wait("node")
        return f"{text}, {'ready' in STAGE.log}"
    """)
    code["__init__.py"] = f"""{HEAD}
@hookimpl
async def tavern_startup(context):
    await STAGE.wait("starting")
    STAGE.log.append("ready")
"""
    plugin(project / "plugins", "acme", code, "tavern_startup", nodes={"entry": "nodes"})
    STAGE.cue("starting").set()
    async with Host(project, trust=["acme"], serving=True) as host:
        under_way = await begin(host, "acme:Use")
        await STAGE.seen("node").wait()
    STAGE.reset()
    STAGE.cue("node").set()
    next_host = Host(project, trust=["acme"], serving=True)
    opening = asyncio.create_task(next_host.__aenter__())
    await STAGE.seen("starting").wait()
    await let_pass(1)  # in which the run would be resumed
    STAGE.cue("starting").set()
    await opening
    try:
        engine, run_id = next_host.services.get(EXECUTION_ENGINE), (await under_way).id
        assert (await engine.wait(run_id)).outputs == {"text": "made, True"}
    finally:
        await next_host.stop()
