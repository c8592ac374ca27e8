"""Broken plugins that provide or override services, and the calls that show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broken_plugins import Corpus, Says
from inn import HEAD, HERE, Inn

from tavern_host import AGENT_RUNTIME, LLM, TOOL_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import PluginState

CORPUS = Corpus()
FAILED, STARTED = PluginState.FAILED, PluginState.STARTED
Use = Callable[[Host], Awaitable[None]]

HANDS_ON = """
import inspect
from tavern_host.contracts.services import interface_methods

def handing_on(key):
    def method(name):
        async def call(self, *args, **kwargs):
            return await getattr(self.original, name)(*args, **kwargs)
        def stream(self, *args, **kwargs):
            return getattr(self.original, name)(*args, **kwargs)
        return call if inspect.iscoroutinefunction(getattr(key.interface, name)) else stream
    return type("HandsOn", (key.interface,), {name: method(name) for name in interface_methods(key.interface)})

"""
"""A class that hands every call on to what it overrides; the plugins change one method of it."""


def override(
    key: str, body: str, *, made: str = "self.context, self.original = context, original", base: str = ""
) -> str:
    """Return the code of an override of one service; `body` is the rest of the class."""
    return f"""{HEAD}{HANDS_ON}
class Mine({base or f"handing_on({key})"}):
    def __init__(self, context, original):
        {made}
{body}
@hookimpl
def tavern_override_services():
    return [service_info({key}, Mine)]
"""


def overrides(name: str, service: str, code: str, *says: Says, use: Use | None = None) -> None:
    """Add a plugin that overrides one service."""
    permissions = {"services": {"override": [service]}}
    CORPUS.add(name, lambda inn: inn.code(name, code, permissions=permissions), *says, use=use)


def refused(name: str, code: str, reason: str, mend: str, *, file: bool = False) -> None:
    """Add a plugin whose override of the service `llm` is not admitted."""
    overrides(name, "llm", code, Says(name, FAILED, reason, mend, "__init__.py" if file else None))


# --- overrides that are none -------------------------------------------------------------------------

LLM_BASE = "LLM.interface"
LLM_METHODS = {
    "models": "    async def models(self): return []\n",
    "complete": "    async def complete(self, request, *, call=None): ...\n",
    "stream": "    def stream(self, request, *, call=None): ...\n",
}


def llm(**changed: str) -> str:
    """Return an override of `llm` with methods changed or, where empty, left out."""
    return override("LLM", "".join({**LLM_METHODS, **changed}.values()), base=LLM_BASE)


refused("override-lacks", llm(models=""), "Mine lacks the method models", "of llm")
refused("override-sync", llm(models="    def models(self): return []\n"), "Mine.models", "must be an async def")
refused(
    "override-async", llm(stream="    async def stream(self, request, *, call=None): ...\n"), "Mine.stream", "def that"
)
refused(
    "override-parameters",
    llm(complete="    async def complete(self, asked, *, call=None): ...\n"),
    "Mine.complete",
    "take the parameters request",
)
refused(
    "override-needs-more",
    llm(complete="    async def complete(self, request, more, *, call=None): ...\n"),
    "Mine.complete",
    "do without the parameters more",
)
refused(
    "override-gone",
    f"{HEAD}@hookimpl\ndef tavern_override_services():\n"
    "    return [ServiceInfo(service='llm', handler=f'{__name__}:Gone')]\n",
    "there is no handler 'tavern_plugins.override_gone:Gone'",
    "has no attribute 'Gone'",
)
refused(
    "override-function",
    f"{HEAD}def mine(context, original): ...\n@hookimpl\ndef tavern_override_services():\n"
    "    return [ServiceInfo(service='llm', handler=f'{__name__}:mine')]\n",
    "tavern_plugins.override_function:mine",
    "must be a class",
)
refused(
    "override-undeclared",
    f"{HEAD}{HANDS_ON}\nclass Mine(handing_on(TOOL_MANAGER)): ...\n@hookimpl\ndef tavern_override_services():\n"
    "    return [service_info(TOOL_MANAGER, Mine)]\n",
    "the override of toolManager is not declared",
    "add it to permissions.services.override in plugin.yaml",
)
refused(
    "override-unknown",
    f"{HEAD}class Mine: ...\n@hookimpl\ndef tavern_override_services():\n"
    "    return [ServiceInfo(service='lllm', handler=f'{__name__}:Mine')]\n",
    "lllm",
    "did you mean llm?",
)
CORPUS.add(
    "service-taken",
    lambda inn: inn.code(
        "service-taken",
        f"{HEAD}class Mine: ...\n@hookimpl\ndef tavern_register_services():\n"
        "    return [ServiceInfo(service='llm', handler=f'{__name__}:Mine')]\n",
        hooked=["tavern_register_services"],
    ),
    Says("service-taken", FAILED, "llm is provided by tavern-llm already", "override it with tavern_override_services"),
)

# --- providers that cannot be made -------------------------------------------------------------------


def unmade(name: str, made: str, reason: str, *, threads: tuple[str, ...] = ()) -> None:
    """Add a plugin whose provider cannot be constructed."""
    code = override("LLM", "", made=made)
    says = Says(name, FAILED, reason, f"tavern plugins disable {name}", "__init__.py" if HERE in made else None)
    permissions = {"services": {"override": ["llm"]}}
    CORPUS.add(name, lambda inn: inn.code(name, code, permissions=permissions), says, threads=threads)


unmade("provider-raises", f"raise RuntimeError('no')  {HERE}", "RuntimeError: no")
unmade("provider-exits", f"sys.exit(1)  {HERE}", "tried to end the program (SystemExit: 1)")
unmade("provider-hangs", "sys.release.wait(5)", "did not end within", threads=("making",))

# --- overrides that fail when they are called --------------------------------------------------------


def fails(name: str, use: Callable[[Host], Awaitable[Any]], *words: str) -> Use:
    """Return what makes a call fail with an error that holds these words."""

    async def attempt(host: Host) -> None:
        with pytest.raises(TavernError) as caught:
            await use(host)
        assert [word for word in (name, *words) if word not in caught.value.message] == []

    return attempt


overrides(
    "override-of-itself",
    "workflowManager",
    override(
        "WORKFLOW_MANAGER",
        "    async def get(self, workflow_id):\n"
        "        if workflow_id != 'round':\n"
        "            return await self.original.get(workflow_id)\n"
        "        return await self.context.services.get(WORKFLOW_MANAGER).get(workflow_id)\n",
    ),
    Says(
        "override-of-itself",
        STARTED,
        "workflowManager.get",
        "through `original`, not through context.services",
        at="use",
    ),
    use=fails(
        "override-of-itself", lambda host: host.services.get(WORKFLOW_MANAGER).get("round"), "workflowManager.get"
    ),
)
overrides(
    "override-raises",
    "agentRuntime",
    override("AGENT_RUNTIME", f"    async def get(self, profile_id):\n        1 / 0  {HERE}\n"),
    Says(
        "override-raises",
        STARTED,
        "agentRuntime.get: ZeroDivisionError",
        "`tavern plugins disable override-raises`",
        "__init__.py",
        at="use",
    ),
    use=fails(
        "override-raises", lambda host: host.services.get(AGENT_RUNTIME).get("a"), "agentRuntime.get", "ZeroDivision"
    ),
)
overrides(
    "override-exits",
    "toolManager",
    override("TOOL_MANAGER", f"    async def describe(self, tool_ids):\n        sys.exit(3)  {HERE}\n"),
    Says(
        "override-exits",
        STARTED,
        "toolManager.describe: SystemExit: 3",
        "`tavern plugins disable override-exits`",
        "__init__.py",
        at="use",
    ),
    use=fails(
        "override-exits",
        lambda host: host.services.get(TOOL_MANAGER).describe([]),
        "toolManager.describe",
        "SystemExit",
    ),
)


async def neither_is_used(host: Host) -> None:
    """Of two overrides that nobody put in order, neither is used."""
    assert await host.services.get(LLM).models() == []


def rivals(*names: str) -> None:
    """Add plugins that override the same service."""
    code = override("LLM", "    async def models(self):\n        raise RuntimeError('it is used')\n")

    def write(inn: Inn) -> None:
        for name in names:
            inn.code(name, code, permissions={"services": {"override": ["llm"]}})

    reason, mend = f"{' and '.join(names)} both override llm", "put them in order in host.yaml"
    CORPUS.add("rivals", write, *(Says(name, STARTED, reason, mend) for name in names), use=neither_is_used)


rivals("rival-a", "rival-b")

# --- providers that cannot be closed -----------------------------------------------------------------

overrides(
    "close-waits",
    "nodeManager",
    override("NODE_MANAGER", "    async def close(self):\n        await asyncio.sleep(3600)\n"),
    Says("close-waits", STARTED, "closing its instance nodeManager", "tavern plugins disable close-waits", at="stop"),
)
overrides(
    "close-raises",
    "executionEngine",
    override("EXECUTION_ENGINE", f"    async def close(self):\n        1 / 0  {HERE}\n"),
    Says(
        "close-raises",
        STARTED,
        "closing its instance executionEngine: ZeroDivisionError",
        "tavern plugins disable close-raises",
        "__init__.py",
        at="stop",
    ),
)

# --- what is published -------------------------------------------------------------------------------

INDEX = """from tavern_host import ServiceInterface, acts, reads
class Index(ServiceInterface, name="NAME.index"):
    @reads
    async def find(self, words: str) -> list[str]: ...
    @acts("NAME.index:write", "Change the index.")
    async def add(self, text: str, *, call: "CallContext | None" = None) -> None: ...
