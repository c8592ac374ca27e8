"""A host with an agent whose model says what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from helpers import told_model
from helpers.tavern_project import MODELS, Tavern
from helpers.told_model import Model, Say, in_turn
from helpers.workflow_documents import slots

from tavern_host import AGENT_RUNTIME, Host
from tavern_host.contracts.agents import AgentReply, AgentRequest, AgentRuntime, AgentTrace
from tavern_host.contracts.llm import LlmRequest, LlmResponse
from tavern_host.contracts.toolcalls import TaskFilter, TaskStatus, ToolTask
from tavern_host.contracts.tools import TOOL_MANAGER


def thinking(system: str = "You keep the bar.\n{{{system:available_tools}}}") -> dict[str, Any]:
    """Return a deliberation that gives a model's whole answer, and takes native tools."""
    nodes = [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "llm", "type": "core:LlmApiRequest", "inputValues": {"system_prompt": system}},
        {"id": "out", "type": "core:GroupOutput"},
    ]
    edges = [("in", "messages", "llm", "messages"), ("llm", "response", "out", "response")]
    return {
        "name": "Think",
        "nodes": nodes,
        "edges": [
            {"id": f"e{n}", "source": a, "sourceHandle": b, "target": c, "targetHandle": d}
            for n, (a, b, c, d) in enumerate(edges)
        ],
        "interfaceInputs": slots({"messages": "ARRAY"}),
        "interfaceOutputs": slots({"response": "OBJECT"}),
    }


class AgentBench:
    """The host, and what its agents do."""

    def __init__(self, host: Host, project: Tavern) -> None:
        self.host = host
        self.project = project
        self.runtime: AgentRuntime = host.services.get(AGENT_RUNTIME)
        self.tools = host.services.get(TOOL_MANAGER)
        self.asked: list[LlmRequest] = []

    def model(self, say: Say, name: str = "m") -> Model:
        """Let a model say something from now on; return it, with what it is asked."""
        model = told_model.MODELS[name]
        model.say, model.asked, model.gate, model.pieces, model.void = say, [], None, 7, ""
        return model

    def answers(self, *answers: LlmResponse | Exception, name: str = "m") -> Model:
        """Let a model give these answers."""
        return self.model(in_turn(*answers), name)

    async def run(self, message: str = "Go.", agent: str = "keeper", **more: Any) -> AgentReply:
        """Return how an agent's work on a message ended."""
        return await self.runtime.run(AgentRequest(profile_id=agent, message=message, **more))

    async def trace(self, run_id: str, *kinds: str) -> list[AgentTrace]:
        """Return the steps of a run, of all or of some kinds."""
        return [step for step in await self.runtime.trace(run_id) if not kinds or step.kind in kinds]

    async def waiting(self, count: int = 1) -> list[ToolTask]:
        """Return the calls that wait for a person, once there are so many; the oldest first."""
        async with asyncio.timeout(60):
            while True:
                tasks = await self.tools.tasks(TaskFilter(statuses=[TaskStatus.AWAITING_APPROVAL]))
                if len(tasks) >= count:
                    return tasks[::-1]
                await asyncio.sleep(0.01)


@asynccontextmanager
async def agent_bench(folder: Path, prepare: Any = None, **options: Any) -> AsyncIterator[AgentBench]:
    """Give a bench on a new project; `prepare` may write more into it."""
    project = Tavern(folder / "project")
    project.write("tavern.yaml", {"settings": {MODELS: {"m": {"adapter": "told", "model": "m"}}}})
    project.write("workflows/think.json", thinking())
    if prepare is not None:
        prepare(project)
    plugin = folder / "told"
    if not plugin.exists():
        told_model.write_plugin(plugin)
    told_model.MODELS["m"] = Model(in_turn())
    async with Host(project=project.root, plugins=[plugin], trust=["told"], **options) as host:
        yield AgentBench(host, project)
