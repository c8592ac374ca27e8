"""A server under mixed load for minutes: no error that was not provoked, memory that stays, nothing that is left.

`isolated` is the same with plugins in sandboxes of their own, whose processes are killed meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Result
from benchmarks.isolatedload import IsolatedLoad, write_isolated
from benchmarks.load import Load, write_project
from benchmarks.serving import Served, server_of
from tavern_scripts.sandbox.watch import tree

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
SEED = 20_261_123
GROWTH = 0.05
"""By which part memory may grow over the last half."""
_WARM = 3.0
_SAMPLE = 0.5
_QUIET = 60.0
_POOL = 8
"""How many threads more there may be: pools begin them when they are needed, and keep them."""


@dataclass
class Soaked:
    """What became of a server. `memory` is in bytes, a sample every half second, as `descriptors` and `processes` are;
    `left` says what it still holds once the clients are gone."""

    done: Counter[str]
    errors: list[str]
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """By which part memory grew over the last half."""
        return growth(self.memory)


def growth(samples: list[int]) -> float:
    """Return by which part samples grew over their last half: their end against their middle, a tenth of all each."""
    count, tenth = len(samples), max(1, len(samples) // 10)
    middle = statistics.median(samples[count // 2 : count // 2 + tenth])
    return statistics.median(samples[-tenth:]) / middle - 1


async def soak(seconds: float, seed: int, place: Path, kind: type[Load] = Load) -> Soaked:
    """Load a server for so long."""
    (write_isolated if kind is IsolatedLoad else write_project)(place / "project")
    async with server_of(place) as server:
        warming = kind(server, random.Random(seed))
        await warming.work(min(_WARM, seconds))
        before = await _held(server) + Counter(threads=_POOL)
        load = kind(server, random.Random(seed + 1), errors=warming.errors)
        soaked = Soaked(load.done, load.errors)
        async with asyncio.TaskGroup() as group:
            sampling = group.create_task(_sample(server, soaked))
            await load.work(seconds)
            sampling.cancel()
        soaked.left = await _left(server, before)
    return soaked


async def _sample(server: Served, soaked: Soaked) -> None:
    while True:
        soaked.memory.append(await asyncio.to_thread(server.memory))
        soaked.descriptors.append(len(server.descriptors()))
        soaked.processes.append(len(tree(server.process.pid)))
        await asyncio.sleep(_SAMPLE)


async def _held(server: Served) -> Counter[str]:
    """Return how much the server holds of each kind of thing. Databases have pools of connections, which fill."""
    files = [link for link in server.descriptors() if ".sqlite3" not in link]
    kinds = Counter(link.partition(":")[0] if ":[" in link else link for link in files)
    async with server.session.get(f"{server.url}/api/figures", headers={"Connection": "close"}) as answer:
        figures = {one["name"]: one["value"] for one in await answer.json()}
    held = {
        "threads": server.threads(),
        "tasks": int(figures["tavern_tasks"]),
        "processes": len(tree(server.process.pid)),
    }
    return kinds + Counter(held)


async def _left(server: Served, before: Counter[str]) -> list[str]:
    """Return the kinds of things of which the server holds more than before, with counts, after time to clean up."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _QUIET
    while True:
        more = await _held(server) - before
        if not more or loop.time() > until:
            return [f"{count} {what} more than before" for what, count in more.items()]
        await asyncio.sleep(_SAMPLE)


def _held_over(name: str, counts: list[int]) -> Result:
    """Return how many there were at the end, a tenth of the samples, against the beginning."""
    tenth = max(1, len(counts) // 10)
    begin, end = statistics.median(counts[:tenth]), statistics.median(counts[-tenth:])
    return Result(f"growth of {name}", growth(counts), "", 0, "", end / begin, 1, GROWTH, limited="value")


def mixed(kind: type[Load] = Load) -> list[Result]:
    """Run a server under mixed load, and return its errors, the growth of its memory and the things that were left."""
    with tempfile.TemporaryDirectory() as place:
        soaked = asyncio.run(soak(SECONDS, SEED, Path(place), kind))
    print(dict(soaked.done), file=sys.stderr)
    for sentence in (*soaked.errors, *soaked.left):
        print(sentence, file=sys.stderr)
    acts, name = sum(soaked.done.values()), f"of {SECONDS:g} s"
    kinds = (("descriptors", soaked.descriptors), ("processes", soaked.processes))
    floor = statistics.median(soaked.memory[: max(1, len(soaked.memory) // 10)]) / 2**20
    end = soaked.memory[-1] / 2**20
    return [
        Result(f"errors {name}", len(soaked.errors), "errors", acts, "answers", 0, 1, 0, limited="value"),
        Result(f"growth of memory over the last half {name}", soaked.growth, "", 0, "", 0, 1, GROWTH, limited="value"),
        Result(f"memory at the end {name}", end, "MiB", floor, "at the beginning", end / floor, 1),
        Result(f"kinds of things left {name}", len(soaked.left), "kinds", 0, "", 0, 1, 0, limited="value"),
        *(_held_over(f"{what} {name}", counts) for what, counts in kinds),
    ]


FIGURES = {"mixed": mixed, "isolated": lambda: mixed(IsolatedLoad)}
