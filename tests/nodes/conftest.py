"""What runs single nodes in these tests; see `node_bench`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from node_bench import HostedNodes, Nodes

from tavern_host import Host


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[HostedNodes]:
    async with Host(project=tmp_path / "project") as host:
        yield HostedNodes(host, tmp_path / "project" / "files")
