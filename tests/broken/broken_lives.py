"""Broken plugins that fail while they start, work or stop, and those whose parts are wrong."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from base_project import HERE, TELLS, BaseProject, run
from broken_hooks import tools_are_listed
from broken_plugins import FAILED, LATE, STARTED, Corpus, Says

from tavern_host import WORKFLOW_MANAGER, Host
from tavern_host.testing.http import served

CORPUS = Corpus()
SWALLOWS = "while True:\n        try: await asyncio.sleep(3600)\n        except asyncio.CancelledError: pass"
ENDS = "tried to end the program"


def life(hook: str, name: str, body: str, reason: str, mend: str = "", **options: Any) -> None:
    """Add a plugin whose startup or shutdown does this; it is a plain function where it awaits nothing."""
    kind = options.pop("kind", "async def")
    text = f"\n@hookimpl\n{kind} {hook}(context):\n    {body}\n"
    options = ({"state": FAILED} if hook == "tavern_startup" else {"state": STARTED, "at": "stop"}) | options
    CORPUS.code(name, text, reason=reason, mend=mend, hooked=[hook], **options)


# --- at startup --------------------------------------------------------------------------------------


def startup(name: str, body: str, reason: str, mend: str = "", **options: Any) -> None:
    life("tavern_startup", name, body, reason, mend, **options)


startup("start-raises", f"raise RuntimeError('no')  {HERE}", "tavern_startup: RuntimeError: no")
startup("start-exits-sync", f"sys.exit('bye')  {HERE}", f"{ENDS} (SystemExit: bye)", kind="def")
startup("start-interrupts", f"raise KeyboardInterrupt  {HERE}", f"{ENDS} (KeyboardInterrupt)")
startup("start-stops-iteration", f"next(iter([]))  {HERE}", "StopIteration", kind="def")
startup("start-cancels", f"raise asyncio.CancelledError  {HERE}", "waited for something that was cancelled")
startup("start-timeout", f"raise TimeoutError('mine')  {HERE}", "tavern_startup: TimeoutError: mine", kind="def")
startup("start-waits", "await asyncio.sleep(3600)", f"tavern_startup of start-waits{LATE}")
startup("start-swallows", SWALLOWS, f"tavern_startup of start-swallows{LATE}")
startup("start-hangs", "sys.hang()", f"tavern_startup of start-hangs{LATE}", kind="def")


async def loop_runs(host: Host) -> None:
    """The event loop comes to its turn, and with it the watchdog."""
    await asyncio.sleep(0)


BLOCKS, MEND = "tavern_startup kept the whole host waiting", "let it await, or run it in a thread"
BLOCKING = f"sys.block_until_blamed()  {HERE}"
startup("start-blocks", BLOCKING, BLOCKS, MEND, state=STARTED, at="use", use=loop_runs, real=True)
startup(
    "acts-unasked",
    f"await context.services.get(LLM).complete(None)  {HERE}",
    "acts-unasked may not call llm.complete",
    "it needs the permission services.use: llm:complete",
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

# --- in the background -------------------------------------------------------------------------------

for name, statement, reason in (("task-raises", "1 / 0", "ZeroDivisionError"), ("task-exits", "sys.exit(1)", "")):
    body = f"""async def sweep():
        {statement}  {HERE}
    await asyncio.wait([context.tasks.spawn(sweep(), name="sweep")])
    await asyncio.sleep(0)"""
    startup(name, body, f"task sweep: {reason}", state=STARTED)

# --- at the end --------------------------------------------------------------------------------------

SHUTDOWN = "tavern_shutdown"
life(SHUTDOWN, "stop-raises", f"raise RuntimeError('no')  {HERE}", f"{SHUTDOWN}: RuntimeError: no")
life(SHUTDOWN, "stop-exits", f"sys.exit(1)  {HERE}", f"{ENDS} (SystemExit: 1)")
life(SHUTDOWN, "stop-cancels", f"raise asyncio.CancelledError  {HERE}", "waited for something that was cancelled")
life(SHUTDOWN, "stop-waits", "await asyncio.sleep(3600)", f"{SHUTDOWN} of stop-waits{LATE}")
life(SHUTDOWN, "stop-swallows", SWALLOWS, f"{SHUTDOWN} of stop-swallows{LATE}")
life(SHUTDOWN, "stop-hangs", "sys.hang()", f"{SHUTDOWN} of stop-hangs{LATE}", kind="def")
TASK_SWALLOWS = """
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
CORPUS.code(
    "task-swallows",
    TASK_SWALLOWS,
    STARTED,
    f"closing its task sweep: it{LATE}",
    at="stop",
    tasks=("task-swallows: sweep",),
    hooked=["tavern_startup"],
)

# --- nodes -------------------------------------------------------------------------------------------


