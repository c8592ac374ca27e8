"""The project that the tests of agents work on, and the host that the tests of one file share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from helpers.tavern_project import Tavern

from tests.agents.agent_bench import AgentBench, agent_bench


@pytest.fixture
def tavern(tmp_path: Path) -> Tavern:
    """Return a project with the agent `keeper`, which may call the tool `shout`."""
    return Tavern(tmp_path / "project")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentBench]:
    """Give one host for all tests of a file, whose `prepare` writes the project and whose `OPTIONS` are the host's."""
    prepare, options = (getattr(request.module, name, None) for name in ("prepare", "OPTIONS"))
    async with agent_bench(tmp_path_factory.mktemp("bench"), prepare, **(options or {})) as made:
        yield made
