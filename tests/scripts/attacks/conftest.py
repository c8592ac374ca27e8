"""The hosts that are attacked: each is started once for all attacks on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripts.attacks.hosts import HOSTS, HostProcess, Unavailable, start


@pytest.fixture(scope="session")
def started() -> Iterator[dict[str, HostProcess | Unavailable]]:
    """The hosts that were started, and why others could not be."""
    hosts: dict[str, HostProcess | Unavailable] = {}
    yield hosts
    for host in hosts.values():
        if isinstance(host, HostProcess):
            host.close()


@pytest.fixture(params=list(HOSTS))
def host(request: pytest.FixtureRequest, started: dict[str, HostProcess | Unavailable]) -> HostProcess:
    """A host with a sandbox that works, and with a victim that is well."""
    name = request.param
    if name not in started:
        try:
            started[name] = start(name)
        except Unavailable as error:
            started[name] = error
    found = started[name]
    if isinstance(found, Unavailable):
        pytest.skip(f"{name}: {found}")
    found.ask("renew")
    return found
