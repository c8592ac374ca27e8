"""The watchdog: says whose code keeps the event loop from its turn, and is silent about everything else."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers.survival import Child, say
from helpers.waiting import until

from tavern_host.contracts.plugins import Blocked, PluginState
from tavern_host.plugins.record import Record
from tavern_host.plugins.report import Problems
from tavern_operations.watchdog import Watchdog

LIMIT = 0.1

PLUGIN = """
import re
import time

def sleeps(until):
    while not until():
        time.sleep(0.01)

def spins(until):
    while not until():
        pass

def calls(function, *arguments):
    return function(*arguments)

class Node:
    async def run(self, until):
        while not until():
            time.sleep(0.01)

def never_lets_go(until):
    while not until():
        re.fullmatch("(a|aa)+b", "a" * 29)
"""
"""What a plugin may do that blocks the loop; `until` says when to stop."""


async def take_turns() -> None:
    """Keep the loop busy below the watchdog's limit, until a line is read, and say what it reports."""
    watchdog = Watchdog(lambda file: None, lambda blocked: say(blocked.function), 0.3)
    watchdog.start()
    say("ready")
    end = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    while not end.done():
        for _ in range(12):
            time.sleep(0.01)  # noqa: ASYNC251
        await asyncio.sleep(0)
    watchdog.stop()
    say("done")


@pytest.fixture
def plugin(tmp_path: Path) -> ModuleType:
    """Return the module of a plugin that blocks the loop in every way."""
    file = tmp_path / "acme" / "__init__.py"
    file.parent.mkdir()
    file.write_text(textwrap.dedent(PLUGIN))
    module = ModuleType("acme")
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Callable[[], bool]:
    """Return whether the watchdog has warned; what blocks the loop can ask."""
    caplog.set_level(logging.WARNING, "tavern.watchdog")
    return lambda: any("blocks the event loop" in message for message in caplog.messages)


def of_acme(file: str) -> str | None:
    return "acme" if f"{os.sep}acme{os.sep}" in file else None


