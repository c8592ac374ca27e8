"""Broken plugins that fail while they start, work or stop, and those whose parts are wrong."""

from __future__ import annotations

import asyncio
import json

from broken_plugins import Corpus, Says
from inn import HEAD, HERE, TELLS, WATCHDOG_LIMIT, Inn, run

from tavern_host import TOOL_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.plugins import PluginState
from tavern_host.testing.http import served

CORPUS = Corpus()
FAILED, STARTED = PluginState.FAILED, PluginState.STARTED
SWALLOWS = "while True:\n        try: await asyncio.sleep(3600)\n        except asyncio.CancelledError: pass"

# --- at startup --------------------------------------------------------------------------------------


def startup(
    name: str,
    body: str,
    reason: str,
    mend: str = "",
    *,
    kind: str = "async def",
    state: PluginState = FAILED,
    threads: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
) -> None:
    """Add a plugin whose `tavern_startup` does this."""
    text = f"{HEAD}\n@hookimpl\n{kind} tavern_startup(context):\n    {body}\n"
    mend = mend or f"tavern plugins disable {name}"
    says = Says(name, state, reason, mend, "__init__.py" if HERE in body else None)
    CORPUS.add(name, lambda inn: inn.code(name, text, hooked=["tavern_startup"]), says, threads=threads, tasks=tasks)


startup("start-raises", f"raise RuntimeError('no')  {HERE}", "tavern_startup: RuntimeError: no")
startup("start-exits-sync", f"sys.exit('bye')  {HERE}", "tried to end the program (SystemExit: bye)", kind="def")
startup("start-interrupts", f"raise KeyboardInterrupt  {HERE}", "tried to end the program (KeyboardInterrupt)")
startup("start-stops-iteration", f"next(iter([]))  {HERE}", "StopIteration", kind="def")
startup("start-cancels", f"raise asyncio.CancelledError  {HERE}", "waited for something that was cancelled")
startup("start-timeout", f"raise TimeoutError('mine')  {HERE}", "tavern_startup: TimeoutError: mine", kind="def")
startup("start-waits", "await asyncio.sleep(3600)", "tavern_startup of start-waits did not end within")


async def loop_runs(host: Host) -> None:
    """The event loop comes to its turn, and with it the watchdog."""
    await asyncio.sleep(0)


CORPUS.add(
    "start-blocks",
    lambda inn: inn.code(
        "start-blocks",
        f"{HEAD}@hookimpl\nasync def tavern_startup():\n    sys.release.wait({WATCHDOG_LIMIT * 1.6})  {HERE}\n",
        hooked=["tavern_startup"],
    ),
    Says(
        "start-blocks",
        STARTED,
        "tavern_startup kept the whole host waiting",
        "let it await, or run it in a thread",
        "__init__.py",
        at="use",
    ),
    use=loop_runs,
)
startup("start-swallows", SWALLOWS, "tavern_startup of start-swallows did not end within")
startup(
    "start-hangs",
    "sys.release.wait(60)",
    "tavern_startup of start-hangs did not end within",
    kind="def",
    threads=("tavern_startup of start-hangs",),
)

# --- what it was not allowed -------------------------------------------------------------------------

startup(
    "acts-unasked",
    f"await context.services.get(LLM).complete(None)  {HERE}",
    "acts-unasked may not call llm.complete",
    "it needs the permission services.use: llm:complete",
)
startup(
    "subscribes-unasked",
    f"context.events.subscribe('NODE_ERROR')  {HERE}",
    "subscribes-unasked may not subscribe NODE_ERROR",
    "add 'NODE_ERROR' to permissions.events.subscribe",
)
startup(
    "subscribes-to-all",
    f"context.events.subscribe()  {HERE}",
    "subscribes-to-all may not subscribe",
    "permissions.events.subscribe",
)
startup(
    "publishes-unasked",
    f"context.events.publish('NODE_COMPLETE', {{}})  {HERE}",
    "publishes-unasked may not publish NODE_COMPLETE",
    "permissions.events.publish",
)
startup(
    "calls-foreign-hook",
    f"await context.hooks.collect('tavern_register_nodes')  {HERE}",
    "calls-foreign-hook may not call tavern_register_nodes",
    "only the provider of nodeManager may",
)
startup(
    "publishes-nonsense",
    f"context.events.publish('publishes-nonsense.it', {{'x': object()}})  {HERE}",
    "the payload of publishes-nonsense.it is not JSON",
    "it has a object",
)

