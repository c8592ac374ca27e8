"""A project with an agent in it, and what happens when the agent is run in a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.workflow_documents import function
from tavern_agents.api.agents import AgentLimits, AgentReply, AgentRequest
from tavern_host import AGENT_RUNTIME, Host
from tavern_host.contracts.events import Event

MODELS = "extensions.tavern-llm.models"

SYSTEM_PROMPT = "You keep the bar. Tools:\n{{{system:available_tools}}}"


def action(command: str, **parameters: str) -> str:
    """Return a call of a tool in action text."""
    lines = [f"{key}:「始」{value}「末」" for key, value in {"command": command, **parameters}.items()]
    return "\n".join(["<|[REQUEST_TOOL]|>", *lines, "<|[END_TOOL]|>"])


def deliberation(system_prompt: str = SYSTEM_PROMPT, **model: Any) -> dict[str, Any]:
    """Return a workflow that sends the whole conversation to a model."""
    llm = {"type": "core:LlmApiRequest", "inputValues": {"system_prompt": system_prompt, **model}}
    edges = ("in.messages > llm.messages", "llm.text > out.response")
    return function("Think", {"llm": llm}, *edges, takes={"messages": "ARRAY"}, gives={"response": "STRING"})


class Tavern:
    """A project that is being written, and what happens when its agent is run in a host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.traces: list[dict[str, Any]] = []
        self.settings: dict[str, Any] = {}
        self.write("tavern.yaml", {"settings": {MODELS: {"m": {"adapter": "scripted", "file": "replies.json"}}}})
        self.write("workflows/think.json", deliberation())
        self.write(
            "tools/shout.tool.json", {"id": "shout", "implementation": {"type": "node", "nodeType": "core:UpperCase"}}
        )
        self.write(
            "tools/hush.tool.json", {"id": "hush", "implementation": {"type": "node", "nodeType": "core:LowerCase"}}
        )
        self.profile()

    def write(self, file: str, content: Any) -> None:
        """Write a file of the project; other than texts as JSON."""
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def profile(self, **changes: Any) -> None:
        """Write the profile of the agent `keeper`."""
        profile = {
            "id": "keeper",
            "name": "The keeper",
            "version": "1.0.0",
            "schema_version": "1.0",
            "core_deliberation_workflow_id": "workflows/think.json",
            "tool_ids_inventory": ["shout"],
        }
        self.write("agents/keeper.json", {**profile, **changes})

    def replies(self, *replies: tuple[dict[str, Any], str]) -> None:
        """Write what the scripted model answers: conditions and texts."""
        self.write("replies.json", [{"when": when, "reply": reply} for when, reply in replies])

    async def run(self, message: str, **more: Any) -> AgentReply:
        """Give the agent a message in a host of its own; remember the traces."""
        async with Host(project=self.root, settings=self.settings) as host:
            return await self.run_in(host, message, **more)

    async def run_in(self, host: Host, message: str, **more: Any) -> AgentReply:
        """Give the agent a message; remember the traces."""
        if "max_steps" in more:
            more["limits"] = AgentLimits(steps=more.pop("max_steps"))
        traces = host.events.subscribe("AGENT_TRACE")
        try:
            runtime = host.services.get(AGENT_RUNTIME)
            return await runtime.run(AgentRequest(profile_id="keeper", message=message, **more))
        finally:
            await traces.close()
            self.traces = [event.payload async for event in traces if isinstance(event, Event)]

    def said(self, *kinds: str) -> list[str]:
        """Return the texts of the traces of some kinds."""
        return [trace["text"] for trace in self.traces if trace["kind"] in kinds]
