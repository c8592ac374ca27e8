"""A served host whose agents are offered to other agents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served
from tests.agents.agent_bench import AgentBench, agent, agent_bench, thinking

ASK = "system:request_user_interaction"
SETTINGS = {
    "extensions.tavern-mcp.offer": ["agent:keeper", "agent:wirtin_ü", "agent:curious", "agent:ghost"],
    "extensions.tavern-accounts.roles": {"client": ["read:/a2a*", "create:/a2a*"], "reader": ["read:/a2a*"]},
}


def prepare(project: Any) -> None:
    """Write agents; `hidden` is not offered, and there is no `ghost`."""
    project.write("agents/keeper.json", agent("keeper", "shout", description="Keeps the bar."))
    project.write("agents/second.json", agent("wirtin_ü"))
    project.write("agents/curious.json", agent("curious", ASK))
    project.write("agents/hidden.json", agent("hidden") | {"core_deliberation_workflow_id": "whole"})
    project.write("workflows/whole.json", thinking())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentBench]:
    """Give one host for all tests of a file."""
    place = tmp_path_factory.mktemp("a2a")
    folders = Folders(place / "config", place / "state", place / "data")
    async with agent_bench(place, prepare, settings=SETTINGS, serving=True, folders=folders) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(bench: AgentBench) -> AsyncIterator[HttpClient]:
    """Serve it."""
    async with served(bench.host) as client:
        yield client


def events(body: str) -> list[Any]:
    """Return the responses that a stream sent."""
    return [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]
