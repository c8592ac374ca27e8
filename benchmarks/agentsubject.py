"""A host with an agent that makes one call and replies, and the bare functions that its turn is measured against."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tavern_demo
from tavern_agents.api.agents import AgentRequest, AgentRuntime
from tavern_host import AGENT_RUNTIME, Host
from tavern_host.projects import Folders

TOOL = "system:get_current_time"
REPLY = "It is late."
GROUP = Path(tavern_demo.__file__).parent / "sample" / "workflows" / "agents" / "LLMDecisionWithTools.json"
PROMPT = "You know what time it is."
QUESTION = "How late is it?"


def _slot(key: str, kind: str) -> dict[str, Any]:
    return {key: {"key": key, "dataFlowType": kind}}


def deliberation() -> dict[str, Any]:
    """Return a workflow that asks a model, with native tools, and gives its whole answer."""
    ends = [
        ("in", "messages", "llm", "messages"),
        ("in", "tools", "llm", "tools"),
        ("llm", "response", "out", "response"),
    ]
    return {
        "name": "Think",
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "llm", "type": "core:LlmApiRequest", "inputValues": {"system_prompt": PROMPT}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"id": f"e{n}", "source": a, "sourceHandle": b, "target": c, "targetHandle": d}
            for n, (a, b, c, d) in enumerate(ends)
        ],
        "interfaceInputs": {**_slot("messages", "ARRAY"), **_slot("tools", "ARRAY")},
        "interfaceOutputs": _slot("response", "OBJECT"),
    }


TELLING = {
    "name": "Tell",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {
            "id": "llm",
            "type": "core:NodeGroup",
            "configValues": {"referencedWorkflowId": "agents/LLMDecisionWithTools"},
            "inputValues": {"model": "clock"},
        },
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {"id": "e1", "source": "in", "sourceHandle": "messages", "target": "llm", "targetHandle": "messages"},
        {"id": "e2", "source": "llm", "sourceHandle": "response", "target": "out", "targetHandle": "response"},
    ],
    "interfaceInputs": _slot("messages", "ARRAY"),
    "interfaceOutputs": _slot("response", "OBJECT"),
}
"""A deliberation that tells what a model says while it comes."""

PROFILE = {
    "id": "clerk",
    "name": "Clerk",
    "version": "1",
    "schema_version": "1.0",
    "core_deliberation_workflow_id": "think",
    "tool_ids_inventory": [TOOL],
}


SETTINGS = {
    "extensions.tavern-llm.models": {
        "desk": {"adapter": "desk"},
        "clock": {"adapter": "desk", "pieces": 20, "concurrency": 100},
    },
    "extensions.tavern-llm.defaultModel": "desk",
}


@dataclass
class Subject:
    """The runtime, and turns of its agent."""

    host: Host
    runtime: AgentRuntime
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def turn(self) -> None:
        """Let the agent work on one message in a conversation of its own."""
        await self.turn_in(f"bench-{next(self._numbers)}")

    async def turn_in(self, conversation: str) -> None:
        """Let the agent work on one message. Raises `AssertionError` where it does not do what it must."""
        request = AgentRequest(profile_id="clerk", message=QUESTION, conversation_id=conversation)
        reply = await self.runtime.run(request)
        assert reply.text == REPLY, reply
        assert [result.status for result in reply.tool_results] == ["done"], reply


@asynccontextmanager
async def subject() -> AsyncIterator[Subject]:
    """Return the subject on a host in folders of its own."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        folders = Folders(root / "config", root / "state", root / "data")
        project = root / "project"
        for name, content in {
            "tavern.yaml": {"settings": SETTINGS},
            "workflows/think.json": deliberation(),
            "workflows/tell.json": TELLING,
            "workflows/agents/LLMDecisionWithTools.json": json.loads(GROUP.read_text(encoding="utf-8")),
            "agents/clerk.json": PROFILE,
            "agents/teller.json": {**PROFILE, "id": "teller", "core_deliberation_workflow_id": "tell"},
        }.items():
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content), encoding="utf-8")
        plugin = Path(__file__).parent / "agentdesk"
        offer = {"extensions.tavern-mcp.offer": ["agent:clerk"]}
        async with Host(project, plugins=[plugin], trust=["agent-desk"], folders=folders, settings=offer) as host:
            made = Subject(host, host.services.get(AGENT_RUNTIME))
            await made.turn()  # the first one imports and makes what it needs
            yield made


async def now() -> str:
    """Do as the tool does."""
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat()


async def floor() -> None:
    """Do what a turn does without a host: a model that asks for a call, the call, a model that replies."""
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": QUESTION}]
    for answer in ({"tool_calls": [{"id": "1", "name": TOOL, "arguments": "{}"}]}, {"content": REPLY}):
        messages.append({"role": "assistant", "content": json.dumps(answer)})
        for call in answer.get("tool_calls", ()):  # type: ignore[attr-defined]
            messages.append({"role": "tool", "content": await now(), "tool_call_id": call["id"]})
    assert messages[-1]["role"] == "assistant"
