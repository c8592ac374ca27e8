"""What many clients do to a server at a time: runs, tool calls, agents, sockets, plugins, settings.

Every answer is looked at: what is not as it must be is kept as an error, with the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientError, WSMsgType

from benchmarks.serving import Served

CHURN = "churn"
"""The plugin that is enabled, disabled and reloaded."""
ASKS = "asks"
"""The plugin that needs a grant."""
_ENGINE = "extensions.tavern-engine"
_MOST_ERRORS = 20
_PATIENCE = 60.0


def _slot(key: str, kind: str) -> dict[str, Any]:
    return {key: {"key": key, "displayName": key, "dataFlowType": kind}}


def _edge(number: int, ends: tuple[str, str, str, str]) -> dict[str, Any]:
    source, out, target, into = ends
    return {"id": f"e{number}", "source": source, "sourceHandle": out, "target": target, "targetHandle": into}


def workflow(word: str) -> dict[str, Any]:
    """Return a workflow that gives a word in capitals, after a moment."""
    return {
        "name": word,
        "nodes": [
            {"id": "wait", "type": "core:Wait", "inputValues": {"value": word, "seconds": 0.01}},
            {"id": "shout", "type": "core:UpperCase"},
        ],
        "edges": [_edge(0, ("wait", "value", "shout", "text"))],
    }


_THINK = {
    "name": "Think",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "llm", "type": "core:LlmApiRequest", "inputValues": {"system_prompt": "You keep the bar."}},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        _edge(0, ("in", "messages", "llm", "messages")),
        _edge(1, ("llm", "text", "out", "response")),
    ],
    "interfaceInputs": _slot("messages", "ARRAY"),
    "interfaceOutputs": _slot("response", "STRING"),
}
_KEEPER = {
    "id": "keeper",
    "name": "The keeper",
    "version": "1.0.0",
    "schema_version": "1.0",
    "core_deliberation_workflow_id": "workflows/think.json",
}
_MANIFEST = {"displayName": "A plugin", "version": "1.0.0", "apiVersion": ">=0.1,<0.2"}
_ROUTE = '''"""A plugin with a route."""

from tavern_host import HttpRequest, HttpResponse, PluginContext, RouteInfo, hookimpl


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the route."""
    return [RouteInfo(method="GET", path="/api/x/churn/word", handler=word)]


