"""Every test that opens nodes does so once as they are and once behind the boundary."""

from __future__ import annotations

import pytest
from node_runners import RunnerOf, carried, direct


@pytest.fixture(params=[direct, carried], ids=["in-process", "loopback"])
def runner_of(request: pytest.FixtureRequest) -> RunnerOf:
    found: RunnerOf = request.param
    return found
