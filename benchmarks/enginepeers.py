"""Other Python libraries that run graphs, doing the engine's work W1 to W3 against the same floor.

Each is used as its documentation shows, with its graph built beforehand and with whichever of its ways to run is the
quickest here; telemetry is off. None of them is told of events, caches by inputs or keeps a journal meanwhile. Those
that are not installed (`pip install -e '.[bench]'`) are left out, and named.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
import os
import sys
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

from benchmarks import harness
from benchmarks.enginefloors import task_per_node
from benchmarks.enginegraphs import RESULT, Graph, chain, fan, layers, node_id
from benchmarks.enginenodes import MASK
from benchmarks.harness import Result, Side, compare_sides

ROUNDS = 3
DEEP = 50_000
"""How many frames Python may nest meanwhile: some walk a graph by recursion."""

Values = dict[int, dict[str, int]]
Runs = Callable[[], Awaitable[Values]]
"""Runs a graph and returns what its last nodes give, by number and output."""


@dataclass(frozen=True)
class Peer:
    """A library: the distribution to install, and how it runs a graph."""

    distribution: str
    build: Callable[[Graph], Runs]
    way: str = ""

    @property
    def label(self) -> str:
        """Its name, version and way to run."""
        return " ".join(filter(None, (self.distribution, importlib.metadata.version(self.distribution), self.way)))


def _body(kind: str, value: int) -> Callable[..., int]:
    """Return the function that a node of a type is; it takes the incoming values in order of the node's edges."""
    if kind == "Number":
        return lambda: value
    if kind == "Step":
        return lambda before: before + 1 & MASK
    if kind == "Join":
        return lambda *values: sum(values) & MASK
    return lambda a, b, c: (a - b ^ c) & MASK


def _bodies(graph: Graph) -> list[Callable[..., int]]:
    return [_body(kind, graph.values.get(i, {}).get("value", 0)) for i, kind in enumerate(graph.types)]


def _sources(graph: Graph, number: int) -> list[str]:
    return [node_id(source) for source, _ in graph.parents[number]]


# --- apache-hamilton: a function for each node, whose parameters name those before it --------------------------------


def _hamilton(graph: Graph) -> Runs:
    from hamilton import base, driver

    execute = driver.Builder().with_modules(_module(graph)).with_adapters(base.DictResult()).build().execute
    names = [node_id(sink) for sink in graph.sinks]

    async def run() -> Values:
        found = execute(names)
        return {sink: {RESULT: found[node_id(sink)]} for sink in graph.sinks}

    return run


def _hamilton_async(graph: Graph) -> Runs:
    from hamilton import async_driver

    execute = async_driver.Builder().with_modules(_module(graph, is_async=True)).build_without_init().execute
    names = [node_id(sink) for sink in graph.sinks]

    async def run() -> Values:
        found = await execute(names)
        return {sink: {RESULT: found[node_id(sink)]} for sink in graph.sinks}

    return run


def _module(graph: Graph, *, is_async: bool = False) -> types.ModuleType:
    from hamilton import ad_hoc_utils

    functions = [_hamilton_function(body, _sources(graph, i), is_async) for i, body in enumerate(_bodies(graph))]
    for number, function in enumerate(functions):
        function.__name__ = node_id(number)
    module: types.ModuleType = ad_hoc_utils.create_temporary_module(*functions)
    return module


def _hamilton_function(body: Callable[..., int], sources: list[str], is_async: bool) -> Any:
    def plain(**values: int) -> int:
        return body(*[values[source] for source in sources])

    async def awaited(**values: int) -> int:
        return body(*[values[source] for source in sources])

    function: Any = awaited if is_async else plain
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(source, kind, annotation=int) for source in sources]
    function.__signature__ = inspect.Signature(parameters, return_annotation=int)
    function.__annotations__ = {**dict.fromkeys(sources, int), "return": int}
    return function


# --- langgraph: a state with a key for each node's value -------------------------------------------------------------


def _langgraph(graph: Graph) -> Runs:
    from langgraph.graph import START, StateGraph

    keyed: Any = TypedDict
    state = keyed("state", {node_id(i): int for i in range(len(graph))}, total=False)
    builder = StateGraph(state)
    for number, body in enumerate(_bodies(graph)):
        sources = _sources(graph, number)
        builder.add_node(f"node {number}", _langgraph_node(body, node_id(number), sources))
        before = [f"node {source}" for source, _ in graph.parents[number]]
        builder.add_edge(before if len(before) > 1 else before[0] if before else START, f"node {number}")
    compiled, config = builder.compile(), {"recursion_limit": DEEP}

    async def run() -> Values:
        found = await compiled.ainvoke({}, config)
        return {sink: {RESULT: found[node_id(sink)]} for sink in graph.sinks}

    return run


