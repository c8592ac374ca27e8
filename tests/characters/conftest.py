"""A host for the tests of characters, whose model says what a test tells it to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.agents.agent_bench import AgentBench, agent_bench


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentBench]:
    """Give one host for all tests of a file."""
    async with agent_bench(tmp_path_factory.mktemp("bench")) as made:
        yield made
