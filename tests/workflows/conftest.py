"""A project to write workflow files into, and the manager that looks after them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from workflows_bench import SAMPLES, Bench

from tavern_host import Host


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Host(tmp_path / "project", plugins=[SAMPLES], trust=["acme-samples"]) as host:
        yield Bench(host)
