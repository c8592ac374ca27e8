"""Broken plugins that provide or override services, and the calls that show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broken_plugins import Corpus, Says
from inn import HEAD, HERE, Inn

from tavern_host import AGENT_RUNTIME, LLM, TOOL_MANAGER, Host
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import PluginState

CORPUS = Corpus()
FAILED, STARTED = PluginState.FAILED, PluginState.STARTED
Use = Callable[[Host], Awaitable[None]]

HANDS_ON = "from helpers.handing_on import handing_on\n"


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


refused(
    "override-async", llm(stream="    async def stream(self, request, *, call=None): ...\n"), "Mine.stream", "def that"
)
refused(
    "override-function",
    f"{HEAD}def mine(context, original): ...\n@hookimpl\ndef tavern_override_services():\n"
    "    return [ServiceInfo(service='llm', handler=f'{__name__}:mine')]\n",
    "tavern_plugins.override_function:mine",
    "must be a class",
)
refused(
    "override-unknown",
    f"{HEAD}class Mine: ...\n@hookimpl\ndef tavern_override_services():\n"
    "    return [ServiceInfo(service='lllm', handler=f'{__name__}:Mine')]\n",
    "lllm",
    "did you mean llm?",
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

CORPUS.add(
    "publish-none",
    lambda inn: inn.code(
        "publish-none",
        HEAD,
        files={"contracts.py": "from tavern_host import reads\n"},
        publishes={"services": [{"name": "publish-none.index", "interface": "contracts:reads"}]},
    ),
    Says("publish-none", FAILED, "is not a ServiceInterface", "contracts:reads"),
)
