"""The hosts that are attacked: each is started once for all attacks on it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.scripts.attacks.hosts import HOSTS, HostProcess, Unavailable, start


class Started:
    """The hosts that were started. A host is only spoken to by its own worker, or by a test while that is idle."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostProcess | str] = {}
        self._workers: dict[str, ThreadPoolExecutor] = {}

    def host(self, name: str) -> HostProcess | str:
        """Return a host that runs, or why there is none."""
        if name not in self._hosts:
            try:
                self._hosts[name] = start(name)
            except Unavailable as error:
                self._hosts[name] = str(error)
        return self._hosts[name]

    def work_of(self, name: str) -> ThreadPoolExecutor:
        """Return what does the work on one host, one piece after the other."""
        return self._workers.setdefault(name, ThreadPoolExecutor(1, thread_name_prefix=name))

    def close(self) -> None:
        """End them."""
        for worker in self._workers.values():
            worker.shutdown(cancel_futures=True)
        for host in self._hosts.values():
            if isinstance(host, HostProcess):
                host.close()


@pytest.fixture(scope="session")
def started() -> Iterator[Started]:
    """The hosts that were started."""
    hosts = Started()
    yield hosts
    hosts.close()


@pytest.fixture(params=list(HOSTS))
def host(request: pytest.FixtureRequest, started: Started) -> HostProcess:
    """A host with a sandbox that works, and with a victim that is well."""
    found = started.work_of(request.param).submit(started.host, request.param).result()
    if isinstance(found, str):
        pytest.skip(f"{request.param}: {found}")
    found.ask("renew")
    return found
