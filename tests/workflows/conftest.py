"""A project to write workflow files into, and the manager that looks after them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from workflows_bench import SAMPLES, Bench

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
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Host(tmp_path / "project", plugins=[SAMPLES], trust=["acme-samples"]) as host:
        yield Bench(host)
