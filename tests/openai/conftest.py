"""A served host whose agents, workflows and models are offered to clients of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.workflow_documents import function

from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served
from tests.agents.agent_bench import AgentBench, agent, agent_bench, thinking

OFFER = [
    "agent:keeper",
    "agent:slow",
    "agent:ghost*",
    "workflow:ghost*",
    "model:ghost*",
    "workflow:shouted",
    "workflow:counted",
    "model:m",
]
LOUD = ("in.message > up.text", "up.text > out.response")
THINK = ("in.messages > llm.messages", "llm.chunks > parse.chunks", "parse.response > out.response")
SETTINGS = {
    "extensions.tavern-mcp.offer": OFFER,
    "extensions.tavern-accounts.roles": {"client": ["create:/v1*"], "reader": ["read:/v1*"]},
    "extensions.tavern-llm.budgets": {"user:thrifty": 1},
}


def prepare(project: Any) -> None:
    """Write an agent and two workflows; the agent `hidden` is not offered."""
    project.write("agents/keeper.json", agent("keeper", "shout"))
    project.write("agents/hidden.json", agent("hidden"))
    project.write("agents/slow.json", agent("slow", "shout") | {"core_deliberation_workflow_id": "whole"})
    project.write("workflows/whole.json", thinking())
    loud = function("Loud", {"up": "core:UpperCase"}, *LOUD, takes={"message": "STRING"}, gives={"response": "STRING"})
    project.write("workflows/shouted.json", loud)
    counts = {"list": {"type": "core:ListToStream", "inputValues": {"items": ["one ", "two ", "three"]}}}
    counted = function(
        "Counted", counts, "list.stream > out.text", takes={"message": "STRING"}, gives={"text": "STRING"}
    )
    counted["interfaceOutputs"]["text"]["isStream"] = True
    project.write("workflows/counted.json", counted)
    heard = {"llm": "core:LlmApiRequest", "parse": "core:ParseLlmDecision"}
    think = function("Think", heard, *THINK, takes={"messages": "ARRAY"}, gives={"response": "OBJECT"})
    project.write("workflows/think.json", think)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentBench]:
    """Give one host for all tests of a file."""
    place = tmp_path_factory.mktemp("openai")
    folders = Folders(place / "config", place / "state", place / "data")
    async with agent_bench(place, prepare, settings=SETTINGS, serving=True, folders=folders) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(bench: AgentBench) -> AsyncIterator[HttpClient]:
    """Serve it."""
    async with served(bench.host) as client:
        yield client


def events(body: str) -> list[Any]:
    """Return what a stream sent: JSON, and its last word."""
    data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]
