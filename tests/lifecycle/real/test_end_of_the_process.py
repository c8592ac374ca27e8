"""A plugin that ends `tavern serve`, or keeps it from ending, is named; and the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures, repetitions
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


ALIKE = ("exit in a task", "interrupt in a callback", "pool", "default pool")
"""Ways that repeat another, with `--extended` only: the same end in the other place, a thread by another name."""


async def how_each_ends(folder: Path, ways: Mapping[str, tuple[str, str]], is_stopped: bool) -> dict[str, Any]:
    """Serve a project for each way, all of them at once; return exit codes, and the last lines on stderr."""
    projects = {}
    for how in [how for how in ways if how not in repetitions(ALIKE, ())]:
        projects[how] = folder / how.replace(" ", "-")
        assert (await asyncio.to_thread(tavern, "init", "--empty", projects[how])).code == 0
        code = f"{HEAD}    {ways[how][0]}\n"
        write_plugin(projects[how] / "plugins" / "acme", {"__init__.py": code}, **STARTS)
        granted = await asyncio.to_thread(tavern, "--project", projects[how], "plugins", "grant", "acme")
        assert granted.code == 0

    async def end(project: Path) -> tuple[int | None, str]:
        async with serving(project) as host:
            if is_stopped:
                code, err = await host.stop()
                return code, err.strip().splitlines()[-1]
            (project / "go").touch()
            async with asyncio.timeout(100):
                _, written = await host.process.communicate()
        return host.process.returncode, written.decode().strip().splitlines()[-1]

    return dict(zip(projects, await asyncio.gather(*map(end, projects.values())), strict=True))


async def test_a_plugin_that_ends_the_host_is_named(tmp_path: Path) -> None:
    with Failures() as failures:
        for how, (code, last) in (await how_each_ends(tmp_path, ENDS, False)).items():
            with failures.row(how):
                assert code == 1
                assert last.startswith("Error: ") and ENDS[how][1] in last


async def test_a_plugin_that_keeps_the_host_is_named(tmp_path: Path) -> None:
    with Failures() as failures:
        for how, (code, last) in (await how_each_ends(tmp_path, STAYS, True)).items():
            with failures.row(how):
                assert code in (0, 1)
                assert last.startswith("Error: ") and STAYS[how][1] in last
                assert "keeps the process from ending" in last