# --- in the background -------------------------------------------------------------------------------


def task(name: str, statement: str, reason: str) -> None:
    """Add a plugin whose background task does this."""
    body = f"""async def sweep():
        {statement}  {HERE}
    context.tasks.spawn(sweep(), name="sweep")
    await asyncio.sleep(0.01)"""
    startup(name, body, f"task sweep: {reason}", state=STARTED)


task("task-raises", "1 / 0", "ZeroDivisionError")
task("task-exits", "sys.exit(1)", "")

# --- at the end --------------------------------------------------------------------------------------


def shutdown(
    name: str, body: str, reason: str, *, kind: str = "async def", threads: tuple[str, ...] = (), start: str = ""
) -> None:
    """Add a plugin whose `tavern_shutdown` does this."""
    text = f"{HEAD}\n@hookimpl\n{kind} tavern_shutdown(context):\n    {body}\n"
    file = "__init__.py" if HERE in body else None
    says = Says(name, STARTED, reason, f"tavern plugins disable {name}", file, at="stop")
    CORPUS.add(name, lambda inn: inn.code(name, text, hooked=["tavern_shutdown"]), says, threads=threads)


shutdown("stop-raises", f"raise RuntimeError('no')  {HERE}", "tavern_shutdown: RuntimeError: no")
shutdown("stop-exits", f"sys.exit(1)  {HERE}", "tried to end the program (SystemExit: 1)")
shutdown("stop-cancels", f"raise asyncio.CancelledError  {HERE}", "waited for something that was cancelled")
shutdown("stop-waits", "await asyncio.sleep(3600)", "tavern_shutdown of stop-waits did not end within")
shutdown("stop-swallows", SWALLOWS, "tavern_shutdown of stop-swallows did not end within")
shutdown(
    "stop-hangs",
    "sys.release.wait(60)",
    "tavern_shutdown of stop-hangs did not end within",
    kind="def",
    threads=("tavern_shutdown of stop-hangs",),
)

TASK_SWALLOWS = f"""{HEAD}
async def sweep():
    while not sys.release.is_set():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            pass

@hookimpl
async def tavern_startup(context):
    context.tasks.spawn(sweep(), name="sweep")
"""
CORPUS.add(
    "task-swallows",
    lambda inn: inn.code("task-swallows", TASK_SWALLOWS, hooked=["tavern_startup"]),
    Says("task-swallows", STARTED, "closing its task sweep", "tavern plugins disable task-swallows", at="stop"),
    tasks=("task-swallows: sweep",),
)

# --- nodes -------------------------------------------------------------------------------------------


def nodes(name: str, text: str, reason: str, mend: str = "") -> None:
    """Add a plugin whose node module cannot be imported."""
    says = Says(name, FAILED, reason, mend or f"tavern plugins disable {name}", "nodes/__init__.py")
    files = {"nodes/__init__.py": f"{TELLS}from tavern_host import node\n{text}"}
    CORPUS.add(name, lambda inn: inn.code(name, files=files, nodes={"entry": "./nodes"}), says)


nodes("node-import", f"import a_library_that_is_not_there  {HERE}\n", "'a_library_that_is_not_there'")
nodes(
    "node-no-hint", f"@node()  {HERE}\ndef f(text) -> str: ...\n", "parameter 'text' has no type hint", "no type hint"
)
nodes("node-hint", f"@node()  {HERE}\ndef f(text: set) -> str: ...\n", "slot 'text'", "or give Slot(type=…)")
nodes(
    "node-name", f"@node()  {HERE}\ndef f(text: 'Gone') -> str: ...\n", "a type hint uses 'Gone'", "import it outside"
)


