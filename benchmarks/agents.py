"""What a turn of an agent costs apart from its model, whether that grows with the conversation, and how soon a piece of
an answer is an event (docs/performance.md)."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

from benchmarks.agentsubject import Subject, floor, subject
from benchmarks.harness import Result, Side, compare_sides, measured
from tavern_agents.api.agents import AgentRequest
from tavern_host.contracts.events import Event

TURNS = 200
STREAMS = 50


def turn() -> list[Result]:
    """Measure a turn with one call, stored step by step in SQLite (WAL, NORMAL), and return its costs."""
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
    """Measure the last of many turns of a conversation, and return its cost as a ratio to that of the first."""
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


def fragments() -> list[Result]:
    """Return how long a piece of an answer takes from the adapter to the reader of its event, with many at once."""
    return asyncio.run(_fragments())


async def _fragments() -> list[Result]:
    async with subject() as bench:
        pairs = [(await _delay(bench, STREAMS), await _delay(bench, 1)) for _ in range(3)]
    name = f"a piece of an answer to its event, {STREAMS} streams open"
    return [measured(name, pairs, "one stream open", 1, limited="value", unit="ms", scale=1e3)]


async def _delay(bench: Subject, streams: int) -> float:
    """Return the median of the seconds that pieces took."""
    traces = bench.host.events.subscribe("AGENT_TRACE")
    delays: list[float] = []

    async def read() -> None:
        async for event in traces:
            if isinstance(event, Event) and event.payload["kind"] == "fragment":
                now = time.perf_counter()
                delays.extend(now - float(text) for text in event.payload["text"].split("\n") if text[:1].isdigit())

    reading = asyncio.create_task(read())
    asked = [AgentRequest(profile_id="teller", message="Go.") for _ in range(streams)]
    replies = await asyncio.gather(*(bench.runtime.run(request) for request in asked))
    assert {reply.outcome for reply in replies} == {"reply"}, replies[0]
    await traces.close()
    await reading
    return statistics.median(delays)


FIGURES: dict[str, Callable[[], list[Result]]] = {"turn": turn, "growth": growth, "fragments": fragments}
