"""Short ways to open hosts with tasks in a project, to ask for tasks, and to do so in other processes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from helpers.forking import PYTHON

from tavern_host import Host, PluginContext
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.executions import EXECUTION_ENGINE, RunFilter
from tavern_host.contracts.toolcalls import (
    TaskFilter,
    TaskStatus,
    ToolApproval,
    ToolCallRequest,
    ToolResult,
    ToolScope,
    ToolTask,
)
from tavern_host.contracts.tools import TOOL_MANAGER, ToolDefinition, ToolImplementation
from tavern_host.projects import Folders, find_project
from tavern_tools.catalog.catalog import Tool
from tavern_tools.tasks.tasks import Tasks

HERE = Path(__file__).parent
PLUGIN = HERE / "plugins" / "acme_tasks"
PLUGIN_NAME = "acme-tasks"
TOOL = "acme:work"
SECONDS = 60.0
RUNNING = TaskFilter(statuses=[TaskStatus.RUNNING])


def tasks_folder(root: Path) -> Path:
    """Return where the tasks of a project are kept: with the operator, not with what a project brings."""
    return Path(os.environ["TAVERN_STATE_DIR"], "projects", _project_id(root), "plugins", PLUGIN_NAME, "tasks")


def _project_id(root: Path) -> str:
    folders = Folders.of_user()
    return find_project(root, folders, create=True).project.id


def caller(who: str = "user:operator") -> CallContext:
    """Return the context of a call by somebody, such as `agent:writer`."""
    kind, _, name = who.partition(":")
    return CallContext(principal=Principal(kind=kind, id=name))  # type: ignore[arg-type]


def tool(*, idempotent: bool = False, **parameters: Any) -> Tool:
    """Return the tool that tasks call."""
    return Tool(
        ToolDefinition(
            id=TOOL,
            implementation=ToolImplementation(kind="service", service="acme", method="work"),
            parameters={"type": "object", "properties": parameters},
            is_async=True,
            idempotent=idempotent,
        )
    )


def approval(*, seconds: float = 60, default: str = "refuse") -> ToolApproval:
    """Return what a call waits for that needs a decision within so many seconds."""
    moment = datetime.now(UTC)
    return ToolApproval(
        reason="a rule says so",
        requested_at=moment,
        expires_at=moment + timedelta(seconds=seconds),
        default=default,  # type: ignore[arg-type]
    )


class TaskBench:
    """A running host with its tasks."""

    def __init__(self, host: Host, tasks: Tasks, context: PluginContext) -> None:
        self.host = host
        self.tasks = tasks
        self.context = context
        self.log = host.project.root / "log"
        self.events: list[dict[str, Any]] = []

    async def listen(self) -> None:
        """Take down what the host's events say about tasks, until it ends."""
        async for event in self.host.events.subscribe("TOOL_CALL_UPDATE", since=0):
            self.events.append(dict(event.payload))  # type: ignore[union-attr]

    async def submit(self, *, who: str = "user:operator", idempotent: bool = False, **given: Any) -> ToolTask:
        """Ask for a task; `callback` is where its end is told to, all else arguments."""
        callback = given.pop("callback", None)
        request = ToolCallRequest(tool_id=TOOL, arguments={"log": str(self.log), **given})
        scope = None if callback is None else ToolScope(callback=callback)
        return await self.tasks.submit(request, tool(idempotent=idempotent), caller(who), scope)

    async def park(
        self, *, who: str = "agent:writer", seconds: float = 60, default: str = "refuse", **given: Any
    ) -> ToolTask:
        """Ask for a task that waits for a decision."""
        request = ToolCallRequest(tool_id=TOOL, arguments={"log": str(self.log), **given})
        asked = approval(seconds=seconds, default=default)
        return await self.tasks.submit(request, tool(), caller(who), None, asked)

    async def ended(self, task: ToolTask | str) -> ToolTask:
        """Return a task when it has ended."""
        task_id = task if isinstance(task, str) else task.id
        ended = await self.tasks.get(task_id, SECONDS, caller())
        assert ended.status.is_final, ended
        return ended

    async def is_at(self, task: ToolTask | str, status: TaskStatus) -> ToolTask:
        """Return a task when it has a status."""
        task_id = task if isinstance(task, str) else task.id
        async with asyncio.timeout(SECONDS):
            while (now := await self.tasks.get(task_id, 0, caller())).status is not status:
                assert not now.status.is_final, now
                await asyncio.sleep(0.02)
        return now

    def noted(self) -> list[list[Any]]:
        """Return what calls wrote down of themselves: name, what, and the key that they were given."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def told(self, task: ToolTask | str) -> list[dict[str, Any]]:
        """Return what the events until now said about a task."""
        task_id = task if isinstance(task, str) else task.id
        return [payload for payload in self.events if payload["taskId"] == task_id]


@asynccontextmanager
async def opened(root: Path, *, serving: bool = True, **settings: Any) -> AsyncIterator[TaskBench]:
    """Open a host on a project; `settings` are the operator's for tasks."""
    root.mkdir(exist_ok=True)
    values = {f"extensions.acme-tasks.{key}": value for key, value in settings.items()}
    alone = ["tavern-tools"]  # which would take up what is left of these tasks
    async with Host(
        root, plugins=[PLUGIN], trust=["acme-tasks"], serving=serving, settings=values, without=alone
    ) as host:
        assert host.plugin("acme-tasks").state == "started", host.plugin("acme-tasks")
        module = next(m for name, m in sys.modules.items() if name.rpartition(".")[2] == "acme_tasks")
        bench = TaskBench(host, module.TASKS[-1], module.CONTEXTS[-1])
        listening = asyncio.create_task(bench.listen())
        yield bench
    await listening


