"""A host with the test plugins."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, OpenHost

from tavern_host import Host


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """Undo what `tavern`, run in this process by a test, does to the log."""
    logger = logging.getLogger("tavern")
    before = logger.propagate, logger.handlers, logger.level
    logger.propagate, logger.handlers = True, []
    logger.setLevel(logging.NOTSET)
    yield
    logger.propagate, logger.handlers = before[:2]
    logger.setLevel(before[2])


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