from tavern_host import CallContext
"""


def publishes(name: str, reason: str, mend: str, find: str = "", instead: str = "", **manifest: str) -> None:
    """Add a plugin that publishes a service whose interface differs from what its manifest says, or from the rules."""
    permission = {"name": f"{name}.index:write", "level": "intercept", "allows": "Change the index."}
    service = {"name": f"{name}.index", "interface": "contracts:Index", "permissions": [permission], **manifest}
    contracts = INDEX.replace("NAME", name)
    assert find in contracts
    files = {"contracts.py": contracts.replace(find, instead) if find else contracts}
    CORPUS.add(
        name,
        lambda inn: inn.code(name, HEAD, files=files, publishes={"services": [service]}),
        Says(name, FAILED, reason, mend),
    )


publishes("publish-gone", "contracts:Gone", "there is no handler", interface="contracts:Gone")
publishes("publish-none", "is not a ServiceInterface", "contracts:reads", interface="contracts:reads")
publishes("publish-sync", "find: it must be", "`async def`", "async def find", "def find")
publishes("publish-bare", "find: words has no annotation", "annotation", "words: str", "words")
publishes("publish-type", "set[str] is not a wire type", "find: words", "words: str", "words: set[str]")
publishes(
    "publish-call",
    "add: a method that acts takes",
    "call: CallContext | None = None",
    ', *, call: "CallContext | None" = None',
    "",
)
publishes("publish-other", "the permission publish-other.index:write", "not the same", "Change the index.", "Read it.")
