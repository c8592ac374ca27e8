"""Interleaved measuring: a subject and its floor in turns, several rounds, the median of their ratios."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

ROUNDS = 9
TARGET = 0.02
"""Rounds per measurement, and how many seconds one side of a round should at least take."""


@dataclass(frozen=True)
class Result:
    """One measured figure. `value` and `floor` are in `unit`; `ratio` is the median over the rounds.

    `limit` and `aim` are for the ratio, or where `limited` says so for the value itself.
    """

    name: str
    value: float
    unit: str
    floor: float
    floor_name: str
    ratio: float
    runs: int
    limit: float | None = None
    aim: float | None = None
    limited: Literal["ratio", "value"] = "ratio"

    @property
    def verdict(self) -> str:
        """Whether the figure is within its limit and has reached its aim, in words; empty where there is none."""
        found, unit = (self.ratio, "") if self.limited == "ratio" else (self.value, f" {self.unit}")
        said = []
        if self.limit is not None:
            said.append(f"at most {self.limit:g}{unit}: {'holds' if found <= self.limit else 'EXCEEDED'}")
        if self.aim is not None:
            said.append(f"aim {self.aim:g}: {'reached' if found <= self.aim else 'not reached'}")
        return ", ".join(said)


@dataclass(frozen=True)
class Report:
    """All figures of one benchmark."""

    benchmark: str
    python: str
    results: list[Result]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON-ready data."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return the report as a table in Markdown."""
        head, *rows = self._table()
        lines = [f"| {' | '.join(row)} |" for row in (head, ("---", "--:", "--:", "--:", "---", "---"), *rows)]
        return "\n".join([f"Python {self.python}.", "", *lines])

    def _table(self) -> list[tuple[str, ...]]:
        rows = [
            (r.name, f"{r.value:.3f} {r.unit}", f"{r.floor:.3f} {r.unit}", f"{r.ratio:.3f}", r.floor_name, r.verdict)
            for r in self.results
        ]
        return [("figure", "value", "floor", "ratio", "to", "limit"), *rows]

    def to_text(self) -> str:
        """Return the report as a table."""
        table = self._table()
        widths = [max(len(row[column]) for row in table) for column in range(6)]
        lines = [
            "  ".join(
                cell.rjust(width) if column in (1, 2, 3) else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        return "\n".join(
            [f"{self.benchmark}, Python {self.python}; ratios are medians of interleaved runs", "", *lines]
        )


Timed = Callable[[int], float]
"""Does its work a number of times and returns the seconds that it took."""


def sync(function: Callable[[], object]) -> Timed:
    """Return how to time a plain function."""

    def run(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            function()
        return time.perf_counter() - began

    return run


async def awaited(function: Callable[[], Awaitable[object]], times: int) -> float:
    """Await `function()` a number of times; return the seconds that it took."""
    began = time.perf_counter()
    for _ in range(times):
        await function()
    return time.perf_counter() - began


async def compare_awaited(
    name: str,
    subject: Callable[[], Awaitable[object]],
    floor: Callable[[], Awaitable[object]],
    *,
    floor_name: str,
    limit: float | None = None,
) -> Result:
    """Measure an awaited subject against an awaited floor."""
    [result] = await compare_by_clocks([name], subject, floor, [time.perf_counter], [limit], floor_name=floor_name)
    return result


async def compare_by_clocks(
    names: Sequence[str],
    subject: Callable[[], Awaitable[object]],
    floor: Callable[[], Awaitable[object]],
    clocks: Sequence[Callable[[], float]],
    limits: Sequence[float | None],
    *,
    floor_name: str,
) -> list[Result]:
    """Measure an awaited subject against an awaited floor by several clocks at once; each gives a figure of its own."""
    times = 1
    while await awaited(floor, times) < TARGET:
        times *= 2
    rounds = []
    for _ in range(ROUNDS):
        sides = []
        for side in (subject, floor):
            began = [clock() for clock in clocks]
            await awaited(side, times)
            sides.append([(clock() - start) / times for clock, start in zip(clocks, began, strict=True)])
        rounds.append(list(zip(*sides, strict=True)))
    each = zip(names, zip(*rounds, strict=True), limits, strict=True)
    return [measured(name, list(pairs), floor_name, limit) for name, pairs, limit in each]


async def compare_to_sync(
    name: str,
    subject: Callable[[], Awaitable[object]],
    floor: Callable[[], object],
    *,
    floor_name: str,
    limit: float | None = None,
) -> Result:
    """Measure an awaited subject against a plain function as the floor."""
    timed = sync(floor)
    times = 1
    while timed(times) < TARGET:
        times *= 2
    pairs = []
    for _ in range(ROUNDS):
        ours, theirs = await awaited(subject, times), timed(times)
        pairs.append((ours / times, theirs / times))
    return measured(name, pairs, floor_name, limit)


def compare(name: str, subject: Timed, floor: Timed, *, floor_name: str, limit: float | None = None) -> Result:
    """Measure a plain subject against a plain floor."""
    times = 1
    while floor(times) < TARGET:
        times *= 2
    pairs = [(subject(times) / times, floor(times) / times) for _ in range(ROUNDS)]
    return measured(name, pairs, floor_name, limit)


def compare_once(name: str, subject: Timed, floor: Timed, *, floor_name: str, limit: float | None = None) -> Result:
    """Measure something slow, one time a round (whole processes)."""
    subject(1), floor(1)
    pairs = [(subject(1), floor(1)) for _ in range(ROUNDS)]
    return measured(name, pairs, floor_name, limit, unit="ms", scale=1e3)


@dataclass(frozen=True)
class Side:
    """One side of a comparison. Only `run` is timed; `prepare` is called before each run, `units` says how many nodes
    or items one run is for."""

    run: Callable[[], Awaitable[object]]
    units: int = 1
    prepare: Callable[[], object] | None = None

    async def seconds(self, times: int, clock: Callable[[], float]) -> float:
        """Run a number of times; return the seconds that one unit took."""
        spent, run = 0.0, self.run
        if self.prepare is None:  # a look at the clock for each run would be half the cost of the shortest
            began = clock()
            for _ in range(times):
                await run()
            spent = clock() - began
        else:
            for _ in range(times):
                self.prepare()
                began = clock()
                await run()
                spent += clock() - began
        return spent / (times * self.units)


async def compare_sides(
    name: str,
    subject: Side,
    floor: Side,
    *,
    floor_name: str,
    clock: Callable[[], float] = time.process_time,
    rounds: int | None = None,
    limit: float | None = None,
    aim: float | None = None,
) -> Result:
    """Measure a subject against a floor, by the CPU time of the process unless told otherwise.

    What exists beforehand is kept from the garbage collector, as `tavern serve` does after its start. It is emptied
    before each side of a round and stays on for both, so that each pays for what it allocates.
    """
    pairs = []
    with frozen():
        times = [await _times(side, clock) for side in (subject, floor)]
        for _ in range(rounds or ROUNDS):
            spent = []
            for side, count in zip((subject, floor), times, strict=True):
                gc.collect()
                spent.append(await side.seconds(count, clock))
            pairs.append((spent[0], spent[1]))
    return measured(name, pairs, floor_name, limit, aim=aim)


async def _times(side: Side, clock: Callable[[], float]) -> int:
    """Return how many runs take the target time; they warm the side up, too."""
    times = 1
    while await side.seconds(times, clock) * times * side.units < TARGET:
        times *= 2
    return times


@contextmanager
def frozen() -> Iterator[None]:
    """Keep what exists from the garbage collector while the block runs."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def measured(
    name: str,
    pairs: list[tuple[float, float]],
    floor_name: str,
    limit: float | None = None,
    *,
    unit: str = "µs",
    scale: float = 1e6,
    aim: float | None = None,
    limited: Literal["ratio", "value"] = "ratio",
) -> Result:
    """Return the figure for rounds of `(value, floor)`; `scale` brings both to the unit."""
    return Result(
        name=name,
        value=round(statistics.median(ours for ours, _ in pairs) * scale, 4),
        unit=unit,
        floor=round(statistics.median(theirs for _, theirs in pairs) * scale, 4),
        floor_name=floor_name,
        ratio=round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
        runs=len(pairs),
        limit=limit,
        aim=aim,
        limited=limited,
    )


async def longest_hold(
    work: Callable[[], Awaitable[object]],
    *,
    clock: Callable[[], float] = time.thread_time,
    collecting: bool = False,
) -> float:
    """Return the most CPU seconds between two turns of another task of the loop: of the loop's thread, or by
    `time.process_time` of all threads. Garbage is collected meanwhile only with `collecting`."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        last = clock()
        while True:
            await asyncio.sleep(0)
            now = clock()
            longest, last = max(longest, now - last), now

    gc.collect()
    if not collecting:
        gc.disable()
    ticker = asyncio.create_task(tick())
    try:
        await asyncio.sleep(0)
        result = await work()  # freeing it is not measured
        await asyncio.sleep(0)
    finally:
        gc.enable()
        ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticker
    del result
    return longest
