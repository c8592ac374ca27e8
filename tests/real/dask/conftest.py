"""A host whose nodes run on a Dask cluster that all tests of this process share."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers.dask_cluster import FOLDERS, TRUST, TestCluster, shared_cluster

from tavern_host import Host

sys.path.append(str(Path(__file__).parents[2] / "engine"))  # for `engine_bench`


@pytest.fixture
def cluster() -> TestCluster:
    return shared_cluster()


@pytest.fixture
async def host(cluster: TestCluster, tmp_path: Path) -> AsyncIterator[Host]:
    async with Host(tmp_path / "project", plugins=FOLDERS, trust=TRUST, settings=cluster.settings) as opened:
        yield opened
