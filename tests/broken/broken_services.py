"""Broken plugins that provide or override services, and the calls that show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from base_project import HEAD, HERE, BaseProject
from broken_plugins import FAILED, LATE, STARTED, Corpus, Says, Use
from helpers.forwarding import overriding as written

from tavern_host import AGENT_RUNTIME, LLM, TOOL_MANAGER, Host
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.services import ServiceKey

CORPUS = Corpus()


def override(key: str, body: str, *, made: str = "self.context, self.original = context, original") -> str:
    """Return the code of an override of one service that hands its calls on; `body` is the rest of the class."""
    return written(key, f"    def __init__(self, context, original):\n        {made}\n{body}")


def overriding(service: str) -> dict[str, Any]:
    return {"services": {"override": [service]}}


# --- overrides that are none, and providers that cannot be made --------------------------------------

NOT_PLAIN = "    async def stream(self, request, *, call=None): ...\n"
IS_ASYNC = override("LLM", NOT_PLAIN)
CORPUS.code("override-async", IS_ASYNC, FAILED, "Mine.stream", "def that", permissions=overriding("llm"))
for name, made, reason in (
    ("provider-raises", f"raise RuntimeError('no')  {HERE}", "RuntimeError: no"),
    ("provider-exits", f"sys.exit(1)  {HERE}", "tried to end the program (SystemExit: 1)"),
    ("provider-hangs", "sys.hang()", f"making llm of provider-hangs{LATE}"),
):
    CORPUS.code(name, override("LLM", "", made=made), FAILED, reason, permissions=overriding("llm"))

# --- overrides that fail when they are called --------------------------------------------------------


def fails(name: str, key: ServiceKey[Any], ask: Callable[[Any], Awaitable[Any]], words: str) -> Use:
    """Return the use in which a call of a service fails with an error that names the plugin and has these words."""

    async def use(host: Host) -> None:
        with pytest.raises(TavernError) as caught:
            await ask(host.services.get(key))
        assert name in caught.value.message and words in caught.value.message

    return use


GET, DESCRIBE = "agentRuntime.get: ZeroDivisionError", "toolManager.describe: SystemExit: 3"
CORPUS.code(
    "override-raises",
    override("AGENT_RUNTIME", f"    async def get(self, profile_id):\n        1 / 0  {HERE}\n"),
    STARTED,
    GET,
    at="use",
    use=fails("override-raises", AGENT_RUNTIME, lambda agents: agents.get("a"), GET),
    permissions=overriding("agentRuntime"),
)
CORPUS.code(
    "override-exits",
    override("TOOL_MANAGER", f"    async def describe(self, tool_ids):\n        sys.exit(3)  {HERE}\n"),
    STARTED,
    DESCRIBE,
    at="use",
    use=fails("override-exits", TOOL_MANAGER, lambda tools: tools.describe([]), DESCRIBE),
    permissions=overriding("toolManager"),
)


async def neither_is_used(host: Host) -> None:
    """Of two overrides that nobody put in order, neither is used."""
    assert await host.services.get(LLM).models() == []


def rivals(inn: BaseProject) -> None:
    code = override("LLM", "    async def models(self):\n        raise RuntimeError('it is used')\n")
    for name in ("rival-a", "rival-b"):
        inn.code(name, HEAD + code, permissions=overriding("llm"))


REASON, MEND = "rival-a and rival-b both override llm", "put them in order in host.yaml"
SAID = [Says(name, STARTED, REASON, MEND) for name in ("rival-a", "rival-b")]
CORPUS.add("rivals", rivals, *SAID, use=neither_is_used)

# --- providers that cannot be closed, and what is published -------------------------------------------

for name, key, service, statement, reason in (
    ("close-waits", "NODE_MANAGER", "nodeManager", "await asyncio.sleep(3600)", f"it{LATE}"),
    ("close-raises", "EXECUTION_ENGINE", "executionEngine", f"1 / 0  {HERE}", "ZeroDivisionError"),
):
    code = override(key, f"    async def close(self):\n        {statement}\n")
    reason = f"closing its instance {service}: {reason}"
    CORPUS.code(name, code, STARTED, reason, at="stop", permissions=overriding(service))
CORPUS.code(
    "publish-none",
    "",
    FAILED,
    "is not a ServiceInterface",
    "contracts:reads",
    files={"contracts.py": "from tavern_host import reads\n"},
    publishes={"services": [{"name": "publish-none.index", "interface": "contracts:reads"}]},
)
