"""The engine against an interpreter of a few lines, on graphs that nobody thought of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine_bench import PLUGINS, Bench, group, workflow
from helpers.repetition import IN_ONE_TEST, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host import Host
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow


@dataclass(frozen=True)
class Part:
    """A node: what it does, what is before it, and what its second input has written down."""

    kind: str
    before: tuple[int, ...]
    written: int


Graph = list[Part]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Return nodes, each fed by earlier ones: at most one edge for `Add`, any number for `Collect`."""
    parts: Graph = []
    for index in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["Add", "Add", "Pause", "Pause", "Collect", "Boom"]))
        most = index if kind == "Collect" else min(index, 1)
        earlier = st.lists(st.integers(0, max(0, index - 1)), max_size=most, unique=True)
        parts.append(Part(kind, tuple(draw(earlier)), draw(st.integers(-5, 5))))
    return parts


def expected(parts: Graph) -> list[tuple[str, Any]]:
    """Return the status and value of every node, by going through them in order."""
    found: list[tuple[str, Any]] = []
    for part in parts:
        before = [found[i] for i in part.before]
        values = [value for _, value in before]
        if any(status != "complete" for status, _ in before):
            found.append(("skipped", None))
        elif part.kind == "Boom":
            found.append(("error", None))
        elif part.kind == "Collect":
            found.append(("complete", values))
        elif part.kind == "Pause":
            found.append(("complete", values[0] if values else None))
        else:
            first = values[0] if values else 0
            usable = isinstance(first, int)
            found.append(("complete", first + part.written) if usable else ("error", None))
    return found


def document(parts: Graph) -> Workflow:
    """Return the graph as a workflow, the last nodes first so that order proves nothing."""
    nodes: dict[str, Any] = {}
    edges = []
    outputs = {"Add": "sum", "Collect": "list"}
    inputs = {"Add": "any", "Collect": "values"}
    for index, part in reversed(list(enumerate(parts))):
        values: dict[str, Any] = {"Add": {"b": part.written}, "Pause": {"turns": abs(part.written)}}.get(part.kind, {})
        nodes[f"n{index}"] = {"type": "AnyAdd" if part.kind == "Add" else part.kind, "inputValues": values}
        for before in part.before:
            source = outputs.get(parts[before].kind, "value")
            edges.append(f"n{before}.{source} > n{index}.{inputs.get(part.kind, 'value')}")
    return workflow(nodes, *edges)


def wrong(run: Run, parts: Graph, prefix: str = "") -> str | None:
    """Return in what a finished run differs from what is expected, or None."""
    for index, (status, value) in enumerate(expected(parts)):
        state = run.nodes[f"{prefix}n{index}"]
        if state.status != status:
            return f"n{index} is {state.status}, not {status}"
        if status == "complete" and (state.output is None or next(iter(state.output.values())) != value):
            return f"n{index} gave {state.output}, not {value}"
    failed = any(status == "error" for status, _ in expected(parts))
    return None if run.status == ("error" if failed else "complete") else f"the run is {run.status}"


def changed(parts: Graph, where: int) -> Graph:
    """Return the same graph with another written value at one node."""
    return [replace(part, written=part.written + 7) if i == where else part for i, part in enumerate(parts)]


def on_a_host(folder: Path, check: Callable[[Bench], Awaitable[None]]) -> None:
    """Do something with the bench of a host."""

    async def run() -> None:
        async with Host(folder / "project", plugins=[PLUGINS / "acme_nodes"], trust=["acme-nodes"]) as host:
            await check(Bench(host))

    asyncio.run(run())


_FEW = settings(max_examples=repetitions(2, 25), suppress_health_check=IN_ONE_TEST)


@given(st.lists(st.tuples(graphs(), st.integers(0, 24)), min_size=8, max_size=8))
@_FEW
def test_every_graph_gives_what_the_plain_interpreter_gives(tmp_path: Path, batch: list[tuple[Graph, int]]) -> None:
    """With an empty cache, with a full one, with a value changed, without the cache, and twice as a group."""

    async def check(bench: Bench) -> None:
        for parts, where in batch:
            other = changed(parts, where % len(parts))
            for graph, use_cache in ((parts, True), (parts, True), (other, True), (parts, False)):
                run = await bench.engine.run(RunRequest(workflow=document(graph), use_cache=use_cache))
                assert wrong(run, graph) is None, graph
            await bench.workflows.save("inner", document(parts))
            run = await bench.run(workflow({"g": group("inner"), "h": group("inner")}))
            assert [wrong(run, parts, prefix) for prefix in ("g/", "h/")] == [None, None], parts

    on_a_host(tmp_path, check)


@given(st.lists(st.tuples(graphs(), st.integers(0, 12)), min_size=8, max_size=8))
@_FEW
def test_an_interrupted_run_leaves_nothing_wrong_behind(tmp_path: Path, batch: list[tuple[Graph, int]]) -> None:
    """What was interrupted gave nothing but what is right; a later run, which may use it, is right altogether."""

    async def check(bench: Bench) -> None:
        for parts, turns in batch:
            run_id = await bench.start(document(parts))
            for _ in range(turns):
                await asyncio.sleep(0)
            if (await bench.engine.get(run_id)).status in ("queued", "running"):
                await bench.engine.interrupt(run_id)
            cut = await bench.engine.wait(run_id)
            for index, (status, value) in enumerate(expected(parts)):
                state = cut.nodes[f"n{index}"]
                if state.status == "complete" and state.output is not None:
                    assert (status, next(iter(state.output.values()))) == ("complete", value), (index, parts)
            assert wrong(await bench.run(document(parts)), parts) is None, parts

    on_a_host(tmp_path, check)
