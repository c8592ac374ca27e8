"""What a turn of an agent costs apart from its model, whether that grows with the conversation, and how soon a piece of
an answer is an event (docs/performance.md)."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable

from benchmarks.agentsubject import QUESTION, REPLY, Subject, floor, subject
from benchmarks.harness import ROUNDS, Result, Side, compare_sides, measured
from benchmarks.layers import layers
from benchmarks.serving import private_memory
from tavern_agents.api.agents import AgentRequest
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_host.cli.garbage import collect_again
from tavern_host.contracts.events import Event
from tavern_host.testing.http import served

TURNS = (200, 1000)
STREAMS = 50
CROWD, CROWD_TURNS = 500, 4
ASKED = 40
"""How many chat completions are asked for in a round."""


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
    """Measure turns of a long conversation, and return their costs as ratios to that of the first."""
    return asyncio.run(_growth())


async def _growth() -> list[Result]:
    pairs: dict[int, list[tuple[float, float]]] = {turn: [] for turn in TURNS}
    async with subject() as bench:
        for round in range(3):
            spent = []
            for _ in range(max(TURNS)):
                began = time.process_time()
                await bench.turn_in(f"growth-{round}")
                spent.append(time.process_time() - began)
            for turn in TURNS:
                pairs[turn].append((statistics.median(spent[turn - 20 : turn]), statistics.median(spent[:20])))
    return [
        measured(f"turn {turn:,} of a conversation", pairs[turn], "its first turns", 1.3, unit="ms", scale=1e3)
        for turn in TURNS
    ]


def crowd() -> list[Result]:
    """Return what many conversations at once take in memory, beyond what was said in them."""
    return asyncio.run(_crowd())


async def _crowd() -> list[Result]:
    async with subject() as bench:
        await asyncio.gather(*(bench.turn_in(f"warm-{number}") for number in range(CROWD)))
        collect_again()
        before, most = private_memory(os.getpid()), 0
        for _ in range(CROWD_TURNS):
            turns = asyncio.gather(*(bench.turn_in(f"crowd-{number}") for number in range(CROWD)))
            while not turns.done():
                await asyncio.sleep(0.5)
                most = max(most, private_memory(os.getpid()) - before)
            await turns
        history = await bench.host.services.get(CHAT_HISTORY).load("crowd-0")
        said = sum(len(json.dumps(one.message.to_json())) for one in history)
    grown = most / CROWD
    name, floor = f"memory of {CROWD} conversations at once, each beyond its messages", "its messages as JSON"
    return [measured(name, [(grown - said, float(said))], floor, 100, limited="value", unit="KB", scale=1e-3)]


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


def openai() -> list[Result]:
    """Measure what a turn takes beyond itself where a client of OpenAI's API asks for it, and return that."""
    return asyncio.run(_openai())


async def _openai() -> list[Result]:
    body = {"model": "agent/clerk", "messages": [{"role": "user", "content": QUESTION}]}
    results = []
    async with subject() as bench, served(bench.host) as web:
        for name, more in (("whole", {}), ("as a stream", {"stream": True})):

            async def ask(more: dict[str, bool] = more) -> None:
                answer = await web.post("/v1/chat/completions", json={**body, **more})
                assert answer.status == 200 and REPLY in await answer.text()

            pairs = []
            for _ in range(ROUNDS):
                spent: tuple[list[float], list[float]] = ([], [])
                for _ in range(ASKED):
                    for work, times in zip((bench.turn, ask), spent, strict=True):
                        began = time.process_time()
                        await work()
                        times.append(time.process_time() - began)
                alone, asked = map(statistics.median, spent)
                pairs.append((asked - alone, alone))
            what = f"a chat completion of an agent, {name}: beyond its turn"
            results.append(measured(what, pairs, "the turn itself", 3.0, unit="ms", scale=1e3, limited="value"))
    return results


FIGURES: dict[str, Callable[[], list[Result]]] = {
    "turn": turn,
    "growth": growth,
    "crowd": crowd,
    "fragments": fragments,
    "openai": openai,
    "layers": layers,
}
