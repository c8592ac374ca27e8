"""A plugin of pytest: the two lanes of the tests, `-m fast` and `-m real`.

What is in a folder `real` meets the world: processes, browsers, sandboxes, installations, databases. All else is fast:
in this process, its time held (`helpers.held_time`), and stopped where it begins a process or reaches for the network.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.held_time import HeldClock, LoopPolicy
from tavern_host import clock

_PROCESSES = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"})
_HERE = ("127.", "::1", "localhost", "/", "\0")
"""How the addresses begin that a fast test may connect to."""

QUARANTINE = Path(__file__).parents[1] / "quarantine.txt"
"""Real tests that fail by chance, a line each, as `tests/x/real/test_y.py::test_z: the reason`."""
MOST_QUARANTINED = 10


class Lanes:
    """Which lane the test is in that runs now, and what it did that this lane may not do."""

    def __init__(self) -> None:
        self.policy = LoopPolicy()
        self._file: Path | None = None
        self._is_guarded = False
        self._did: list[str] = []
        asyncio.set_event_loop_policy(self.policy)
        sys.addaudithook(self._look)

    def enter(self, item: pytest.Item) -> None:
        """Prepare for a test. All tests of a file are in one lane, and share a held clock."""
        self._is_guarded = is_fast(item)
        self._did = []
        if item.path != self._file:
            self._file = item.path
            self.policy.held = HeldClock() if self._is_guarded else None
            clock.use(self.policy.held or clock.Clock())

    def leave(self) -> list[str]:
        """Return the forbidden acts of the test."""
        self._is_guarded = False
        return self._did

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_guarded:
            return
        if event in _PROCESSES:
            self._refuse(f"{event}: {arguments[0]!r}"[:200])
        elif event == "socket.bind" and threading.current_thread() is not threading.main_thread():
            self._refuse(f"serves {arguments[1]!r} on a thread, which takes time that nobody holds")
        elif (
            event == "socket.connect" and isinstance(arguments[1], tuple) and not str(arguments[1][0]).startswith(_HERE)
        ):
            self._refuse(f"connects to {arguments[1]!r}")

    def _refuse(self, what: str) -> None:
        self._did.append(what)
        if threading.current_thread() is threading.main_thread():
            pytest.fail(f"a fast test may not do this; tests of what needs it belong into a folder `real`: {what}")


_lanes = Lanes()


def is_fast(item: pytest.Item) -> bool:
    """Return whether a test is in the fast lane."""
    return not is_real(item.nodeid) and not item.config.getoption("cluster", False)


def is_real(nodeid: str) -> bool:
    """Return whether the test of this id is in the real lane."""
    return "real" in Path(nodeid.partition("::")[0]).parts


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fast: in this process, with held time (all but what is in folders `real`)")
    config.addinivalue_line("markers", "real: with processes, browsers, sandboxes, databases (folders `real`)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    quarantined = read_quarantine(QUARANTINE)
    for item in items:
        item.add_marker(pytest.mark.fast if is_fast(item) else pytest.mark.real)
        if reason := quarantined.get(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=f"in quarantine: {reason}", strict=False))


def read_quarantine(file: Path) -> dict[str, str]:
    """Return the reasons by test. Raises `UsageError` for too many, for one without a reason, for one that is fast."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
        if line.strip() and not line.startswith("#"):
            test, _, reason = line.partition(": ")
            if not reason.strip() or not is_real(test):
                raise pytest.UsageError(f"{file.name}: {line!r} needs a reason, and to be in the real lane")
            found[test] = reason.strip()
    if len(found) > MOST_QUARANTINED:
        raise pytest.UsageError(f"{file.name} holds {len(found)} tests, at most {MOST_QUARANTINED}: mend one first")
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _lanes.enter(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    try:
        return (yield)
    finally:
        if did := _lanes.leave():
            pytest.fail(f"a fast test did what needs the real lane: {', '.join(did)}", pytrace=False)


@pytest.fixture
def held_clock() -> HeldClock:
    """Return the clock that a fast test holds."""
    assert _lanes.policy.held is not None, "only fast tests hold their time"
    return _lanes.policy.held
