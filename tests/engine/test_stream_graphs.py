"""Graphs of streams that branch and meet in any way: each run ends, and gives what plain lists would give."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, output, workflow

from tavern_host.contracts.executions import RunRequest

LENGTHS = (0, 1, 15, 16, 17, 33, 70)
LONGEST = 600


@pytest.fixture
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host("acme_streams") as opened:
        yield opened


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


@pytest.mark.parametrize("seed", range(0, 80, 8))
async def test_a_graph_of_streams_gives_what_lists_would_give(bench: Bench, seed: int) -> None:
    for each in range(seed, seed + 8):
        graph = Graph(each)
        document = workflow(graph.nodes, *graph.edges)
        for use_cache in (True, True, False):
            async with asyncio.timeout(60):
                run = await bench.engine.run(RunRequest(workflow=document, use_cache=use_cache))
            assert run.status == "complete", f"seed {each}: {run.error}"
            for name, node in graph.nodes.items():
                key = KEYS.get(node["type"].partition(":")[2])
                if key is not None:
                    assert output(run, name, key) == graph.expected[name], f"seed {each}, node {name}"


@pytest.mark.parametrize("seed", range(0, 40, 8))
async def test_a_graph_of_streams_that_is_interrupted_anywhere_leaves_no_tasks(bench: Bench, seed: int) -> None:
    await bench.run(workflow({"s": {"type": "acme-streams:Numbers", "inputValues": {"length": 1}}}))
    before = asyncio.all_tasks()
    for each in range(seed, seed + 8):
        graph, choice = Graph(each), random.Random(each)
        for node in graph.nodes.values():
            if node["type"] == "acme-streams:Numbers" and choice.random() < 0.5:
                node.update(type=f"acme-streams:{choice.choice(('Ticks', 'Endless'))}", inputValues={})
        run_id = await bench.start(workflow(graph.nodes, *(e for e in graph.edges if not e.endswith(".start"))))
        for _ in range(choice.randint(0, 30)):
            await asyncio.sleep(0)
        await bench.engine.interrupt(run_id)
        async with asyncio.timeout(60):
            run = await bench.engine.wait(run_id)
        assert run.status.is_final
    for _ in range(500):
        left = {task for task in asyncio.all_tasks() - before if not task.get_name().startswith(("leases", "journal"))}
        if not left:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"tasks are left: {left}")
