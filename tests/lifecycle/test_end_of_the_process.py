"""A plugin that ends `tavern serve`, or keeps it from ending, is named; and the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.serve_process import serving

STARTS = {"permissions": {"hooks": ["hook:server:host:startup"]}}
HEAD = """
import asyncio, atexit, os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from tavern_host import hookimpl

GO = os.path.join(os.path.dirname(__file__), "..", "..", "go")

async def later(what):
    while not os.path.exists(GO):
        await asyncio.sleep(0.05)
    what()

def when_asked(loop, what, *arguments):
    if os.path.exists(GO):
        loop.call_soon(what, *arguments)
    else:
        loop.call_later(0.05, when_asked, loop, what, *arguments)

def stays():
    while True:
        time.sleep(60)

async def ignores():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

def leaves():
    sys.exit(0)

def interrupts():
    raise KeyboardInterrupt

def cancels():
    for task in asyncio.all_tasks():
        task.cancel()

@hookimpl
async def tavern_startup(context):
    loop = asyncio.get_running_loop()
"""

ENDS = {
    "exit in a callback": ("when_asked(loop, leaves)", "acme in leaves ("),
    "exit in a task": ("global kept; kept = asyncio.create_task(later(leaves))", "acme in leaves ("),
    "interrupt in a callback": ("when_asked(loop, interrupts)", "acme in interrupts ("),
    "interrupt in a task": ("global kept; kept = asyncio.create_task(later(interrupts))", "acme in interrupts ("),
    "stopped loop": ("when_asked(loop, loop.stop)", "acme in "),
    "cancelled tasks": ("when_asked(loop, cancels)", "acme in cancels ("),
    "closed descriptors": ("when_asked(loop, os.closerange, 3, 1000)", "its third-party plugins are: acme"),
}
STAYS = {
    "thread": ("threading.Thread(target=stays).start()", "acme in stays ("),
    "pool": ("ThreadPoolExecutor().submit(stays)", "acme in stays ("),
    "default pool": ("loop.run_in_executor(None, stays)", "acme in stays ("),
    "atexit": ("atexit.register(stays)", "acme in stays ("),
    "task": ("global kept; kept = asyncio.create_task(ignores())", "a task of acme in ignores ("),
}


ALIKE = ("exit in a task", "interrupt in a callback", "default pool")
"""Ways that repeat another: the same end in the other place, the same pool by another name."""


def extended(ways: Mapping[str, object]) -> list[Any]:
    return [pytest.param(how, marks=pytest.mark.extended) if how in ALIKE else how for how in ways]


async def project_with(folder: Path, code: str) -> Path:
    assert (await asyncio.to_thread(tavern, "init", folder)).code == 0
    write_plugin(folder / "plugins" / "acme", {"__init__.py": f"{HEAD}    {code}\n"}, **STARTS)
    assert (await asyncio.to_thread(tavern, "--project", folder, "plugins", "grant", "acme")).code == 0
    return folder


@pytest.mark.parametrize("how", extended(ENDS))
async def test_a_plugin_that_ends_the_host_is_named(tmp_path: Path, how: str) -> None:
    code, words = ENDS[how]
    async with serving(await project_with(tmp_path / "inn", code)) as host:
        (tmp_path / "inn" / "go").touch()
        async with asyncio.timeout(100):
            _, err = await host.process.communicate()
    assert host.process.returncode == 1
    last = err.decode().strip().splitlines()[-1]
    assert last.startswith("Error: ") and words in last, err.decode()


@pytest.mark.parametrize("how", extended(STAYS))
async def test_a_plugin_that_keeps_the_host_is_named(tmp_path: Path, how: str) -> None:
    code, words = STAYS[how]
    async with serving(await project_with(tmp_path / "inn", code)) as host:
        ended, err = await host.stop()
    assert ended in (0, 1)
    last = err.strip().splitlines()[-1]
    assert last.startswith("Error: ") and words in last and "keeps the process from ending" in last, err
