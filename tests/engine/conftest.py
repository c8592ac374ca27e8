"""A host with the test plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
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
