"""The hosts that are attacked: each is started once for all attacks on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts.real.attacks.hosts import HOSTS, HostProcess, Unavailable, mark_of, start, wait_for_nothing


@pytest.fixture(scope="session", params=list(HOSTS))
def started(request: pytest.FixtureRequest) -> Iterator[HostProcess]:
    """A host with a sandbox that works."""
    try:
        host = start(request.param)
    except Unavailable as error:
        pytest.skip(f"{request.param}: {error}")
    yield host
    host.close()
    left = wait_for_nothing(mark_of(host.secret), seconds=60)
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(host.folder) in line]
    host.free()
    assert left + mounts == [], "after all attacks there is something left of them"


@pytest.fixture
def host(started: HostProcess) -> HostProcess:
    """A host whose victim is well."""
    started.ask("renew")
    return started
