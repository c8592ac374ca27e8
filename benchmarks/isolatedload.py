"""The load of `load`, and beside it plugins in sandboxes of their own, whose processes are killed at random."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load import Load, write_project

NAMES = [f"apart-{number}" for number in range(5)]
ENDED = "plugin_ended"
"""The code of the error of what was in flight when a process was killed, and of what comes before another may start."""
_KILLS = (0.5, 2.0)
"""Between how many seconds one of the processes is killed."""
_CODE = '''"""A plugin with a route and a node, in a process of its own."""

from tavern_host import HttpRequest, HttpResponse, PluginContext, RouteInfo, hookimpl


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the route."""
    return [RouteInfo(method="GET", path="/api/x/NAME/word", handler=word)]


async def word(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a word."""
    context.log.info("asked for a word")
    return HttpResponse(data="ale")
'''
_NODES = '''"""The node."""

from tavern_host import node


@node()
async def loud(text: str) -> str:
    """Return a text in capitals."""
    return text.upper()
'''


def write_isolated(root: Path) -> None:
    """Write the project that is served, with the plugins."""
    write_project(root)
    for name in NAMES:
        manifest = {
            **{"name": name, "displayName": name, "version": "1.0.0", "nodes": {"entry": "nodes.py"}},
            **{"permissions": {"hooks": ["hook:server:routes:register"]}, "runtime": {"placement": "process"}},
        }
        folder = root / "plugins" / name
        folder.mkdir()
        (folder / "plugin.yaml").write_text(json.dumps(manifest), encoding="utf-8")
        (folder / "__init__.py").write_text(_CODE.replace("NAME", name), encoding="utf-8")
        (folder / "nodes.py").write_text(_NODES, encoding="utf-8")


@dataclass
class IsolatedLoad(Load):
    """Clients of the plugins, too, and what kills their processes. All of these run when it begins and when it ends."""

    async def work(self, seconds: float) -> None:
        """Let all of them work for so long."""
        for name in NAMES:
            status, answer, _ = await self.server.ask("POST", f"/api/plugins/{name}/grant")
            self.expect("grants", (status, answer.get("state")), (200, "started"))
            await self.reloaded(name)
        async with asyncio.TaskGroup() as group:
            for name in NAMES:
                group.create_task(self._repeated(lambda name=name: self.ask_for_word(name)))
                group.create_task(self._repeated(lambda name=name: self.run_node(name)))
            killing = group.create_task(self._repeated(self.kill))
            await super().work(seconds)
            await killing
        for name in NAMES:
            await self.reloaded(name)

    async def ask_for_word(self, name: str) -> None:
        """Call the route of a plugin."""
        status, answer, _ = await self.server.ask("GET", f"/api/x/{name}/word")
        if await self._has_ended(name, answer):
            return
        self.expect("words", (status, answer), (200, "ale"))

    async def run_node(self, name: str) -> None:
        """Run the node of a plugin."""
        word = f"ale{self.chance.randrange(1000)}"
        node = {"id": "shout", "type": f"{name}:Loud", "inputValues": {"text": word}}
        _, answer, _ = await self.server.ask("POST", "/api/prompt", {"name": word, "nodes": [node]})
        output = await self.output(answer["promptId"])
        if isinstance(output, dict):
            output = output.get("nodes", {}).get("shout", {})
            output = output.get("error") or output.get("output", {}).get("result")
        if not await self._has_ended(name, output):
            self.expect("nodes", output, word.upper())

    async def _has_ended(self, name: str, answer: Any) -> bool:
        """Return whether an error says that the process has ended; the plugin is reloaded where it is given up."""
        if not isinstance(answer, dict) or answer.get("code") != ENDED:
            return False
        self.done["ended"] += 1
        if "is not started again" in answer["message"] and not self.is_over:
            await self.reloaded(name)
        return True

    async def reloaded(self, name: str) -> None:
        """Reload a plugin and ask it something, so that its process runs."""
        status, answer, _ = await self.server.ask("POST", f"/api/plugins/{name}/reload")
        self.expect("reloads of isolated plugins", (status, answer.get("error")), (200, None))
        await self.ask_for_word(name)

    async def kill(self) -> None:
        """Kill the process of one of the plugins, if it runs."""
        await asyncio.sleep(self.chance.uniform(*_KILLS))
        _, answer, _ = await self.server.ask("GET", f"/api/plugins/{self.chance.choice(NAMES)}")
        pid = (answer.get("process") or {}).get("pid")
        if pid is not None and not self.is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.done["kills"] += 1
