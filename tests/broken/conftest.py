"""An inn for broken plugins, and an end to what hangs."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from base_project import BaseProject
from helpers.held_time import HeldClock

LONG = 60.0
"""Seconds for which nobody waits for what hangs."""


@pytest.fixture(autouse=True)
async def release(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[threading.Event]:
    """Give plugins something to wait for (`sys.release`), and end their waiting with the test."""
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    event = threading.Event()
    monkeypatch.setattr(sys, "release", event, raising=False)
    yield event
    event.set()
    if left := asyncio.all_tasks() - tasks - {asyncio.current_task()}:
        await asyncio.wait(left, timeout=60)
    for thread in set(threading.enumerate()) - threads:
        if thread.daemon:
            thread.join(60)


@pytest.fixture
async def hanging(release: threading.Event, held_clock: HeldClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give plugins `sys.hang`, by which a thread hangs until the test ends: time passes, and nobody waits for it."""
    loop = asyncio.get_running_loop()

    def hang() -> None:
        loop.call_soon_threadsafe(held_clock.advance, LONG)
        release.wait()

    monkeypatch.setattr(sys, "hang", hang, raising=False)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Give back the streams that a plugin takes away; leave the tracebacks of the corpus out of the report."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    caplog.set_level(logging.CRITICAL, logger="tavern")


@pytest.fixture
def inn(tmp_path: Path, operator_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BaseProject]:
    """Return a project with a healthy plugin; what is installed into its site is forgotten afterwards."""
    opened = BaseProject(tmp_path)
    monkeypatch.syspath_prepend(opened.site)
    yield opened
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", None) or "").startswith(str(opened.site)):
            del sys.modules[name]
