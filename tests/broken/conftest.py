"""An inn for broken plugins, whose hanging is cut short, and an end to what hangs.

Only what hangs for ever has a short deadline here, by what the host calls it: everything else has as long as it takes
on a busy machine.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from broken_plugins import LATE
from inn import Inn
from saying import CORPUS

from tavern_host.hooks import dispatch
from tavern_host.plugins import lifecycle
from tavern_host.plugins.record import LoadedPlugin
from tavern_host.runtime import threads
from tavern_metrics.watchdog import Watchdog

SHORT, LONG = 0.1, 100.0
LATE_ONES = [says for row in CORPUS for says in row.says if says.reason.endswith(LATE)]
HANGS = {says.reason.removesuffix(LATE) for says in LATE_ONES}
HANGS_AT_CLOSING = {says.plugin for says in LATE_ONES if says.reason.startswith("closing")}


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long for what never ends, and as long as it takes for all else."""

    async def run_in_thread(function: Any, *, what: str, deadline: float | None = None) -> Any:
        return await threads.run_in_thread(function, what=what, deadline=SHORT if what in HANGS else LONG)

    async def within(deadline: float, coroutine: Any, in_flight: Any, what: str) -> Any:
        return await real_within(SHORT if what in HANGS else LONG, coroutine, in_flight, what)

    async def release(self: lifecycle.Lifecycle, loaded: LoadedPlugin) -> None:
        remove, limit = loaded.ledger.remove, SHORT if loaded.record.name in HANGS_AT_CLOSING else LONG
        loaded.ledger.remove = lambda *, deadline: remove(deadline=limit)  # type: ignore[method-assign]
        await real_release(self, loaded)

    real_within, real_release = dispatch._within, lifecycle.Lifecycle._release
    for module in (lifecycle, dispatch):
        monkeypatch.setattr(module, "run_in_thread", run_in_thread)
    monkeypatch.setattr(dispatch, "_within", within)
    monkeypatch.setattr(lifecycle.Lifecycle, "_release", release)
    monkeypatch.setattr(lifecycle, "DRAIN_DEADLINE", LONG)
    monkeypatch.setattr(threads, "GRACE", SHORT)


@pytest.fixture(autouse=True)
def blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give plugins `sys.block_until_blamed`: its caller is all that the watchdog finds blocking the loop."""
    blocked, blamed = threading.Event(), threading.Event()

    def block_until_blamed() -> None:
        blamed.clear()
        blocked.set()
        assert blamed.wait(LONG)
        blocked.clear()

    def look(self: Watchdog, seconds: float) -> None:
        if blocked.is_set():
            real_look(self, seconds)
            blamed.set()

    real_look = Watchdog._look
    monkeypatch.setattr(Watchdog, "_look", look)
    monkeypatch.setattr("tavern_metrics.watchdog.LIMIT", SHORT)
    monkeypatch.setattr(sys, "block_until_blamed", block_until_blamed, raising=False)


@pytest.fixture(autouse=True)
async def release(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Give plugins something to wait for (`sys.release`), and end their waiting with the test."""
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    event = threading.Event()
    monkeypatch.setattr(sys, "release", event, raising=False)
    yield
    event.set()
    if left := asyncio.all_tasks() - tasks - {asyncio.current_task()}:
        await asyncio.wait(left, timeout=60)
    for thread in set(threading.enumerate()) - threads:
        if thread.daemon:
            thread.join(60)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Give back the streams that a plugin takes away; leave the tracebacks of the corpus out of the report."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    caplog.set_level(logging.CRITICAL, logger="tavern")


@pytest.fixture
def inn(tmp_path: Path, operator_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inn]:
    """Return a project with a healthy plugin; what is installed into its site is forgotten afterwards."""
    opened = Inn(tmp_path)
    monkeypatch.syspath_prepend(opened.site)
    yield opened
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", None) or "").startswith(str(opened.site)):
            del sys.modules[name]
