"""Graphs of streams that branch and meet in any way: each run ends, and gives what plain lists would give."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from engine_bench import Bench, no_tasks_are_left, output, workflow
from helpers.repetition import repetitions

from tavern_host.contracts.executions import RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_streams"]
LENGTHS = (0, 1, 15, 16, 17, 33, 70)
LONGEST = 600


class Graph:
    """A graph that grows at random. `expected` says by node what it gives: the items of a stream, or a value."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.nodes: dict[str, Any] = {}
        self.edges: list[str] = []
        self.expected: dict[str, Any] = {}
        self._streams: list[str] = []
        self._totals: list[str] = []
        grow = [self._source, self._late_source, self._relay, self._hold_back, self._join, self._join]
        grow += [self._total, self._both, self._after, self._first]
        self._source()
        for _ in range(self._random.randint(3, 14)):
            self._random.choice(grow)()

    def _add(self, type: str, expected: Any, inputs: dict[str, str], **written: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes[name] = {"type": f"acme-streams:{type}", "inputValues": written}
        self.edges += [f"{source} > {name}.{key}" for key, source in inputs.items()]
        self.expected[name] = expected
        return name

    def _stream(self) -> tuple[str, list[int]]:
        name = self._random.choice(self._streams)
        return f"{name}.items", self.expected[name]

    def _source(self) -> None:
        length = self._random.choice(LENGTHS)
        self._streams.append(self._add("Numbers", list(range(length)), {}, length=length))

    def _late_source(self) -> None:
        if self._totals:
            total = self._random.choice(self._totals)
            start = self.expected[total]
            items = list(range(start, start + 40))
            self._streams.append(self._add("Numbers", items, {"start": f"{total}.total"}, length=40))

    def _relay(self) -> None:
        source, items = self._stream()
        self._streams.append(self._add("Relay", items, {"items": source}))

    def _hold_back(self) -> None:
        source, items = self._stream()
        self._streams.append(self._add("HoldBack", items, {"items": source}))

    def _join(self) -> None:
        (a, first), (b, second) = self._stream(), self._stream()
        if len(first) + len(second) <= LONGEST:
            self._streams.append(self._add("InTurnOn", first + second, {"a": a, "b": b}))

    def _total(self) -> None:
        source, items = self._stream()
        self._totals.append(self._add("Total", sum(items), {"items": source}))

    def _both(self) -> None:
        (a, first), (b, second) = self._stream(), self._stream()
        self._add("InTurn", [len(first), len(second)], {"a": a, "b": b})

    def _after(self) -> None:
        if self._totals:
            source, items = self._stream()
            total = self._random.choice(self._totals)
            self._add("After", [self.expected[total], len(items)], {"items": source, "value": f"{total}.total"})

    def _first(self) -> None:
        source, items = self._stream()
        count = self._random.choice((1, 3, 20))
        self._add("First", items[:count], {"items": source}, count=count)


KEYS = {"Total": "total", "InTurn": "counts", "After": "list", "First": "list"}


async def test_random_stream_graphs_give_what_lists_would_give(shared: Bench) -> None:
    for seed in range(repetitions(30, 400)):
        graph = Graph(seed)
        document = workflow(graph.nodes, *graph.edges)
        for use_cache in (True, True, False):
            async with asyncio.timeout(60):
                run = await shared.engine.run(RunRequest(workflow=document, use_cache=use_cache))
            assert run.status == "complete", f"seed {seed}: {run.error}"
            for name, node in graph.nodes.items():
                key = KEYS.get(node["type"].partition(":")[2])
                if key is not None:
                    assert output(run, name, key) == graph.expected[name], f"seed {seed}, node {name}"


async def test_random_stream_graphs_interrupted_anywhere_leave_no_tasks(shared: Bench) -> None:
    before = asyncio.all_tasks()
    for seed in range(repetitions(15, 200)):
        graph, choice = Graph(seed), random.Random(seed)
        for node in graph.nodes.values():
            if node["type"] == "acme-streams:Numbers" and choice.random() < 0.5:
                node.update(type=f"acme-streams:{choice.choice(('Ticks', 'Endless'))}", inputValues={})
        run_id = await shared.start(workflow(graph.nodes, *(e for e in graph.edges if not e.endswith(".start"))))
        for _ in range(choice.randint(0, 30)):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert (await shared.interrupted(run_id)).status.is_final
    await no_tasks_are_left(before)
