"""A host with the test plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engine_bench import PLUGINS, Bench, OpenHost

from tavern_host import Host


@pytest.fixture
def open_host(tmp_path: Path) -> OpenHost:
    """Return a function that opens a host with test plugins, all of them trusted unless told otherwise."""

    @asynccontextmanager
    async def opened(*plugins: str, settings: dict[str, Any] | None = None, trust: bool = True) -> AsyncIterator[Bench]:
        names = ["acme_nodes", *plugins]
        host = Host(
            tmp_path / "project",
            plugins=[PLUGINS / name for name in names],
            trust=[name.replace("_", "-") for name in names] if trust else [],
            settings=settings,
        )
        async with host:
            yield Bench(host)

    return opened


@pytest.fixture
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    names = ["acme_nodes", *getattr(request.module, "SHARED_PLUGINS", [])]
    plugins, trust = [PLUGINS / name for name in names], [name.replace("_", "-") for name in names]
    async with Host(tmp_path_factory.mktemp("project"), plugins=plugins, trust=trust) as host:
        yield host


@pytest.fixture
def shared(module_host: Host) -> Bench:
    """Return the bench of a module, with an empty cache of outputs; for tests that leave nothing else behind.

    The module says `pytestmark = pytest.mark.asyncio(loop_scope="module")`, and `SHARED_PLUGINS` beside acme_nodes.
    """
    bench = Bench(module_host)
    bench.forget()
    return bench
