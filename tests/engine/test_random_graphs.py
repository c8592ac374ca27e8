"""The engine against an interpreter of a few lines, on graphs that nobody thought of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_bench import PLUGINS, Bench, workflow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tavern_host import Host


@dataclass(frozen=True)
class Part:
    """A node: what it does, what is before it, and what its second input has written down."""

    kind: str
    before: tuple[int, ...]
    written: int


@st.composite
def graphs(draw: st.DrawFn) -> list[Part]:
    """Return nodes, each fed by earlier ones: at most one edge for `Add`, any number for `Collect`."""
    parts: list[Part] = []
    for index in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["Add", "Add", "Pause", "Pause", "Collect", "Boom"]))
        most = index if kind == "Collect" else min(index, 1)
        earlier = st.lists(st.integers(0, max(0, index - 1)), max_size=most, unique=True)
        parts.append(Part(kind, tuple(draw(earlier)), draw(st.integers(-5, 5))))
    return parts


def expected(parts: list[Part]) -> list[tuple[str, Any]]:
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


def document(parts: list[Part]) -> tuple[dict[str, Any], list[str]]:
    """Return the graph as nodes and edges, the last nodes first so that order proves nothing."""
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
    return nodes, edges


@given(st.lists(graphs(), min_size=10, max_size=10))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_every_graph_gives_what_the_plain_interpreter_gives(tmp_path: Path, batch: list[list[Part]]) -> None:
    import asyncio

    async def check() -> None:
        async with Host(tmp_path / "project", plugins=[PLUGINS / "acme_nodes"], trust=["acme-nodes"]) as host:
            bench = Bench(host)
            for parts in batch:
                nodes, edges = document(parts)
                run = await bench.run(workflow(nodes, *edges))
                for index, (status, value) in enumerate(expected(parts)):
                    state = run.nodes[f"n{index}"]
                    assert state.status == status, (index, parts)
                    if status == "complete":
                        assert state.output is not None
                        assert next(iter(state.output.values())) == value, (index, parts)
                failed = any(status == "error" for status, _ in expected(parts))
                assert run.status == ("error" if failed else "complete")

    asyncio.run(check())