class Marks:
    """A running host with tools of every kind, whose calls make marks: lines that can be counted."""

    KINDS = ("node", "nested", "workflow", "service", "script")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tools = host.services.get(TOOL_MANAGER)

    @classmethod
    def write_tools(cls, root: Path) -> None:
        """Write `mark:KIND`, and of each one that is asynchronous (`-async`), and one that may be repeated, too."""
        for folder in ("tools", "workflows", "scripts"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        slots = {
            "name": {"key": "name", "displayName": "name", "dataFlowType": "STRING"},
            "seconds": {"key": "seconds", "displayName": "seconds", "dataFlowType": "FLOAT"},
        }
        ends = [("in", "name", "mark", "name"), ("in", "seconds", "mark", "seconds"), ("mark", "result", "out", "made")]
        document = {
            "nodes": [
                {"id": "in", "type": "core:GroupInput"},
                {"id": "mark", "type": "acme-marks:Mark"},
                {"id": "out", "type": "core:GroupOutput"},
            ],
            "edges": [
                {"id": str(number), "source": a, "sourceHandle": b, "target": c, "targetHandle": d}
                for number, (a, b, c, d) in enumerate(ends)
            ],
            "interfaceInputs": slots,
            "interfaceOutputs": {"made": {"key": "made", "displayName": "made", "dataFlowType": "STRING"}},
        }
        (root / "workflows" / "mark.json").write_text(json.dumps(document))
        (root / "scripts" / "mark.py").write_text(
            "import json, os, sys, time\ngiven = json.load(sys.stdin)\n"
            "with open(f'.cache/marks{os.urandom(8).hex()}', 'w') as file:\n    file.write(given['name'])\n"
            "time.sleep(given['seconds'])\nprint('{}')\n"
        )
        implementations: dict[str, dict[str, Any]] = {
            "node": {"type": "node", "nodeType": "acme-marks:Mark"},
            "nested": {"type": "node", "nodeType": "acme-marks:Nested"},
            "workflow": {"type": "workflow", "workflowId": "mark"},
            "service": {"type": "service", "service": "acme-marks.marks", "method": "make"},
            "script": {"type": "script", "command": "python mark.py"},
        }
        parameters = {"type": "object", "properties": {"name": {"type": "string"}, "seconds": {"type": "number"}}}
        how: dict[str, dict[str, Any]] = {"": {}, "-async": {"async": True, "concurrency": 2}}
        how["-again"] = {"async": True, "idempotent": True}
        for kind in cls.KINDS:
            for suffix, more in how.items():
                written = {"id": f"mark:{kind}{suffix}", "implementation": implementations[kind], **more}
                written |= {"parameters": parameters, "securityContext": {"fileAccess": {"allowWrite": [".cache/**"]}}}
                (root / "tools" / f"{kind}{suffix}.tool.json").write_text(json.dumps(written))

    async def call(self, tool: str, name: str, seconds: float) -> ToolResult:
        """Call one of the tools."""
        return await self.tools.call(ToolCallRequest(tool_id=tool, arguments={"name": name, "seconds": seconds}))

    def made(self) -> Counter[str]:
        """Return how often each mark was made."""
        files = self.host.project.root.rglob("marks*")  # those of scripts are kept when they have ended
        return Counter(line for file in files for line in file.read_text().splitlines())

    async def until(self, made: int, running: int) -> None:
        """Wait until so many different marks were made, and so many tasks run."""
        while len(self.made()) < made or len(await self.tools.tasks(RUNNING)) < running:
            await asyncio.sleep(0.02)

    async def rested(self) -> list[ToolTask]:
        """Return all tasks, when nothing is left to be done: no task, no run."""
        engine = self.host.services.get(EXECUTION_ENGINE)
        async with asyncio.timeout(SECONDS):
            while True:
                tasks = await self.tools.tasks(TaskFilter(limit=1000))
                runs = await engine.history(RunFilter(limit=1000))
                if all(t.status.is_final for t in tasks) and all(run.status.is_final for run in runs):
                    return tasks
                await asyncio.sleep(0.1)


@asynccontextmanager
async def marking(root: Path, *, serving: bool = True) -> AsyncIterator[Marks]:
    """Open a host on a project with the tools that make marks."""
    if not root.exists():
        Marks.write_tools(root)
    plugins = [HERE / "plugins" / "acme_marks"]
    settings = {"extensions.tavern-engine.maxConcurrentRuns": 20, "extensions.tavern-tools.maxRunningTasks": 20}
    async with Host(root, plugins=plugins, trust=["acme-marks"], settings=settings, serving=serving) as host:
        assert host.plugin("acme-marks").state == "started", host.plugin("acme-marks")
        yield Marks(host)


class Child:
    """A process with a serving host on a project; `code` runs in an async function with the host's `bench`.

    It says what it has to say with `say(value)`, one line of JSON each. `opener` names what opens the host.
    """

    def __init__(
        self,
        root: Path,
        code: str,
        *,
        serving: bool = True,
        settings: dict[str, Any] | None = None,
        opener: str = "opened",
    ) -> None:
        body = "\n".join(f"        {line}" for line in code.splitlines())
        program = f"""
import asyncio, json, os, random, sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
from pathlib import Path
from task_bench import *

def say(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()

async def main():
    async with {opener}(Path({str(root)!r}), serving={serving}, **{settings or {}!r}) as bench:
        say("ready")
{body}

asyncio.run(main())
"""
        self.process = subprocess.Popen(
            [*PYTHON, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )

    async def said(self) -> Any:
        """Return the next value that it says, or None when it has ended."""
        waiting = asyncio.create_task(asyncio.to_thread(self.process.stdout.readline))
        await asyncio.wait([waiting], timeout=SECONDS)
        if not waiting.done():
            self.process.kill()
            raise TimeoutError(f"the child had not said a thing for {SECONDS:g} s")
        line = await waiting
        return json.loads(line) if line.endswith("\n") else None

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
