"""Interleaved measuring: a subject and its floor in turns, several rounds, the median of their ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

ROUNDS = 9
TARGET = 0.02
"""Rounds per measurement, and how many seconds one side of a round should at least take."""


@dataclass(frozen=True)
class Result:
    """One measured figure. `value` and `floor` are in `unit`; `ratio` is the median over the rounds."""

    name: str
    value: float
    unit: str
    floor: float
    floor_name: str
    ratio: float
    runs: int
    limit: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the ratio is within its limit, in words; empty where there is none."""
        if self.limit is None:
            return ""
        return f"at most {self.limit:g}: {'holds' if self.ratio <= self.limit else 'EXCEEDED'}"


@dataclass(frozen=True)
class Report:
    """All figures of one benchmark."""

    benchmark: str
    python: str
    results: list[Result]

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON-ready data."""
        return asdict(self)

    def to_text(self) -> str:
        """Return the report as a table."""
        rows = [
            (r.name, f"{r.value:.3f} {r.unit}", f"{r.floor:.3f} {r.unit}", f"{r.ratio:.3f}", r.floor_name, r.verdict)
            for r in self.results
        ]
        table = [("figure", "value", "floor", "ratio", "to", "limit"), *rows]
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
    times = 1
    while await awaited(floor, times) < TARGET:
        times *= 2
    pairs = []
    for _ in range(ROUNDS):
        ours, theirs = await awaited(subject, times), await awaited(floor, times)
        pairs.append((ours / times, theirs / times))
    return _result(name, pairs, floor_name, limit)


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
    return _result(name, pairs, floor_name, limit)


def compare(name: str, subject: Timed, floor: Timed, *, floor_name: str, limit: float | None = None) -> Result:
    """Measure a plain subject against a plain floor."""
    times = 1
    while floor(times) < TARGET:
        times *= 2
    pairs = [(subject(times) / times, floor(times) / times) for _ in range(ROUNDS)]
    return _result(name, pairs, floor_name, limit)


def compare_once(name: str, subject: Timed, floor: Timed, *, floor_name: str, limit: float | None = None) -> Result:
    """Measure something slow, one time a round (whole processes)."""
    subject(1), floor(1)
    pairs = [(subject(1), floor(1)) for _ in range(ROUNDS)]
    return _result(name, pairs, floor_name, limit, unit="ms", scale=1e3)


def _result(
    name: str,
    pairs: list[tuple[float, float]],
    floor_name: str,
    limit: float | None,
    *,
    unit: str = "µs",
    scale: float = 1e6,
) -> Result:
    return Result(
        name=name,
        value=round(statistics.median(ours for ours, _ in pairs) * scale, 4),
        unit=unit,
        floor=round(statistics.median(theirs for _, theirs in pairs) * scale, 4),
        floor_name=floor_name,
        ratio=round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
        runs=len(pairs),
        limit=limit,
    )
