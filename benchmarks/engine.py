"""What the workflow engine costs, as ratios to one asyncio task a node (docs/performance.md).

Each figure first checks what its runs give: a quick wrong answer is not measured.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.enginefloors import gathered_pauses, queued_generators, task_per_node
from benchmarks.enginegraphs import (
    SALT,
    Graph,
    chain,
    fan,
    layers,
    lines,
    mixed,
    node_id,
    pauses,
    stream,
)
from benchmarks.enginesubject import BusListener, Listener, Ran, RunLog, Subject
from benchmarks.harness import Result, Side, compare_sides, frozen, longest_hold, measured
from tavern_host.contracts.workflows import WorkflowNode

TASKS = "a task per node"
IN_KB: dict[str, Any] = {"unit": "KB", "scale": 1e-3, "limited": "value"}

UNUSED = 1000
"""From here on no node has such a value written, so that no other one has given what a changed one will give."""

Changed = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class Sizes:
    """How large the workloads are: what the figures are quoted for, unless told otherwise."""

    chain: int = 1000
    fan: int = 1000
    depth: int = 50
    width: int = 40
    deep: int = 250
    pauses: int = 200
    items: int = 100_000
    long: int = 250
    broad: int = 400


SIZES = Sizes()


# --- throughput -------------------------------------------------------------------------------------------------------


async def _chain() -> list[Result]:
    return [await _against_tasks("W1 chain", chain(SIZES.chain), limit=0.6, aim=0.4)]


async def _fan() -> list[Result]:
    return [await _against_tasks("W2 fan and join", fan(SIZES.fan), limit=0.75, aim=0.45)]


async def _plain_fan() -> list[Result]:
    graph = fan(SIZES.fan, plain=True)
    return [await _against_tasks("W2 with plain def", graph, limit=0.7, aim=0.4)]


async def _layers() -> list[Result]:
    graph = _w3()
    over_bus = await _emptied(graph, listener=BusListener())
    return [
        await _against_tasks("W3 layers", graph, limit=0.9, aim=0.6),
        await compare_sides("W3, events over the host's bus", over_bus, _tasks(graph), floor_name=TASKS),
    ]


async def _linear() -> list[Result]:
    small, large = _w3(), layers(SIZES.deep, SIZES.width)
    sides = [await _emptied(graph) for graph in (large, small)]
    name = f"W3 at {len(large):,} nodes"
    return [await compare_sides(name, *sides, floor_name=f"W3 at {len(small):,}, a node", limit=1.2)]


async def _cold() -> list[Result]:
    graph = _w3()
    document = graph.workflow()

    async def compile_and_run() -> Ran:
        return await Subject(document).run()

    check(await compile_and_run(), graph)
    side = Side(compile_and_run, len(graph))
    return [await compare_sides("W3 cold", side, _tasks(graph), floor_name=TASKS, limit=1.8, aim=1.4)]


async def _changes() -> list[Result]:
    graph = _w3()
    sink, source = graph.sinks[-1], 0
    changes: list[tuple[str, int | None, str, float, float]] = [
        ("nothing", None, "", 0.15, 0.05),
        ("one sink", sink, SALT, 0.2, 0.08),
        ("one source", source, "value", 1.0, 0.7),
    ]
    found = []
    for what, number, key, limit, aim in changes:
        subject = Subject(graph.workflow())
        check(await subject.run(), graph)
        ticks = itertools.count(UNUSED)

        def changed(number: int | None = number, key: str = key, ticks: itertools.count[int] = ticks) -> Changed:
            return {} if number is None else {number: {key: next(ticks)}}

        async def run(subject: Subject = subject, changed: Callable[[], Changed] = changed) -> Ran:
            return await subject.run(_nodes(graph, changed()))

        again = changed()
        ran = await subject.run(_nodes(graph, again))
        check(ran, graph, again)
        expected = 0 if number is None else len(graph.descendants(number))
        _expect(ran.executed == expected, f"{graph.name}: {ran.executed} nodes were run again, expected {expected}")
        side = Side(run, len(graph))
        name = f"W4 {what} changed"
        found.append(await compare_sides(name, side, _tasks(graph), floor_name=TASKS, limit=limit, aim=aim))
    return found


async def _pauses() -> list[Result]:
    graph = pauses(SIZES.pauses)

    async def gathered() -> None:
        await gathered_pauses(len(graph))

    return [
        await compare_sides(
            "W5 nodes that wait 10 ms, wall time",
            await _emptied(graph),
            Side(gathered, len(graph)),
            floor_name="gather of the sleeps",
            clock=time.perf_counter,
            limit=1.15,
            aim=1.05,
        )
    ]


async def _stream() -> list[Result]:
    graph = stream(SIZES.items)

    async def queued() -> None:
        await queued_generators(SIZES.items)

    return [
        await compare_sides(
            "W6 stream, an item",
            await _emptied(graph, SIZES.items),
            Side(queued, SIZES.items),
            floor_name="generators and asyncio.Queue(16)",
            limit=1.1,
            aim=0.6,
        )
    ]


async def _journal() -> list[Result]:
    graph = _w3()
    with tempfile.TemporaryDirectory() as folder:
        journal = RunLog(Path(folder))
        try:
            subject = Subject(graph.workflow(), journal=journal)
            ran = await subject.run()
            check(ran, graph)
            rows = await journal.rows(ran.run_id)
            _expect(rows == len(graph), f"{graph.name}: {rows} of {len(graph)} results are in the journal")
            side, name = Side(subject.run, len(graph), subject.forget), "W3 with the journal, drained"
            return [await compare_sides(name, side, _tasks(graph), floor_name=TASKS, limit=1.7, aim=1.0)]
        finally:
            await journal.close()


def _nodes(graph: Graph, changed: Changed) -> dict[str, WorkflowNode]:
    return {node_id(number): graph.node(number, values) for number, values in changed.items()}


async def _against_tasks(name: str, graph: Graph, *, limit: float, aim: float) -> Result:
    return await compare_sides(name, await _emptied(graph), _tasks(graph), floor_name=TASKS, limit=limit, aim=aim)


async def _emptied(graph: Graph, units: int | None = None, listener: Listener | None = None) -> Side:
    """Return how to run a graph whose plan is there, with a cache that is empty each time."""
    subject = Subject(graph.workflow(), listener=listener)
    ran = await subject.run()
    check(ran, graph)
    _expect(ran.executed == len(graph), f"{graph.name}: {ran.executed} of {len(graph)} nodes were run")
    return Side(subject.run, units or len(graph), subject.forget)


def _tasks(graph: Graph) -> Side:
    """Return the floor of a graph."""
    waiting_for, followers, plain = graph.waiting_for, graph.followers, graph.types[0].startswith("Plain")

    async def run() -> None:
        await task_per_node(waiting_for, followers, plain=plain)

    return Side(run, len(graph))


def _w3() -> Graph:
    return layers(SIZES.depth, SIZES.width)


def check(ran: Ran, graph: Graph, changed: Changed | None = None) -> None:
    """Raise `AssertionError` where a run did not give what its graph gives."""
    expected = mixed(graph, changed) if changed else graph.results
    for number, values in expected.items():
        output = ran.output(node_id(number))
        _expect(output == values, f"{graph.name}: {node_id(number)} gave {output}, expected {values}")
    told, lost = ran.messages, ran.lost
    _expect(told + lost > ran.executed, f"{graph.name}: only {told} messages told of {ran.executed} nodes")


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


# --- memory and the event loop ----------------------------------------------------------------------------------------


async def _memory() -> list[Result]:
    """Return the peak memory of a plan and a run in bytes per node, by `tracemalloc`; the nodes' values take none."""
    graph = layers(SIZES.deep, SIZES.width)
    document, floor = graph.workflow(), _tasks(graph)
    await Subject(layers(3, 3).workflow()).run()  # what is imported or made only once
    tracemalloc.start()
    try:
        before = _held()
        subject = Subject(document)
        check(await subject.run(), graph)
        subject.forget()
        plan = _held() - before
        run, kept = await _peak(subject.run)
        tasks, _ = await _peak(floor.run)
    finally:
        tracemalloc.stop()
    return [
        measured(f"memory: {name}", [(value / len(graph), tasks / len(graph))], f"{TASKS}, at its peak", limit, **more)
        for name, value, limit, more in (
            (f"a run of {len(graph):,} nodes at its peak, a node", run, 0.6, {"aim": 0.3, **IN_KB}),
            ("what is kept of it, cache included, a node", kept, None, IN_KB),
            ("its plan, a node", plan, 1.5, {"aim": 1.0, **IN_KB}),
        )
    ]


