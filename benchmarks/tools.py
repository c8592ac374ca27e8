"""What a call of a tool costs, as a ratio to the function behind it, and what parsing action text costs
(docs/performance.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from benchmarks import tamtext
from benchmarks.harness import Result, Side, compare_sides
from benchmarks.toolsubject import floor, subject


def call() -> list[Result]:
    """Measure a validated, authorised and audited call of a read-only tool, and return its cost."""
    return asyncio.run(_call())


async def _call() -> list[Result]:
    async with subject() as bench:
        before = await bench.audited()
        await bench.run()
        if await bench.audited() != before + 1:
            raise AssertionError("the call is not in the audit log")
        return [
            await compare_sides(
                "call of a read-only service tool",
                Side(bench.run),
                Side(floor),
                floor_name="await fn(**four_arguments)",
                limit=250,
            )
        ]


FIGURES: dict[str, Callable[[], list[Result]]] = {"call": call, **tamtext.FIGURES}
