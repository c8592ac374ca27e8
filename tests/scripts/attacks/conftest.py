"""The hosts that are attacked: each is started once for all attacks on it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.scripts.attacks.attack import Observed
from tests.scripts.attacks.hosts import HOSTS, HostProcess, Unavailable, mark_of, start, wait_for_nothing


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

    def close(self) -> list[str]:
        """End them, and return what is left of all attacks."""
        for worker in self._workers.values():
            worker.shutdown(cancel_futures=True)
        left = []
        for host in self._hosts.values():
            if isinstance(host, HostProcess):
                host.close()
                left += wait_for_nothing(Observed("", "", None, None), mark_of(host.secret), seconds=30)
                left += [
                    line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(host.folder) in line
                ]
        return left


@pytest.fixture(scope="session")
def started() -> Iterator[Started]:
    """The hosts that were started."""
    hosts = Started()
    yield hosts
    assert hosts.close() == [], "after all attacks there is something left of them"


@pytest.fixture(params=list(HOSTS))
def host(request: pytest.FixtureRequest, started: Started) -> HostProcess:
    """A host with a sandbox that works, and with a victim that is well."""
    found = started.work_of(request.param).submit(started.host, request.param).result()
    if isinstance(found, str):
        pytest.skip(f"{request.param}: {found}")
    found.ask("renew")
    return found