async def word(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a word."""
    return HttpResponse(data="ale")
'''
_HOOK = '''"""A plugin that sees every run."""

from tavern_host import hookimpl


@hookimpl
def tavern_before_execute(request: object) -> object:
    """Change nothing."""
    return request
'''


def write_project(root: Path) -> None:
    """Write the project that is served."""
    settings = {
        "extensions.tavern-llm.models": {"m": {"adapter": "scripted", "file": "replies.json"}},
        f"{_ENGINE}.rememberRunsMegabytes": 4,
    }
    churn = {"name": CHURN, **_MANIFEST, "permissions": {"hooks": ["hook:server:routes:register"]}}
    asks = {"name": ASKS, **_MANIFEST, "permissions": {"hooks": ["hook:server:workflow:before-execute"]}}
    for file, content in {
        "tavern.yaml": {"name": "inn", "settings": settings},
        "replies.json": [{"when": {}, "reply": "Ale it is."}],
        "workflows/think.json": _THINK,
        "workflows/shout.json": workflow("ale"),
        "agents/keeper.json": _KEEPER,
        f"plugins/{CHURN}/plugin.yaml": churn,
        f"plugins/{CHURN}/__init__.py": _ROUTE,
        f"plugins/{ASKS}/plugin.yaml": asks,
        f"plugins/{ASKS}/__init__.py": _HOOK,
    }.items():
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


@dataclass
class Load:
    """Clients of one server, until they are told to stop. `done` counts what they did, `errors` says what was wrong."""

    server: Served
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    is_over: bool = False

    async def work(self, seconds: float) -> None:
        """Let all of them work for so long."""
        status, answer, _ = await self.server.ask("POST", f"/api/plugins/{CHURN}/grant")
        self.expect("grants", (status, answer.get("state")), (200, "started"))
        kinds = (self.run, self.run, self.call, self.call, self.agent, self.listen, self.listen, self.churn, self.set)
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._repeated(kind))
            await asyncio.sleep(seconds)
            self.is_over = True

    async def _repeated(self, act: Callable[[], Awaitable[None]]) -> None:
        while not self.is_over and len(self.errors) < _MOST_ERRORS:
            try:
                await act()
            except (ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
                self.errors.append(f"{act.__name__}: {type(error).__name__}: {error}")
            await asyncio.sleep(self.chance.uniform(0, 0.02))

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Count something that was done, and say where it is not as wanted."""
        self.done[what] += 1
        if found != wanted and len(self.errors) < _MOST_ERRORS:
            self.errors.append(f"{what}: {str(found)[:400]}, expected {wanted}")

    async def run(self) -> None:
        """Run a workflow of one's own to its end."""
        word = f"ale{self.chance.randrange(50)}"
        status, answer, _ = await self.server.ask("POST", "/api/prompt", workflow(word))
        self.expect("accepted runs", (status, answer.get("error")), (200, None))
        self.expect("runs", await self.output(answer["promptId"]), word.upper())

    async def output(self, run_id: str) -> object:
        """Return the output text of a run once it has ended, or the whole run where it has no such output."""
        for _ in range(int(_PATIENCE / 0.02)):
            _, run, _ = await self.server.ask("GET", f"/api/runs/{run_id}")
            if run.get("status") not in ("queued", "running"):
                return run.get("nodes", {}).get("shout", {}).get("output", {}).get("text", run)
            await asyncio.sleep(0.02)
        return "it has not ended"

    async def call(self) -> None:
        """Call a tool."""
        body = {"toolId": "system:get_current_time", "arguments": {}}
        status, answer, _ = await self.server.ask("POST", "/api/tools/execute", body)
        self.expect("tool calls", (status, [one["status"] for one in answer.get("results", ())]), (200, ["done"]))

    async def agent(self) -> None:
        """Say something to an agent in a conversation of its own."""
        status, answer, _ = await self.server.ask("POST", "/api/agents/keeper/run", {"message": "Ale, please."})
        self.expect("agents", (status, answer.get("text")), (200, "Ale it is."))

    async def listen(self) -> None:
        """Open a socket, hear something, and leave, well or not."""
        async with self.server.session.ws_connect(f"{self.server.url}/ws") as socket:
            await socket.send_json({"type": "SUBSCRIBE", "payload": {"types": ["EXECUTION_STATUS_UPDATE"]}})
            wanted = self.chance.randrange(1, 20)
            while wanted and not self.is_over:
                with contextlib.suppress(TimeoutError):  # look whether it is over
                    self.expect("messages", (await socket.receive(timeout=1)).type, WSMsgType.TEXT)
                    wanted -= 1
            if self.chance.random() < 0.3 and (connection := socket.get_extra_info("socket")) is not None:
                connection.shutdown(2)

    async def churn(self) -> None:
        """Disable, enable and reload a plugin, and ask it something."""
        for switch in (False, True):
            status, answer, _ = await self.server.ask("PUT", f"/api/plugins/{CHURN}/state", {"enabled": switch})
            self.expect("switches", (status, answer.get("error")), (200, None))
        status, answer, _ = await self.server.ask("POST", f"/api/plugins/{CHURN}/reload")
        self.expect("reloads", (status, answer.get("error")), (200, None))
        self.expect("answers", (await self.server.ask("GET", f"/api/x/{CHURN}/word"))[:2], (200, "ale"))

    async def set(self) -> None:
        """Change a setting, and read it."""
        key, value = f"{_ENGINE}.maxConcurrentRuns", self.chance.randrange(4, 9)
        path = "/api/plugins/tavern-engine/settings"
        status, answer, _ = await self.server.ask("POST", path, {key: value})
        self.expect("settings", (status, answer.get("settings", answer).get(key)), (200, value))
        await asyncio.sleep(0.2)
