"""What a turn of an agent costs apart from its model, whether that grows with the conversation, and how soon a piece of
an answer is an event (docs/performance.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.agentsubject import floor, subject
from benchmarks.harness import Result, Side, compare_sides, measured

TURNS = 200
STREAMS = 50
PIECES = 100


def turn() -> list[Result]:
    """Return what a turn with one call costs; it is stored, step by step, in SQLite (WAL, NORMAL)."""
    return asyncio.run(_turn())


async def _turn() -> list[Result]:
    async with subject() as bench:
        return [
            await compare_sides(
                "turn with one tool call, stored",
                Side(bench.turn),
                Side(floor),
                floor_name="the model's and the tool's functions alone",
            )
        ]


def growth() -> list[Result]:
    """Return what the last of many turns of a conversation costs, to the first."""
    return asyncio.run(_growth())


async def _growth() -> list[Result]:
    async with subject() as bench:
        pairs = []
        for round in range(3):
            spent = []
            for _ in range(TURNS):
                began = time.process_time()
                await bench.turn_in(f"growth-{round}")
                spent.append(time.process_time() - began)
            early, late = sorted(spent[:20]), sorted(spent[-20:])
            pairs.append((late[10], early[10]))
        return [measured(f"turn {TURNS} of a conversation", pairs, "its first turns", 1.5, unit="ms", scale=1e3)]


FIGURES: dict[str, Callable[[], list[Result]]] = {"turn": turn, "growth": growth}