def bad_node(name: str, body: str, *words: str) -> None:
    """Add a plugin with a node that fails when it is run; the run says so, and no other run does."""

    async def use(host: Host) -> None:
        done = await run(host, f"{name}:Broken")
        assert (done.status, done.outputs) == ("error", {})
        error = done.nodes["node"].error
        assert [word for word in words if word not in error.message] == []

    text = (
        f"{TELLS}import sys\nfrom tavern_host import node\n@node(type='Broken')\ndef f(name: str) -> str:\n    {body}\n"
    )
    files = {"nodes/__init__.py": text}
    CORPUS.add(name, lambda inn: inn.code(name, files=files, nodes={"entry": "./nodes"}), Says(name, STARTED), use=use)


bad_node("node-raises", "raise RuntimeError('no luck')", "RuntimeError: no luck")
bad_node("node-exits", "sys.exit(2)", "SystemExit: 2")
bad_node("node-unspeakable", "raise type('Odd', (Exception,), {'__str__': lambda self: 5})", "cannot be shown")

# --- files of its own --------------------------------------------------------------------------------


async def tools_are_listed(host: Host) -> None:
    """The tools of everybody else are there."""
    assert await host.services.get(TOOL_MANAGER).list_tools()


async def workflows_are_listed(host: Host) -> None:
    """The workflows of everybody else are there."""
    assert "toast" in {w.id for w in await host.services.get(WORKFLOW_MANAGER).list_workflows()}


def tool(name: str, content: str, reason: str, mend: str) -> None:
    """Add a plugin with a tool file that cannot be used."""
    files = {"tools/it.tool.json": content}
    says = Says(name, STARTED, reason, mend, "tools/it.tool.json", at="use")
    CORPUS.add(name, lambda inn: inn.code(name, files=files, tools={"entry": "./tools"}), says, use=tools_are_listed)


tool("tool-no-json", "{", "is not JSON", "it.tool.json:1:2")
tool("tool-kind", json.dumps({"id": "it", "implementation": {"type": "scrpt"}}), "$.implementation.type", "script")


def device(inn: Inn) -> None:
    root = inn.being_written("tool-is-device", tools={"entry": "./tools"})
    (root / "tools").mkdir()
    (root / "tools" / "it.tool.json").symlink_to("/dev/zero")


CORPUS.add(
    "tool-is-device",
    device,
    Says("tool-is-device", STARTED, "is not a regular file", "a regular file", "tools/it.tool.json", at="use"),
    use=tools_are_listed,
)
CORPUS.add(
    "workflow-no-json",
    lambda inn: inn.code("workflow-no-json", files={"workflows/it.json": "{"}, workflows={"entry": "./workflows"}),
    Says("workflow-no-json", STARTED, "is not JSON", "line 1", "workflows/it.json", at="use"),
    use=workflows_are_listed,
)

# --- requests ----------------------------------------------------------------------------------------


def handler(name: str, web: str, reason: str) -> None:
    """Add a plugin whose route fails when it is asked: that request fails, and no other does."""

    async def use(host: Host) -> None:
        async with served(host) as site:
            answer = await site.get(f"/api/x/{name}/a")
            assert answer.status == 500, await answer.text()
            assert (await site.get("/api/x/healthy/ping")).status == 200

    text = (
        f"{HEAD}\n@hookimpl\ndef tavern_register_routes():\n"
        f"    return [RouteInfo(method='GET', path='/api/x/{name}/a', handler=f'{{__name__}}.web:answer')]\n"
    )
    files = {"web.py": f"{TELLS}import sys\nfrom tavern_host import HttpResponse\n{web}"}
    mend = f"tavern plugins disable {name}"
    says = Says(name, STARTED, reason, mend, "web.py" if HERE in web else None, at="use")
    hooked = ["tavern_register_routes"]
    CORPUS.add(name, lambda inn: inn.code(name, text, files=files, hooked=hooked), says, use=use)


ASKED = "async def answer(request, context):"
handler("route-raises", f"{ASKED}\n    1 / 0  {HERE}\n", "ZeroDivisionError")
handler("route-exits", f"{ASKED}\n    sys.exit(1)  {HERE}\n", "tried to end the program (SystemExit: 1)")
handler("route-import", f"import a_library_that_is_not_there  {HERE}\n", "'a_library_that_is_not_there'")
handler("route-number", f"{ASKED}\n    return 5\n", "returned int, expected an HttpResponse")
handler("route-no-json", f"{ASKED}\n    return HttpResponse(data=float('nan'))\n", "JSON")