async def _peak(run: Callable[[], Awaitable[object]]) -> tuple[int, int]:
    """Return by how many bytes a run grew at most, and how many of them are held by what it gave and left."""
    before = _held()
    tracemalloc.reset_peak()
    ran = await run()
    peak = tracemalloc.get_traced_memory()[1]
    held = _held()
    del ran
    return peak - before, held - before


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def _hold() -> list[Result]:
    """Return for how long at most other tasks of the loop wait while many trivial nodes are run."""
    graph = lines(SIZES.long, SIZES.broad)
    subject, floor = await _emptied(graph), _tasks(graph)
    pairs = []
    with frozen():
        for _ in range(min(5, harness.ROUNDS)):
            pairs.append((await _hold_of(subject), await _hold_of(floor)))
    return [
        measured(
            f"longest hold of the loop, {len(graph):,} nodes",
            pairs,
            "the hold of a task per node",
            20,
            aim=5,
            limited="value",
            unit="ms",
            scale=1e3,
        )
    ]


async def _hold_of(side: Side) -> float:
    if side.prepare is not None:
        side.prepare()
    return await longest_hold(side.run)


def _figure(measure: Callable[[], Coroutine[Any, Any, list[Result]]]) -> Callable[[], list[Result]]:
    return lambda: asyncio.run(measure())


FIGURES: dict[str, Callable[[], list[Result]]] = {
    "W1": _figure(_chain),
    "W2": _figure(_fan),
    "W2-def": _figure(_plain_fan),
    "W3": _figure(_layers),
    "W3-linear": _figure(_linear),
    "W3-cold": _figure(_cold),
    "W3-journal": _figure(_journal),
    "W4": _figure(_changes),
    "W5": _figure(_pauses),
    "W6": _figure(_stream),
    "memory": _figure(_memory),
    "hold": _figure(_hold),
}