class Watched:
    """A watchdog over the running loop, and what it reported."""

    def __init__(self, locate: Callable[[str], str | None] = of_acme, limit: float = LIMIT) -> None:
        self.reports: list[Blocked] = []
        self.threads: set[int] = set()
        self.watchdog = Watchdog(locate, self._report, limit)

    def _report(self, blocked: Blocked) -> None:
        self.reports.append(blocked)
        self.threads.add(threading.get_ident())

    async def __aenter__(self) -> Watched:
        self.watchdog.start()
        await asyncio.sleep(LIMIT / 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
        self.watchdog.stop()


# --- messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sleeps", "spins", "never_lets_go"])
async def test_the_plugin_that_blocks_the_loop_is_named(
    plugin: ModuleType, seen: Callable[[], bool], caplog: pytest.LogCaptureFixture, how: str
) -> None:
    async with Watched() as watched:
        getattr(plugin, how)(seen)
        assert watched.reports == []
        await asyncio.sleep(0)
    (blocked,) = watched.reports
    assert (blocked.plugin, blocked.function) == ("acme", how)
    assert Path(blocked.file).parent.name == "acme"
    assert PLUGIN.splitlines()[blocked.line - 1].startswith("    ")
    assert watched.threads == {threading.get_ident()}
    (warning,) = caplog.messages
    told = re.fullmatch(r"acme blocks the event loop in (\w+) \((.+):(\d+)\), for (\d+\.\d) s now", warning)
    assert told is not None and told.groups()[:3] == (how, blocked.file, str(blocked.line))
    assert blocked.seconds >= LIMIT and round(blocked.seconds, 1) >= float(told[4]) > 0


async def test_blocking_code_is_located(
    plugin: ModuleType, seen: Callable[[], bool], caplog: pytest.LogCaptureFixture
) -> None:
    async with Watched() as watched:
        await plugin.Node().run(seen)
    assert [b.function for b in watched.reports] == ["Node.run"]
    caplog.clear()
    async with Watched() as watched:
        while not seen():
            time.sleep(0.01)  # noqa: ASYNC251
    assert [(b.plugin, b.file) for b in watched.reports] == [(None, __file__)]
    assert caplog.messages[0].startswith("code that is no plugin's blocks the event loop in ")


async def test_each_blockage_is_told(plugin: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    async with Watched() as watched:
        for number in range(1, 3):
            plugin.sleeps(lambda number=number: len(caplog.records) >= number)
            await asyncio.sleep(0.01)
    assert len(watched.reports) == 2


async def test_a_blockage_ended_by_stopping_is_told(plugin: ModuleType, seen: Callable[[], bool]) -> None:
    async with Watched() as watched:
        plugin.sleeps(seen)
        watched.watchdog.stop()
        assert len(watched.reports) == 1
        await asyncio.sleep(0.01)
    assert len(watched.reports) == 1


async def test_failing_callbacks_are_logged(
    plugin: ModuleType, seen: Callable[[], bool], caplog: pytest.LogCaptureFixture
) -> None:
    def boom(*_: Any) -> Any:
        raise RuntimeError("boom")

    watchdog = Watchdog(boom, boom, LIMIT)
    watchdog.start()
    await asyncio.sleep(LIMIT / 10)
    plugin.sleeps(seen)
    await until(lambda: "what blocked the event loop could not be reported: RuntimeError: boom" in caplog.messages)
    watchdog.stop()
    assert any(text.startswith("code that is no plugin's blocks the event loop in sleeps") for text in caplog.messages)


# --- what is not told ---------------------------------------------------------------------------------


async def test_a_responsive_loop_is_left_alone(seen: Callable[[], bool]) -> None:
    async with Watched(limit=0.5) as watched:
        await asyncio.sleep(0.75)
        end = time.monotonic() + 0.75
        while time.monotonic() < end:
            await asyncio.sleep(0)
    assert watched.reports == []
    assert not seen()


async def test_a_suspended_process_is_no_false_alarm() -> None:
    async with Child(take_turns) as child:
        assert await child.said() == "ready"
        for pause in (0.17, 0.31):
            await asyncio.sleep(pause)
            child.send(signal.SIGSTOP)
            await asyncio.sleep(0.6)
            child.send(signal.SIGCONT)
        child.tell()
        assert (await child.ended(), child.errors) == (["done"], "")


def test_a_pause_between_runs_is_no_blockage(seen: Callable[[], bool]) -> None:
    watched = Watched()
    with asyncio.Runner() as runner:
        runner.run(watched.__aenter__())
        time.sleep(4 * LIMIT)
        runner.run(watched.__aexit__())
    assert watched.reports == []
    assert not seen()


# --- its life -----------------------------------------------------------------------------------------


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "watchdog"]


async def test_a_watchdog_can_be_restarted() -> None:
    watched = Watched()
    for _ in range(3):
        assert watchdogs() == []
        watched.watchdog.start()
        assert len(watchdogs()) == 1
        with pytest.raises(RuntimeError, match="started already"):
            watched.watchdog.start()
        watched.watchdog.stop()
        watched.watchdog.stop()
        for thread in watchdogs():
            thread.join()


def test_a_watchdog_needs_a_loop_and_a_limit() -> None:
    with pytest.raises(RuntimeError):
        Watched().watchdog.start()
    assert watchdogs() == []
    for limit in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="number of seconds above 0"):
            Watched(limit=limit)


def test_a_closed_loop_ends_the_watchdogs_thread() -> None:
    watched = Watched()

    async def forgetful() -> None:
        watched.watchdog.start()

    asyncio.run(forgetful())
    for thread in watchdogs():
        thread.join()
    assert watchdogs() == []
    watched.watchdog.stop()


async def test_hosts_on_different_threads_are_told_apart(plugin: ModuleType, seen: Callable[[], bool]) -> None:
    other = Watched()

    async def blocked() -> None:
        async with other:
            plugin.sleeps(seen)

    async with Watched() as mine:
        await asyncio.to_thread(lambda: asyncio.run(blocked()))
    assert [b.plugin for b in other.reports] == ["acme"]
    assert mine.reports == []
    assert other.threads != {threading.get_ident()}


def test_a_host_that_only_loads_records_no_blockage() -> None:
    records = {name: Record(name, "test", None, name) for name in ("slow", "other")}
    recorded: list[str] = []
    problems = Problems(records, lambda action, **about: recorded.append(f"{action} {about['subject']}"))
    blocked = Blocked(plugin="slow", function="check", file="slow.py", line=1, seconds=1.2)
    problems.blocked(blocked)
    assert recorded == []
    assert "check kept the whole host waiting" in str(records["slow"].problems)
    records["other"].state = PluginState.STARTED
    problems.blocked(blocked)
    assert recorded == ["plugin.blocked slow"]