def _langgraph_node(body: Callable[..., int], key: str, sources: list[str]) -> Callable[[Any], Any]:
    async def node(state: Any) -> dict[str, int]:
        return {key: body(*[state[source] for source in sources])}

    return node


# --- haystack-ai: a component for each node --------------------------------------------------------------------------


def _haystack(graph: Graph) -> Runs:
    from haystack import Pipeline, component
    from haystack.core.component.types import Variadic

    @component
    class Number:
        def __init__(self, value: int) -> None:
            self.value = value

        @component.output_types(result=int)
        def run(self) -> dict[str, int]:
            return {RESULT: self.value}

    @component
    class Step:
        @component.output_types(result=int)
        def run(self, value: int) -> dict[str, int]:
            return {RESULT: value + 1 & MASK}

    @component
    class Mix:
        @component.output_types(result=int)
        def run(self, a: int, b: int, c: int) -> dict[str, int]:
            return {RESULT: (a - b ^ c) & MASK}

    @component
    class Join:
        def __init__(self) -> None:
            component.set_input_type(self, "values", Variadic[int])

        @component.output_types(result=int)
        def run(self, **inputs: Any) -> dict[str, int]:
            return {RESULT: sum(inputs["values"]) & MASK}

    pipeline = Pipeline()
    kinds: dict[str, Callable[[], Any]] = {"Step": Step, "Mix": Mix, "LastMix": Mix, "Join": Join}
    for number, kind in enumerate(graph.types):
        made = Number(graph.values[number]["value"]) if kind == "Number" else kinds[kind]()
        pipeline.add_component(node_id(number), made)
    for number, edges in enumerate(graph.parents):
        for source, handle in edges:
            into = handle.partition("__")[0]
            pipeline.connect(f"{node_id(source)}.{RESULT}", f"{node_id(number)}.{into}")

    async def run() -> Values:
        found = pipeline.run({})
        return {sink: found[node_id(sink)] for sink in graph.sinks}

    return run


# --- the comparison ---------------------------------------------------------------------------------------------------

PEERS = (
    Peer("apache-hamilton", _hamilton),
    Peer("apache-hamilton", _hamilton_async, "async"),
    Peer("langgraph", _langgraph),
    Peer("haystack-ai", _haystack),
)


def installed() -> tuple[list[Peer], list[str]]:
    """Return the peers that are installed, and the distributions of those that are not."""
    found, missing = [], []
    for peer in PEERS:
        try:
            importlib.metadata.version(peer.distribution)
        except importlib.metadata.PackageNotFoundError:
            missing.append(peer.distribution)
        else:
            found.append(peer)
    return found, list(dict.fromkeys(missing))


def _compared(title: str, graph: Callable[[], Graph]) -> Callable[[], list[Result]]:
    def measure() -> list[Result]:
        with _quiet():
            peers, missing = installed()
            for name in missing:
                print(f"{title}: {name} is not installed; pip install -e '.[bench]'", file=sys.stderr)
            return [asyncio.run(_compare(title, peer, graph())) for peer in peers]

    return measure


async def _compare(title: str, peer: Peer, graph: Graph) -> Result:
    run = peer.build(graph)
    results, waiting_for, followers = await run(), graph.waiting_for, graph.followers
    if results != dict(graph.results):
        wrong = next((i for i, values in graph.results.items() if results.get(i) != values), None)
        raise AssertionError(f"{peer.label}: {graph.name}: node {wrong} did not give {graph.results.get(wrong or 0)}")

    async def floor() -> None:
        await task_per_node(waiting_for, followers)

    return await compare_sides(
        f"{title}: {peer.label}",
        Side(run, len(graph)),
        Side(floor, len(graph)),
        floor_name="a task per node",
        rounds=min(ROUNDS, harness.ROUNDS),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Let peers recurse as deeply as they need, and send nothing to anybody."""
    before = sys.getrecursionlimit()
    os.environ.update(HAYSTACK_TELEMETRY_ENABLED="False", HAMILTON_TELEMETRY_ENABLED="false", LANGSMITH_TRACING="false")
    sys.setrecursionlimit(DEEP)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


SIZES = {"chain": 1000, "fan": 1000, "depth": 50, "width": 40}

FIGURES: dict[str, Callable[[], list[Result]]] = {
    "W1": _compared("W1 chain", lambda: chain(SIZES["chain"])),
    "W2": _compared("W2 fan and join", lambda: fan(SIZES["fan"])),
    "W3": _compared("W3 layers", lambda: layers(SIZES["depth"], SIZES["width"])),
}
