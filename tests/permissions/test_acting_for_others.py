"""A plugin acts in its own name, or in that of a call that it was given while that call is active; the log names it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

from tavern_host import CallContext, Host, Principal, clock
from tavern_host.contracts.audit import AUDIT, AuditEntry
from tavern_host.contracts.errors import DeadlineExceeded, Forbidden
from tavern_host.contracts.http import HttpRequest
from tavern_host.server.plugin_routes import call_route
from tavern_tools.api.projectfiles import PROJECT_FILES
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER

OPERATOR = Principal(kind="user", id="operator")
READ = ToolCallRequest(tool_id="FileOperator.ReadFile", arguments={"filePath": "x"})
NODE = ToolCallRequest(tool_id="node:acme-forger:Hold", arguments={"text": "x"})
Act = Callable[[CallContext], Awaitable[object]]

CODE = """
from helpers.forwarding import forwarding
from tavern_host import HttpResponse, RouteInfo, hookimpl, service_info
from tavern_tools.api.projectfiles import PROJECT_FILES

CONTEXT, ISSUED, DO = [], {}, {}

async def given(where, call):
    ISSUED[where] = call
    if where in DO:
        await DO.pop(where)(call)

@hookimpl
def tavern_startup(context):
    CONTEXT.append(context)

@hookimpl
async def tavern_before_tool_call(request, call):
    await given("hook", call)

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="POST", path="/api/x/acme-forger/go", handler=f"{__name__}:go")]

@hookimpl
def tavern_override_services():
    return [service_info(PROJECT_FILES, Files)]

class Files(forwarding(PROJECT_FILES)):
    async def read_file(self, file_path, *, offset=1, limit=2000, call=None):
        await given("service", call)
        return await self.original.read_file(file_path, offset=offset, limit=limit, call=call)

async def go(request, context):
    await given("route", request.call)
    return HttpResponse(data=None)
"""
NODES = """
from tavern_host import NodeContext, node

from . import given

@node(cached=False)
async def hold(text: str, context: NodeContext) -> str:
    await given("node", context.call)
    return text
"""
PERMISSIONS = {
    "hooks": ["hook:server:host:startup", "hook:server:tool:before-call", "hook:server:routes:register"],
    "services": {
        "use": ["toolManager:execute", "audit:record", "projectFiles:read", "projectFiles:write"],
        "override": ["projectFiles"],
    },
}


class Scene:
    """A host with the plugin, which does what it is asked in the place where it was given a context."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.module: Any = sys.modules["tavern_plugins.acme_forger"]
        self.tools = self.module.CONTEXT[-1].services.get(TOOL_MANAGER)

    async def reach(self, where: str, act: Act | None = None, deadline: datetime | None = None) -> None:
        """Have the operator call something of the plugin, which does `act` there; raise what that raises."""
        raised: list[BaseException] = []

        async def act_and_keep(call: CallContext) -> None:
            try:
                await (act(call) if act is not None else asyncio.sleep(0))
            except BaseException as error:
                raised.append(error)

        self.module.DO[where] = act_and_keep
        call = CallContext(principal=OPERATOR, deadline=deadline, depth=2)
        if where == "route":
            registered, _, _ = self.host.registrations.find("POST", "/api/x/acme-forger/go")
            assert registered is not None
            request = HttpRequest(method="POST", path="/api/x/acme-forger/go", call=call)
            await call_route(self.host, registered, request)
        else:
            wanted = NODE if where == "node" else READ
            result = await self.host.services.get(TOOL_MANAGER).call(wanted, call=call)
            assert where not in self.module.DO, result
        if raised:
            raise raised[0]

    async def entries(self) -> list[AuditEntry]:
        return await self.host.services.get(AUDIT).tail(1000)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    root = tmp_path_factory.mktemp("acting")
    files = {"__init__.py": CODE, "nodes.py": NODES}
    folder = write_plugin(root / "acme_forger", files, permissions=PERMISSIONS, nodes={"entry": "./nodes.py"})
    (root / "project" / "files").mkdir(parents=True)
    (root / "project" / "files" / "x").write_text("x")
    async with Host(root / "project", plugins=[folder], trust=["acme-forger"]) as host:
        assert host.plugin("acme-forger").problems == []
        yield Scene(host)


pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACES = ("route", "hook", "service", "node")


def forged(issued: CallContext) -> dict[str, CallContext]:
    """Return contexts that name others, made of nothing or of one that was given for `agent:guest`."""
    named = {str(p): CallContext(principal=p) for p in (OPERATOR, Principal(kind="system", id="host"))}
    named |= {"another plugin": CallContext(principal=Principal(kind="plugin", id="tavern-tools"))}
    made = issued.__class__.model_construct(**{**vars(issued), "principal": OPERATOR})
    return named | {
        "another agent": CallContext(principal=Principal(kind="agent", id="other")),
        "a child of what was given": issued.child(principal=OPERATOR),
        "a changed copy": issued.model_copy(update={"principal": OPERATOR}),
        "with its trace": CallContext(principal=OPERATOR, trace_id=issued.trace_id),
        "with it as parent": CallContext(principal=OPERATOR, parent_id=issued.id),
        "constructed": made,
    }


