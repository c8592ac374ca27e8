"""Short ways to open hosts with tasks in a project, and to ask for tasks."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from helpers.audit_logs import tail
from helpers.waiting import until
from helpers.workflow_documents import function

from tavern_engine.api.executions import EXECUTION_ENGINE, RunFilter
from tavern_host import Host, clock
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_host.projects import Folders, find_project
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus, ToolApproval, ToolCallRequest, ToolScope, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.catalog.catalog import Tool
from tavern_tools.tasks.tasks import Tasks

HERE = Path(__file__).parent
TOOL = "acme:work"
SECONDS = 200.0
RUNNING = TaskFilter(statuses=[TaskStatus.RUNNING])


def tasks_folder(root: Path) -> Path:
    """Return where the tasks of a project are kept: with the operator, not with what a project brings."""
    project = find_project(root, Folders.of_user(), create=True).project.id
    return Path(os.environ["TAVERN_STATE_DIR"], "projects", project, "plugins", "acme-tasks", "tasks")


def caller(who: str = "user:operator") -> CallContext:
    """Return the context of a call by somebody, such as `agent:writer`."""
    kind, _, name = who.partition(":")
    return CallContext(principal=Principal(kind=kind, id=name))  # type: ignore[arg-type]


def tool(*, idempotent: bool = False, **parameters: Any) -> Tool:
    """Return the tool that tasks call."""
    how = ToolImplementation(kind="service", service="acme", method="work")
    schema = {"type": "object", "properties": parameters}
    return Tool(ToolDefinition(id=TOOL, implementation=how, parameters=schema, is_async=True, idempotent=idempotent))


class TaskBench:
    """A running host with its tasks. `events` is what it told of tasks, `log` where calls write down what they do."""

    def __init__(self, host: Host, tasks: Tasks, events: list[dict[str, Any]], log: str = "log") -> None:
        self.host = host
        self.tasks = tasks
        self.events = events
        self.log = host.project.root / log

    def with_own_log(self, name: str) -> TaskBench:
        """Return the same host for another test."""
        return TaskBench(self.host, self.tasks, self.events, name)

    async def submit(self, *, who: str = "user:operator", what: Tool | None = None, **arguments: Any) -> ToolTask:
        """Ask for a task; `callback` is where its end is told to, `approval` what it waits for, else arguments."""
        callback, approval = arguments.pop("callback", None), arguments.pop("approval", None)
        what = what or tool(idempotent=arguments.pop("idempotent", False))
        request = ToolCallRequest(tool_id=TOOL, arguments={"log": str(self.log), **arguments})
        scope = None if callback is None else ToolScope(callback=callback)
        return await self.tasks.submit(request, what, caller(who), scope, approval)

    async def park(
        self, *, who: str = "agent:writer", seconds: float = 3600, default: str = "refuse", **arguments: Any
    ) -> ToolTask:
        """Ask for a task that waits for a decision within so many seconds."""
        begin, end = clock.now(), clock.now() + timedelta(seconds=seconds)
        asked: Any = {"reason": "a rule says so", "requested_at": begin, "expires_at": end, "default": default}
        return await self.submit(who=who, approval=ToolApproval(**asked), **arguments)

    async def decide(
        self, task: ToolTask | str, decision: str, who: str = "user:operator", comment: str = "", **more: Any
    ) -> ToolTask:
        """Decide about a waiting task, with `arguments` or as it is."""
        return await self.tasks.decide(_id(task), decision, more.get("arguments"), comment, caller(who))  # type: ignore[arg-type]

    async def get(self, task: ToolTask | str, wait: float = 0) -> ToolTask:
        return await self.tasks.get(_id(task), wait, caller())

    async def ended(self, task: ToolTask | str) -> ToolTask:
        """Return a task when it has ended."""
        ended = await self.get(task, SECONDS)
        assert ended.status.is_final, ended
        return ended

    async def is_at(self, task: ToolTask | str, status: TaskStatus) -> ToolTask:
        """Return a task when it has a status."""

        async def at_last() -> ToolTask | None:
            now = await self.get(task)
            assert now.status is status or not now.status.is_final, now
            return now if now.status is status else None

        return await until(at_last, f"the task is {status}")  # type: ignore[no-any-return]

    async def began(self, count: int = 1) -> None:
        """Wait until so many calls have written something down."""
        await until(lambda: len(self.noted()) >= count, f"{count} calls have written something down")

    def noted(self) -> list[list[Any]]:
        """Return the notes of calls about themselves: name, what, and the key of the call."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def count(self, what: str) -> Counter[str]:
        """Return how often calls wrote this down, by their names."""
        return Counter(name for name, note, _ in self.noted() if note == what)

    def told(self, task: ToolTask | str) -> list[dict[str, Any]]:
        """Return the payloads of the events until now about a task."""
        return [payload for payload in self.events if payload["taskId"] == _id(task)]

    def audited(self, *tasks: ToolTask) -> list[dict[str, Any]]:
        """Return the audit entries about decisions on these tasks, or on all."""
        self.host.audit.flush()
        entries = [entry.to_json() for entry in tail(self.host.audit.path, 10_000)]
        decisions = [entry for entry in entries if entry["action"].startswith("toolApproval.")]
        return [entry for entry in decisions if not tasks or entry["subject"] in [task.id for task in tasks]]


