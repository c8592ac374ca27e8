"""What it costs to run a script in its sandbox, as ratios to programs that are started without this host
(docs/performance.md).

Times are by the clock. The least of the rounds counts, in which nothing else was in the way: both sides take turns, and
what else runs on a machine only ever adds.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from benchmarks import harness
from benchmarks.harness import Result
from benchmarks.scriptsubject import WITH_DEPENDENCIES, Subject, subject

RUNS = 30
"""How many rounds each figure is measured; fewer where the harness is told to measure once."""

CALLERS = 100
BARE = "the same interpreter, started bare"

Act = Callable[[], Awaitable[object]]


async def _cold() -> list[Result]:
    async with subject() as scripts:
        by_hand = _by_hand(scripts)
        return [
            await _least("a call of nothing", scripts.run, by_hand, "bubblewrap by hand", limit=1.25),
            await _least("the sandbox alone, of nothing", scripts.run_bare_sandbox, by_hand, "bubblewrap by hand"),
            await _least("a call of nothing", scripts.run, _bare(scripts), BARE, limit=2.5),
        ]


async def _warm() -> list[Result]:
    async with subject(warmInterpreters=1) as scripts:
        await scripts.run()
        used = 0

        async def rested() -> None:
            """Give the next interpreter the time to be there."""
            await asyncio.sleep(0.3)

        async def run() -> None:
            nonlocal used
            used += 1
            await scripts.run()

        await rested()
        result = await _least(
            "a call of nothing, from the warm pool", run, _bare(scripts), BARE, limit=0.6, before=rested
        )
        return [result]


async def _dependencies() -> list[Result]:
    async with subject() as scripts:
        with_them = scripts.of(WITH_DEPENDENCIES)
        await with_them()
        pairs = await _pairs(with_them, scripts.run)
        with_it, without = (min(side) for side in zip(*pairs, strict=True))
        name = "what built dependencies add to a call"
        added = Result(
            name=name,
            value=round((with_it - without) * 1e3, 4),
            unit="ms",
            floor=round(without * 1e3, 4),
            floor_name="a call without",
            ratio=round(with_it / without, 3),
            runs=len(pairs),
            limit=10,
            limited="value",
        )
        return [added]


async def _throughput() -> list[Result]:
    async with subject() as scripts:
        limit = asyncio.Semaphore(scripts.concurrent)
        program = scripts.program

        async def bare() -> None:
            async with limit:
                process = await asyncio.create_subprocess_exec(
                    *program,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                await process.communicate()
                assert process.returncode == 0

        async def at_once(act: Act) -> None:
            await asyncio.gather(*(act() for _ in range(CALLERS)))

        pairs = await _pairs(lambda: at_once(scripts.run), lambda: at_once(bare), runs=5)
        pairs = [(ours / CALLERS, theirs / CALLERS) for ours, theirs in pairs]
        return [_result(f"{CALLERS} calls at once, each", pairs, f"{BARE}, as many at once", limit=round(1 / 0.45, 2))]


async def _sessions() -> list[Result]:
    async with subject() as scripts:
        in_session = scripts.of("0", session="benchmark")
        await in_session()
        return [await _least("a call in a session", in_session, _bare(scripts), BARE)]


def _bare(scripts: Subject) -> Act:
    async def run() -> None:
        subprocess.run(scripts.program, stdin=subprocess.DEVNULL, capture_output=True, check=True)  # noqa: ASYNC221

    return run


def _by_hand(scripts: Subject) -> Act:
    """Return how the sandbox of the same call is made from a shell, as it were."""

    async def run() -> None:
        with scripts.filter() as number:
            subprocess.run(  # noqa: ASYNC221
                scripts.by_hand(number),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=[number],
                env={},
                check=True,
            )

    return run


async def _least(
    name: str,
    ours: Act,
    theirs: Act,
    floor_name: str,
    *,
    limit: float | None = None,
    before: Act | None = None,
) -> Result:
    return _result(name, await _pairs(ours, theirs, before=before), floor_name, limit=limit)


async def _pairs(ours: Act, theirs: Act, *, before: Act | None = None, runs: int = RUNS) -> list[tuple[float, float]]:
    pairs = []
    for number in range(-1, min(runs, RUNS) if harness.ROUNDS > 1 else 1):
        if before is not None:
            await before()
        pair = (await _seconds(ours), await _seconds(theirs))
        if number >= 0:  # the first one warms up
            pairs.append(pair)
    return pairs


async def _seconds(act: Act) -> float:
    began = time.perf_counter()
    await act()
    return time.perf_counter() - began


def _result(name: str, pairs: list[tuple[float, float]], floor_name: str, *, limit: float | None) -> Result:
    """Return the ratio of the least of both sides."""
    ours, theirs = (min(side) for side in zip(*pairs, strict=True))
    return Result(
        name=name,
        value=round(ours * 1e3, 4),
        unit="ms",
        floor=round(theirs * 1e3, 4),
        floor_name=floor_name,
        ratio=round(ours / theirs, 3),
        runs=len(pairs),
        limit=limit,
    )


def _run(measure: Callable[[], Coroutine[Any, Any, list[Result]]]) -> Callable[[], list[Result]]:
    return lambda: asyncio.run(measure())


FIGURES: dict[str, Callable[[], list[Result]]] = {
    "cold": _run(_cold),
    "warm": _run(_warm),
    "dependencies": _run(_dependencies),
    "throughput": _run(_throughput),
    "sessions": _run(_sessions),
}
