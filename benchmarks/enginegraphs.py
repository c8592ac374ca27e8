"""The graphs of the engine's workloads: as a workflow for the engine, as parents for a floor or a peer, and what
comes out of them. Knows no engine."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from benchmarks.enginenodes import MASK, NAMESPACE
from tavern_host.contracts.workflows import Workflow, WorkflowEdge, WorkflowNode

RESULT = "result"
"""The output of every node."""

SALT = "salt"
"""The input of a `LastMix` that no edge feeds."""

Place = tuple[int, str]
"""The node that an edge comes from and the input that it goes into."""


@dataclass(frozen=True)
class Graph:
    """Nodes by number, each with its type, its written values and the edges into it, in order of dependency.

    `results` are what its last nodes give, by number and output.
    """

    name: str
    types: tuple[str, ...]
    parents: tuple[tuple[Place, ...], ...]
    values: Mapping[int, Mapping[str, int]]
    results: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.types)

    @cached_property
    def waiting_for(self) -> tuple[int, ...]:
        """How many nodes each waits for."""
        return tuple(len(edges) for edges in self.parents)

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """Which nodes wait for each."""
        found: list[list[int]] = [[] for _ in self.types]
        for target, edges in enumerate(self.parents):
            for source, _ in edges:
                found[source].append(target)
        return tuple(tuple(each) for each in found)

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """The nodes that none waits for."""
        return tuple(number for number, after in enumerate(self.followers) if not after)

    def descendants(self, number: int) -> set[int]:
        """Return a node and all that depend on it."""
        found, left = {number}, [number]
        while left:
            for follower in self.followers[left.pop()]:
                if follower not in found:
                    found.add(follower)
                    left.append(follower)
        return found

    def workflow(self) -> Workflow:
        """Return the graph as a workflow; node 7 has the id `n7`."""
        nodes = [self.node(number) for number in range(len(self))]
        edges: list[WorkflowEdge] = []
        for target, into in enumerate(self.parents):
            for source, handle in into:
                edges.append(
                    WorkflowEdge.model_construct(
                        id=f"e{len(edges)}",
                        source=node_id(source),
                        source_handle=RESULT,
                        target=node_id(target),
                        target_handle=handle,
                    )
                )
        return Workflow.model_construct(id=self.name, name=self.name, nodes=nodes, edges=edges)

    def node(self, number: int, changed: Mapping[str, int] | None = None) -> WorkflowNode:
        """Return a node of the workflow, with other values than its own where some are given."""
        written: dict[str, Any] = {**self.values.get(number, {}), **(changed or {})}
        kind = f"{NAMESPACE}:{self.types[number]}"
        return WorkflowNode.model_construct(id=node_id(number), type=kind, input_values=written)


def node_id(number: int) -> str:
    """Return the id in the workflow of a node of a graph."""
    return f"n{number}"


def chain(length: int) -> Graph:
    """Return nodes in one line, each of which counts on by one."""
    return Graph(
        "chain",
        ("Number", *["Step"] * (length - 1)),
        ((), *(((i, "value"),) for i in range(length - 1))),
        {0: {"value": 0}},
        {length - 1: {RESULT: length - 1 & MASK}},
    )


def fan(width: int, *, plain: bool = False) -> Graph:
    """Return independent nodes and one that joins them, `plain`: without `async`."""
    kinds = ("PlainNumber", "PlainJoin") if plain else ("Number", "Join")
    values = {i: {"value": i & MASK} for i in range(width)}
    return Graph(
        "plain-fan" if plain else "fan",
        (*[kinds[0]] * width, kinds[1]),
        (*[()] * width, tuple((i, f"values__{i}") for i in range(width))),
        values,
        {width: {RESULT: sum(value["value"] for value in values.values()) & MASK}},
    )


def layers(depth: int, width: int, *, seed: int = 7) -> Graph:
    """Return layers of nodes, each of which but those of the first mixes what three of the layer before it give.

    Which three is by chance, the same in every process; each node feeds three, too. Those of the last layer have an
    input of their own, `salt`.
    """
    chance = random.Random(seed)
    types = ["Number"] * width
    parents: list[tuple[Place, ...]] = [()] * width
    for layer in range(1, depth):
        order = list(range((layer - 1) * width, layer * width))
        chance.shuffle(order)
        types += ["LastMix" if layer == depth - 1 else "Mix"] * width
        parents += [tuple((order[(i + k) % width], "abc"[k]) for k in range(3)) for i in range(width)]
    values = {i: {"value": i & MASK} for i in range(width)}
    graph = Graph("layers", tuple(types), tuple(parents), values)
    return Graph(graph.name, graph.types, graph.parents, values, mixed(graph))


def mixed(graph: Graph, changed: Mapping[int, Mapping[str, int]] | None = None) -> dict[int, dict[str, int]]:
    """Return the outputs of the last nodes of layers, by number, with some values of nodes changed."""
    found: list[int] = []
    for number, edges in enumerate(graph.parents):
        own = {**graph.values.get(number, {}), **(changed or {}).get(number, {})}
        if edges:
            a, b, c = (found[source] for source, _ in edges)
            found.append((a - b ^ c) + own.get(SALT, 0) & MASK)
        else:
            found.append(own["value"])
    return {number: {RESULT: found[number]} for number in graph.sinks}


def lines(depth: int, width: int) -> Graph:
    """Return lines of nodes beside each other, in layers."""
    return Graph(
        "lines",
        (*["Number"] * width, *["Step"] * (width * (depth - 1))),
        (*[()] * width, *(((i, "value"),) for i in range(width * (depth - 1)))),
        {i: {"value": i & MASK} for i in range(width)},
        {width * (depth - 1) + i: {RESULT: i + depth - 1 & MASK} for i in range(width)},
    )


def pauses(width: int) -> Graph:
    """Return independent nodes that each wait a little."""
    return Graph(
        "pauses",
        ("Pause",) * width,
        ((),) * width,
        {i: {"value": i & MASK} for i in range(width)},
        {i: {RESULT: i & MASK} for i in range(width)},
    )


def stream(length: int) -> Graph:
    """Return three nodes through which a stream of numbers goes."""
    return Graph(
        "stream",
        ("Count", "Relay", "Total"),
        ((), ((0, "items"),), ((1, "items"),)),
        {0: {"length": length}},
        {2: {RESULT: length * (length + 1) // 2}},
    )