def _id(task: ToolTask | str) -> str:
    return task if isinstance(task, str) else task.id


@asynccontextmanager
async def opened(
    root: Path, *, serving: bool = True, folders: Folders | None = None, **settings: Any
) -> AsyncIterator[TaskBench]:
    """Open a host on a project; `settings` are the operator's for tasks."""
    root.mkdir(exist_ok=True)
    options: Any = {"settings": {f"extensions.acme-tasks.{key}": value for key, value in settings.items()}}
    options |= {"serving": serving, "folders": folders, "plugins": [HERE / "plugins" / "acme_tasks"]}
    # without the plugin that would take up what is left of these tasks
    async with Host(root, trust=["acme-tasks"], without=["tavern-tools"], **options) as host:
        assert host.plugin("acme-tasks").state == "started", host.plugin("acme-tasks")
        module: Any = host._manager.active["acme-tasks"].runtime._module
        events: list[dict[str, Any]] = []

        async def listen() -> None:
            async for event in host.events.subscribe("TOOL_CALL_UPDATE", since=0):
                events.append(dict(event.payload))  # type: ignore[union-attr]

        listening = asyncio.create_task(listen())
        yield TaskBench(host, module.TASKS[-1], events)
    await listening


class Marks:
    """A running host with tools of every kind, whose calls make marks: lines that can be counted. A call that is to
    take less than no time ends as soon as there is the file `scripts/go`."""

    KINDS = ("node", "nested", "workflow", "service", "script")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tools = host.services.get(TOOL_MANAGER)

    @classmethod
    def write_tools(cls, root: Path) -> None:
        """Write `mark:KIND`, and of each one that is asynchronous (`-async`), and one that may be repeated, too."""
        for folder in ("tools", "workflows", "scripts"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        ends = ("in.name > mark.name", "in.seconds > mark.seconds", "mark.result > out.made")
        takes = {"name": "STRING", "seconds": "FLOAT"}
        document = function("mark", {"mark": "acme-marks:Mark"}, *ends, takes=takes, gives={"made": "STRING"})
        (root / "workflows" / "mark.json").write_text(json.dumps(document))
        (root / "scripts" / "mark.py").write_text(
            "import json, os, sys, time\ngiven = json.load(sys.stdin)\n"
            "with open(f'.cache/marks{os.urandom(8).hex()}', 'w') as file:\n    file.write(given['name'])\n"
            "time.sleep(max(given['seconds'], 0))\n"
            "go = os.path.join(os.path.dirname(__file__), 'go')\n"
            "while given['seconds'] < 0 and not os.path.exists(go):\n    time.sleep(0.02)\nprint('{}')\n"
        )
        implementations: dict[str, dict[str, Any]] = {
            **{f"{kind}": {"type": "node", "nodeType": f"acme-marks:{kind.title()}"} for kind in ("nested",)},
            "node": {"type": "node", "nodeType": "acme-marks:Mark"},
            "workflow": {"type": "workflow", "workflowId": "mark"},
            "service": {"type": "service", "service": "acme-marks.marks", "method": "make"},
            "script": {"type": "script", "command": "python mark.py"},
        }
        parameters = {"type": "object", "properties": {"name": {"type": "string"}, "seconds": {"type": "number"}}}
        for kind in cls.KINDS:
            for suffix, more in {
                **{"": {}, "-async": {"async": True, "concurrency": 2}, "-again": {"async": True, "idempotent": True}}
            }.items():
                written = {"id": f"mark:{kind}{suffix}", "implementation": implementations[kind], **more}
                written |= {"parameters": parameters, "securityContext": {"fileAccess": {"allowWrite": [".cache/**"]}}}
                (root / "tools" / f"{kind}{suffix}.tool.json").write_text(json.dumps(written))

    async def call(self, tool: str, name: str, seconds: float) -> Any:
        """Call one of the tools."""
        return await self.tools.call(ToolCallRequest(tool_id=tool, arguments={"name": name, "seconds": seconds}))

    def made(self) -> Counter[str]:
        """Return how often each mark was made."""
        files = self.host.project.root.rglob("marks*")  # those of scripts are kept when they have ended
        return Counter(line for file in files for line in file.read_text().splitlines())

    async def until(self, made: int, running: int) -> None:
        """Wait until so many different marks were made, and so many tasks run."""

        async def are_there() -> bool:
            return len(self.made()) >= made and len(await self.tools.tasks(RUNNING)) >= running

        await until(are_there, f"{made} marks and {running} tasks")

    async def rested(self) -> list[ToolTask]:
        """Return all tasks, when nothing is left to be done: no task, no run."""
        engine = self.host.services.get(EXECUTION_ENGINE)

        async def at_rest() -> bool:
            tasks = await self.tools.tasks(TaskFilter(limit=1000))
            runs = await engine.history(RunFilter(limit=1000))
            return all(t.status.is_final for t in tasks) and all(run.status.is_final for run in runs)

        await until(at_rest, "all tasks and runs have ended")
        return await self.tools.tasks(TaskFilter(limit=1000))


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
