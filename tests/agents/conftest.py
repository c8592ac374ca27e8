"""The project that the tests of agents work on, the host that the tests of one file share, and where plugins run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from helpers.tavern_project import Tavern

from tests.agents.agent_bench import AgentBench, agent_bench


@pytest.fixture(scope="module", autouse=True)
def placement(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let plugins run in loopback for files `…_in_loopback.py`."""
    with pytest.MonkeyPatch.context() as environment:
        if request.module.__name__.endswith("_in_loopback"):
            environment.setenv("TAVERN_PLACEMENT", "loopback")
        yield


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


@pytest.fixture(autouse=True)
def no_marks(request: pytest.FixtureRequest) -> None:
    """Begin each test on a shared host without marks of another."""
    if "bench" in request.fixturenames:
        request.getfixturevalue("bench").marks()