def nodes(name: str, text: str, *told: str, **options: Any) -> None:
    """Add a plugin whose node module is this."""
    files = {"nodes/__init__.py": f"{TELLS}import sys\nfrom tavern_host import node\n{text}"}
    CORPUS.code(name, "", *told, files=files, nodes={"entry": "./nodes"}, **options)


for name, text, reason, mend in (
    ("node-import", f"from a_library_that_is_not_there import answer  {HERE}\n", "'a_library_that_is_not_there'", ""),
    ("node-no-hint", f"@node()  {HERE}\ndef f(text) -> str: ...\n", "'text' has no type hint", "no type hint"),
    ("node-hint", f"@node()  {HERE}\ndef f(text: set) -> str: ...\n", "slot 'text'", "or give Slot(type=…)"),
    (
        "node-name",
        f"@node()  {HERE}\ndef f(text: 'Gone') -> str: ...\n",
        "a type hint uses 'Gone'",
        "import it outside",
    ),
):
    nodes(name, text, FAILED, reason, mend, file="nodes/__init__.py")


def bad_node(name: str, body: str, words: str) -> None:
    """Add a plugin with a node that fails when it is run; the run says so, and no other run does."""

    async def use(host: Host) -> None:
        done = await run(host, f"{name}:Broken")
        assert (done.status, done.outputs) == ("error", {})
        assert words in done.nodes["node"].error.message

    nodes(name, f"@node(type='Broken')\ndef f(name: str) -> str:\n    {body}\n", STARTED, use=use)


bad_node("node-raises", "raise RuntimeError('no luck')", "RuntimeError: no luck")
bad_node("node-exits", "sys.exit(2)", "SystemExit: 2")
bad_node("node-unspeakable", "raise type('Odd', (Exception,), {'__str__': lambda self: 5})", "cannot be shown")

# --- files of its own --------------------------------------------------------------------------------


async def workflows_are_listed(host: Host) -> None:
    """The workflows of everybody else are there."""
    assert "toast" in {w.id for w in await host.services.get(WORKFLOW_MANAGER).list_workflows()}


SCRPT = json.dumps({"id": "it", "implementation": {"type": "scrpt"}})
for name, file, content, reason, mend, use in (
    ("tool-no-json", "tools/it.tool.json", "{", "is not JSON", "it.tool.json:1:2", tools_are_listed),
    ("tool-kind", "tools/it.tool.json", SCRPT, "$.implementation.type", "script", tools_are_listed),
    ("workflow-no-json", "workflows/it.json", "{", "is not JSON", "line 1", workflows_are_listed),
):
    kind = file.partition("/")[0]
    parts = {"files": {file: content}, kind: {"entry": f"./{kind}"}}
    CORPUS.code(name, "", STARTED, reason, mend, file=file, at="use", use=use, **parts)


def device(inn: BaseProject) -> None:
    root = inn.code("tool-is-device", at=inn.elsewhere / "tool-is-device", tools={"entry": "./tools"})
    (root / "tools").mkdir()
    (root / "tools" / "it.tool.json").symlink_to("/dev/zero")


NO_FILE = ("is not a regular file", "a regular file", "tools/it.tool.json")
CORPUS.add("tool-is-device", device, Says("tool-is-device", STARTED, *NO_FILE, at="use"), use=tools_are_listed)

# --- requests ----------------------------------------------------------------------------------------


def handler(name: str, web: str, reason: str) -> None:
    """Add a plugin whose route fails when it is asked: that request fails, and no other does."""

    async def use(host: Host) -> None:
        async with served(host) as site:
            answer = await site.get(f"/api/x/{name}/a")
            assert answer.status == 500, await answer.text()
            assert (await site.get("/api/x/healthy/ping")).status == 200

    routes = f"""
@hookimpl
def tavern_register_routes():
    return [RouteInfo(method='GET', path='/api/x/{name}/a', handler=f'{{__name__}}.web:answer')]
"""
    plugin = {"files": {"web.py": f"{TELLS}import sys\nfrom tavern_host import HttpResponse\n{web}"}}
    file, asked = "web.py" if HERE in web else "", ["tavern_register_routes"]
    CORPUS.code(name, routes, STARTED, reason, file=file, at="use", use=use, hooked=asked, **plugin)


ASKED = "async def answer(request, context):"
handler("route-exits", f"{ASKED}\n    sys.exit(1)  {HERE}\n", f"{ENDS} (SystemExit: 1)")
handler("route-import", f"from a_library_that_is_not_there import answer  {HERE}\n", "'a_library_that_is_not_there'")
handler("route-number", f"{ASKED}\n    return 5\n", "returned int, expected an HttpResponse")
handler("route-no-json", f"{ASKED}\n    return HttpResponse(data=float('nan'))\n", "JSON")
