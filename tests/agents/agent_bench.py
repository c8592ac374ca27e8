"""A host with an agent whose model says what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from helpers import stub_llm
from helpers.stub_llm import Model, Say, in_turn
from helpers.tavern_project import MODELS, Tavern
from helpers.waiting import until
from helpers.workflow_documents import function

from tavern_agents import State
from tavern_agents.api.agents import AgentReply, AgentRequest, AgentRun, AgentRuntime, AgentTrace
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_host import AGENT_RUNTIME, Host
from tavern_host.contracts.events import Event
from tavern_llm.api.llm import LlmResponse
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_worlds.api.scenes import SCENE_MANAGER

OTHER = {"version": "1", "schema_version": "1.0", "core_deliberation_workflow_id": "think"}


def agent(id: str, *tools: str, **more: Any) -> dict[str, Any]:
    """Return the profile of an agent with these tools."""
    return {**OTHER, "id": id, "name": id.title(), "tool_ids_inventory": [*tools], **more}


def tool(id: str, node: str = "core:UpperCase", **more: Any) -> dict[str, Any]:
    """Return a tool that is a node."""
    return {"id": id, "implementation": {"type": "node", "nodeType": node}, **more}


def thinking(system: str = "You keep the bar.\n{{{system:available_tools}}}") -> dict[str, Any]:
    """Return a deliberation that gives a model's whole answer, and takes native tools."""
    llm = {"type": "core:LlmApiRequest", "inputValues": {"system_prompt": system}}
    edges = ("in.messages > llm.messages", "llm.response > out.response")
    return function("Think", {"llm": llm}, *edges, takes={"messages": "ARRAY"}, gives={"response": "OBJECT"})


class AgentBench:
    """The host, and what its agents do."""

    def __init__(self, host: Host, project: Tavern) -> None:
        self.host = host
        self.project = project
        self.runtime: AgentRuntime = host.services.get(AGENT_RUNTIME)
        self.tools = host.services.get(TOOL_MANAGER)
        self.histories = host.services.get(CHAT_HISTORY)
        self.state = host._manager.active["tavern-agents"].context.own(State)

    def model(self, say: Say, name: str = "m") -> Model:
        """Let a model say something from now on; return it, with what it is asked."""
        model = stub_llm.MODELS[name]
        model.say, model.asked, model.gate, model.pieces, model.chunks, model.void = say, [], None, 7, 50, ""
        model.pause = 0.0
        return model

    def answers(self, *answers: LlmResponse | Exception, name: str = "m") -> Model:
        """Let a model give these answers."""
        return self.model(in_turn(*answers), name)

    async def run(self, message: str = "Go.", agent: str = "keeper", **more: Any) -> AgentReply:
        """Return how an agent's work on a message ended."""
        return await self.runtime.run(AgentRequest(profile_id=agent, message=message, **more))

    async def start(self, message: str = "Go.", agent: str = "keeper", **more: Any) -> AgentRun:
        """Return the run of an agent that begins to work on a message."""
        return await self.runtime.start(AgentRequest(profile_id=agent, message=message, **more))

    async def ended(self, run: AgentRun | str) -> AgentReply:
        """Return how a run ended, once it has."""
        async with asyncio.timeout(200):
            return await self.runtime.wait(run if isinstance(run, str) else run.id)

    async def traced(self, **more: Any) -> tuple[AgentReply, list[dict[str, Any]]]:
        """Return how an agent's work ended, and its steps as they are published."""
        events = self.host.events.subscribe("AGENT_TRACE")
        reply = await self.run(**more)
        await events.close()
        return reply, [event.payload async for event in events if isinstance(event, Event)]

    async def held(self, *answers: LlmResponse | Exception, **more: Any) -> tuple[Model, AgentRun]:
        """Start a run whose first request waits for the gate of its model; return both."""
        model = self.answers(*answers)
        model.gate = asyncio.Event()
        run = await self.start(**more)
        await until(lambda: model.asked)
        return model, run

    async def reached(self, run: AgentRun, has: Callable[[AgentRun], Any]) -> AgentRun:
        """Return how a run stands, once it is so."""

        async def find() -> AgentRun | None:
            found = await self.runtime.get_run(run.id)
            return found if has(found) else None

        reached: AgentRun = await until(find)
        return reached

    def marks(self) -> list[str]:
        """Return the words that `told:Mark` has written since the last call."""
        path = self.project.root / "marks"
        found = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    async def trace(self, run_id: str, *kinds: str) -> list[AgentTrace]:
        """Return the steps of a run, of all or of some kinds."""
        return [step for step in await self.runtime.trace(run_id) if not kinds or step.kind in kinds]

    async def waiting(self, count: int = 1) -> list[ToolTask]:
        """Return the calls that wait for a person, once there are so many; the oldest first."""

        async def find() -> list[ToolTask]:
            tasks = await self.tools.tasks(TaskFilter(statuses=[TaskStatus.AWAITING_APPROVAL]))
            return tasks[::-1] if len(tasks) >= count else []

        found: list[ToolTask] = await until(find)
        return found


@asynccontextmanager
async def agent_bench(
    folder: Path, prepare: Any = None, says: Say | None = None, **options: Any
) -> AsyncIterator[AgentBench]:
    """Give a bench on a new project; `prepare` may write more into it, and plugins into the folder `plugins` beside.
    `says` is what the model says from the beginning, when a host that serves may have resumed runs before it is given.
    """
    project = Tavern(folder / "project")
    project.write("tavern.yaml", {"settings": {MODELS: {"m": {"adapter": "told", "model": "m"}}}})
    project.write("workflows/think.json", thinking())
    if prepare is not None:
        prepare(project)
    plugin = folder / "told"
    if not plugin.exists():
        stub_llm.write_plugin(plugin)
    stub_llm.MODELS["m"] = Model(says or in_turn())
    plugins = [plugin, *folder.glob("plugins/*")]
    async with Host(project=project.root, plugins=plugins, trust=[one.name for one in plugins], **options) as host:
        yield AgentBench(host, project)


async def scenes_behind(bench: AgentBench) -> Any:
    """Return the provider of the service of scenes."""
    await bench.host.services.get(SCENE_MANAGER).list_runs()  # makes it
    return bench.host._manager.active["tavern-worlds"].providers[0].instance
