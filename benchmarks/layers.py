"""Which rooms the work of an agent's turn is in: by the share of its CPU time that the functions of each take
themselves. What is written in C counts for who calls it."""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import tavern_host
from benchmarks.agentsubject import subject
from benchmarks.harness import Result, frozen

ROOT = Path(tavern_host.__file__).parents[1]
TURNS = 100
ROOMS = (
    ("views, hooks, deadlines, copies", ("tavern_host/services", "tavern_host/hooks", "tavern_host/runtime")),
    ("wire values and contexts", ("tavern_host/contracts", "tavern_host/context", "tavern_host/common")),
    ("event bus", ("tavern_host/events",)),
    ("audit and settings", ("tavern_host/audit", "tavern_host/settings")),
    ("stores", ("tavern_host/storage",)),
    ("the rest of the kernel", ("tavern_host",)),
    ("engine", ("plugins/tavern_engine", "plugins/tavern_workflows", "plugins/tavern_nodes")),
    ("tools and parsing", ("plugins/tavern_tools", "plugins/tavern_tam")),
    ("agents", ("plugins/tavern_agents",)),
    ("models", ("plugins/tavern_llm",)),
    ("other plugins", ("plugins",)),
)
"""The rooms, each with the folders that are in none before it."""
LIBRARIES = (("pydantic", "pydantic"), ("asyncio", "/asyncio/"), ("SQLite", "sqlite"))
_PYTHON = "the rest of Python"

_Function = tuple[str, int, str]


def layers() -> list[Result]:
    """Profile turns with one tool call in new conversations, and return the share of each room. The profiler makes
    what has many small functions look larger than it is."""
    return asyncio.run(_layers())


async def _layers() -> list[Result]:
    profile = cProfile.Profile(time.thread_time)
    async with subject() as bench:
        for _ in range(TURNS):
            await bench.turn()
        with frozen():
            profile.enable()
            for _ in range(TURNS):
                await bench.turn()
            profile.disable()
    calls, seconds = Counter[str](), defaultdict[str, float](float)
    for function, (_, count, own, _, callers) in _stats(profile).items():
        for caller, (_, times, spent, _) in callers.items() if function[0] == "~" else ():
            room = _room(caller if caller[0] != "~" else function)
            calls[room] += times
            seconds[room] += spent
        if function[0] != "~":
            calls[_room(function)] += count
            seconds[_room(function)] += own
    whole = sum(seconds.values())
    every = sum(calls.values()) / TURNS
    return [
        Result(
            f"calls in a turn: {room}", calls[room] / TURNS, "", every, "all, in shares of its time", spent / whole, 1
        )
        for room, spent in sorted(seconds.items(), key=lambda item: -item[1])
    ]


def _stats(profile: cProfile.Profile) -> dict[_Function, tuple[int, int, float, float, dict[_Function, Any]]]:
    found: Any = pstats.Stats(profile)
    return dict(found.stats)


def _room(function: _Function) -> str:
    file = function[0]
    if file.startswith(f"{ROOT}/"):
        inner = file.removeprefix(f"{ROOT}/")
        return next((name for name, folders in ROOMS if inner.startswith(folders)), _PYTHON)
    where = function[2] if file == "~" else file
    return next((name for name, part in LIBRARIES if part in where), _PYTHON)