async def test_nobody_else_can_be_named(scene: Scene) -> None:
    context = scene.module.CONTEXT[-1]
    before = len(await scene.entries())
    tried = 0

    async def try_all(issued: CallContext) -> None:
        nonlocal tried
        for name, call in forged(issued).items():
            for way in (
                lambda call=call: scene.tools.call(READ, call=call),
                lambda call=call: scene.tools.call_all([READ], scope=ToolScope(), call=call),
                lambda call=call: context.services.invoke("projectFiles", "read_file", {"filePath": "x"}, call=call),
                lambda call=call: context.services.method("projectFiles", "read_file")({"filePath": "x"}, call),
                lambda call=call: context.services.get(AUDIT).record("acme.done", call=call),
            ):
                with failures.row(name):
                    tried += 1
                    with pytest.raises(Forbidden, match="acme-forger may not use .* in another's name: expected a con"):
                        await way()
            with failures.row(f"{name} in the facility"), pytest.raises(Forbidden):
                context.audit.record("acme.done", call=call)

    with Failures() as failures:
        guest = Principal(kind="agent", id="guest")
        scene.module.DO["hook"] = try_all
        await scene.host.services.get(TOOL_MANAGER).call(
            READ, scope=ToolScope(allowed=["*"]), call=CallContext(principal=guest)
        )
    assert tried == 45
    entries = [entry for entry in (await scene.entries())[before:] if entry.action != "plugin.blocked"]
    assert {(entry.actor, entry.action) for entry in entries} <= {
        ("agent:guest", "tool.called"),
        ("agent:guest", "tool.denied"),
    }


async def test_what_was_given_is_passed_on_and_named(scene: Scene) -> None:
    with Failures() as failures:
        for place in PLACES:
            for name, change in {
                "itself": lambda call: call,
                "a child": lambda call: call.child(timeout=5),
                "in a task": lambda call: call,
            }.items():
                with failures.row(f"{place}, {name}"):
                    before = len(await scene.entries())

                    async def act(call: CallContext, change: Any = change, name: str = name) -> None:
                        doing = scene.tools.call(READ, call=change(call))
                        result = await (asyncio.create_task(doing) if name == "in a task" else doing)
                        assert result.status == "done", result

                    await scene.reach(place, act)
                    entries = [e for e in (await scene.entries())[before:] if e.action == "tool.called"]
                    own = [e.actor for e in entries if e.plugin == "acme-forger"]
                    assert own == ["user:operator"], entries


async def test_a_kept_context_is_worth_nothing(scene: Scene) -> None:
    with Failures() as failures:
        for place in PLACES:
            with failures.row(place):
                children: list[CallContext] = []

                async def act(call: CallContext, children: list[CallContext] = children) -> None:
                    children.append(call.child())
                    await scene.tools.call(READ, call=children[0])

                await scene.reach(place, act)
                await scene.reach(place)
                for kept in (scene.module.ISSUED[place], *children):
                    with pytest.raises(Forbidden):
                        await scene.tools.call(READ, call=kept)


async def test_every_entry_names_its_plugin(scene: Scene) -> None:
    context, own = scene.module.CONTEXT[-1], Principal(kind="plugin", id="acme-forger")
    for call in (None, CallContext(principal=own), CallContext(principal=own, via="another")):
        before = len(await scene.entries())
        await scene.tools.call(READ, call=call)
        await context.services.get(AUDIT).record("acme-forger.done", call=call)
        context.audit.record("acme-forger.done", call=call)
        found = [(entry.actor, entry.plugin) for entry in (await scene.entries())[before:]]
        assert found == [("plugin:acme-forger", "acme-forger")] * 3, "a plugin acts as itself"
    before = len(await scene.entries())
    await scene.reach("route", lambda call: context.services.get(AUDIT).record("nothing.special", call=call))
    await scene.host.services.get(TOOL_MANAGER).call(READ)
    entries = {(e.actor, e.action, e.plugin) for e in (await scene.entries())[before:]}
    assert ("user:operator", "nothing.special", "acme-forger") in entries
    assert ("user:operator", "tool.called", "tavern-tools") in entries


async def test_no_deadline_is_put_off(scene: Scene) -> None:
    deadline = clock.now() + timedelta(seconds=30)
    seen: list[CallContext] = []

    async def act(call: CallContext) -> None:
        async def look(inner: CallContext) -> None:
            seen.append(inner)

        scene.module.DO["service"] = look
        late = call.model_copy(update={"deadline": None, "depth": 0})
        await scene.module.CONTEXT[-1].services.get(PROJECT_FILES).read_file("x", call=late)

    await scene.reach("hook", act, deadline)
    assert seen[0].deadline is not None
    assert seen[0].deadline <= deadline
    assert seen[0].depth >= 2


async def test_a_call_is_settled_at_its_deadline(scene: Scene) -> None:
    over = asyncio.Event()

    async def ignore(call: CallContext) -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    files = scene.host.services.get(PROJECT_FILES)
    for act in (ignore, lambda call: over.wait()):
        scene.module.DO["service"] = act
        deadline = clock.now() + timedelta(seconds=0.1)
        with pytest.raises(DeadlineExceeded, match="projectFiles.read_file did not end before"):
            await files.read_file("x", call=CallContext(principal=OPERATOR, deadline=deadline))
    over.set()
