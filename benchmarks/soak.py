"""A server under mixed load for minutes: no error that was not provoked, memory that stays, nothing that is left."""

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
from benchmarks.load import Load, write_project
from benchmarks.serving import Served, server_of

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
    """What became of a server. `memory` is in bytes, a sample every half second; `left` says what it still holds once
    the clients are gone."""

    done: Counter[str]
    errors: list[str]
    memory: list[int] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """By which part memory grew over the last half: its end against its middle, a tenth of the samples each."""
        count, tenth = len(self.memory), max(1, len(self.memory) // 10)
        middle = statistics.median(self.memory[count // 2 : count // 2 + tenth])
        return statistics.median(self.memory[-tenth:]) / middle - 1


async def soak(seconds: float, seed: int, place: Path) -> Soaked:
    """Load a server for so long."""
    write_project(place / "project")
    async with server_of(place) as server:
        warming = Load(server, random.Random(seed))
        await warming.work(min(_WARM, seconds))
        before = await _held(server) + Counter(threads=_POOL)
        load = Load(server, random.Random(seed + 1), errors=warming.errors)
        soaked = Soaked(load.done, load.errors)
        sampling = asyncio.create_task(_sample(server, soaked.memory))
        try:
            await load.work(seconds)
        finally:
            sampling.cancel()
        soaked.left = await _left(server, before)
    return soaked


async def _sample(server: Served, memory: list[int]) -> None:
    while True:
        memory.append(await asyncio.to_thread(server.memory))
        await asyncio.sleep(_SAMPLE)


async def _held(server: Served) -> Counter[str]:
    """Return how much the server holds of each kind of thing. Databases have pools of connections, which fill."""
    files = [link for link in server.descriptors() if ".sqlite3" not in link]
    kinds = Counter(link.partition(":")[0] if ":[" in link else link for link in files)
    async with server.session.get(f"{server.url}/api/figures", headers={"Connection": "close"}) as answer:
        figures = {one["name"]: one["value"] for one in await answer.json()}
    return kinds + Counter(threads=server.threads(), tasks=int(figures["tavern_tasks"]))


async def _left(server: Served, before: Counter[str]) -> list[str]:
    """Return the kinds of things of which the server holds more than before, with counts, after time to clean up."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _QUIET
    while True:
        more = await _held(server) - before
        if not more or loop.time() > until:
            return [f"{count} {what} more than before" for what, count in more.items()]
        await asyncio.sleep(_SAMPLE)


def mixed() -> list[Result]:
    """Run a server under mixed load, and return its errors, the growth of its memory and the things that were left."""
    with tempfile.TemporaryDirectory() as place:
        soaked = asyncio.run(soak(SECONDS, SEED, Path(place)))
    for sentence in (*soaked.errors, *soaked.left):
        print(sentence, file=sys.stderr)
    acts, name = sum(soaked.done.values()), f"of {SECONDS:g} s"
    floor = statistics.median(soaked.memory[: max(1, len(soaked.memory) // 10)]) / 2**20
    end = soaked.memory[-1] / 2**20
    return [
        Result(f"errors {name}", len(soaked.errors), "errors", acts, "answers", 0, 1, 0, limited="value"),
        Result(f"growth of memory over the last half {name}", soaked.growth, "", 0, "", 0, 1, GROWTH, limited="value"),
        Result(f"memory at the end {name}", end, "MiB", floor, "at the beginning", end / floor, 1),
        Result(f"kinds of things left {name}", len(soaked.left), "kinds", 0, "", 0, 1, 0, limited="value"),
    ]


FIGURES = {"mixed": mixed}
