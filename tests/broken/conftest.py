"""An inn for broken plugins, short deadlines, and an end to what hangs."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from inn import WATCHDOG_LIMIT, Inn

from tavern_host.hooks import dispatch
from tavern_host.plugins import lifecycle
from tavern_host.runtime import threads
from tavern_metrics import watchdog


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long for what never ends."""
    monkeypatch.setattr(lifecycle, "IMPORT_DEADLINE", 2.0)
    monkeypatch.setattr(lifecycle, "OPEN_DEADLINE", 0.5)
    monkeypatch.setattr(lifecycle, "SHUTDOWN_DEADLINE", 0.2)
    monkeypatch.setattr(lifecycle, "DRAIN_DEADLINE", 1.0)
    monkeypatch.setattr(dispatch, "DEADLINE", 1.0)
    monkeypatch.setattr(threads, "GRACE", 0.1)
    monkeypatch.setattr(watchdog, "LIMIT", WATCHDOG_LIMIT)


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
