"""The order in which a run's events come: no node is done before what feeds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, edges_in, give, group, slot, workflow
from helpers.repetition import Failures, repetitions
from loops_bench import flow, inside, loop, policy

from tavern_host.contracts.executions import Run

SHARED_PLUGINS = ["acme_flow", "acme_streams"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

IN, OUT = "core:GroupInput", "core:GroupOutput"
STREAM_OUT = {"interfaceOutputs": {"items": slot("INTEGER", isStream=True)}}
BEGUN, DONE = "NODE_EXECUTING", ("NODE_COMPLETE", "NODE_CACHED", "NODE_BYPASSED", "NODE_ERROR")
PLUS = workflow({"in": IN, "add": "Add", "out": OUT}, "in.n > add.a, add.sum > out.n",
    interfaceInputs={"n": slot("INTEGER")}, interfaceOutputs={"n": slot("INTEGER")})  # fmt: skip
ADD, TALLY, TAKE = "Add", flow("Tally"), "Take"


def stream(type: str, **values: Any) -> dict[str, Any]:
    return {"type": f"acme-streams:{type}", "inputValues": values}


ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a chain": ({"a": give(1), "b": TAKE, "c": TAKE, "d": TAKE}, "a > b > c > d", ""),
    "known nodes that feed one another": (
        {"a": give(2), "b": TAKE, "c": TAKE, "u": TALLY, "v": TALLY, "w": TALLY}, "a > b > c > w, a > u, b > v", ""),
    "unread nodes between known ones": (
        {"a": give(3), "x": TAKE, "y": TAKE, "c": TAKE, "u": TALLY, "w": TALLY}, "a > x > y > c > w, a > u", ""),
    "a node that waits": (
        {"a": give(4), "p": {"type": "Pause", "inputValues": {"turns": 3}}, "b": TAKE}, "a > p > b", ""),
    "streams": (
        {"n": stream("Numbers", length=60), "r": stream("Relay"), "o": stream("AddOne"), "t": stream("Total"),
            "s": stream("Size"), "after": TAKE},
        "n.items > r.items, r.items > o.items, o.items > t.items, n.items > s.items, t.total > after", ""),
    "a stream that goes out": (
        {"a": give(5, "INTEGER"), "n": stream("Numbers"), "out": OUT}, "a > n.length, n.items > out.items", ""),
    "groups": (
        {"a": give(6, "INTEGER"), "x": group("plus"), "y": group("plus"), "t": TAKE}, "a > x.n, x.n > y.n, y.n > t",
        "x/add > x, a > x/add, y/add > y, a > y/add, x/add > y/add, y/add > t"),
    "a bypassed node": (
        {"a": give(7), "m": {"type": "Take", "bypassed": True}, "t": TAKE}, "a > m > t", "a > m, a > t"),
    "a loop": (
        {"a": give(8, "INTEGER"), "b": give(3), "z": loop("n: INTEGER = 0", count=9), "add": inside("z", ADD),
            "t": TAKE},
        "b > z.count, z.in__n > add.a, a > add.b, add.sum > z.next__n, z.out__n > t", "add > z, b > add"),
    "a loop in a loop": (
        {"a": give(9, "INTEGER"), "z": loop("n: INTEGER = 0", count=4), "add": inside("z", ADD),
            "y": inside("z", loop("m: INTEGER = 0", count=3)), "more": inside("y", ADD), "t": TAKE},
        "a > add.b, z.in__n > add.a, add.sum > y.in__m, y.in__m > more.a, more.sum > y.next__m, y.out__m > z.next__n, "
        "z.out__n > t", "add > z, y > z, more > z, add > more, a > more, more > y"),
    "a failure whose place a default takes": (
        {"a": give(10), "f": policy("Boom", onError="default"), "t": TAKE}, "a > f > t", ""),
}  # fmt: skip
"""Nodes, edges, and what is done before what beside the plain edges."""


def feeding(nodes: dict[str, Any], edges: str) -> list[tuple[str, str]]:
    """Return which node feeds which: edges between nodes that run, and not those on the inner side of a loop."""
    ends = [(one.partition(".")[0], two.partition(".")[0]) for one, two in (e.split(" > ") for e in edges_in([edges]))]
    zones = {(key, node.get("parentNode")) for key, node in nodes.items() if isinstance(node, dict)}
    shown = {key for key, node in nodes.items() if node == group("plus") or "bypassed" in node}
    return [(a, b) for a, b in ends if (a, b) not in zones and (b, a) not in zones and not {a, b} & shown]


async def check(bench: Bench, run: Run, nodes: dict[str, Any], edges: str, inner: str = "") -> None:
    """Raise `AssertionError` where a node begins or is done before what feeds it."""
    found: list[tuple[str, str]] = []
    for event in await bench.events(run, BEGUN, *DONE):
        ids: Any = event.payload.get("nodeIds", [event.payload.get("nodeId")])
        found += [(event.type, node_id) for node_id in ids]
    done: dict[str, int] = {}
    begun: dict[str, int] = {}
    for place, (type, node_id) in enumerate(found):
        (begun if type == BEGUN else done).setdefault(node_id, place)
    pairs = feeding(nodes, edges)
    streams = {edge.partition(".")[0] for edge in edges.split(", ") if ".items > " in edge}
    for before, after in pairs:
        if before in done and after in begun and before not in streams:
            assert done[before] < begun[after], f"{after} begins before {before} is done: {found}"
    more = [(before, after) for before, _, after in (pair.partition(" > ") for pair in inner.split(", ")) if after]
    for before, after in pairs + more:
        if before in done and after in done:
            assert done[before] < done[after], f"{after} is done before {before}: {found}"
    if run.status == "complete" and run.attempt == 1 and not any(node.cached for node in run.nodes.values()):
        assert {end for pair in pairs + more for end in pair} <= {node_id for _, node_id in found}


async def test_no_node_is_done_before_what_feeds_it(shared: Bench) -> None:
    await shared.workflows.save("plus", PLUS)
    with Failures() as failures:
        for name, (nodes, edges, inner) in ROWS.items():
            for number in range(repetitions(3, 20)):
                with failures.row(f"{name}, run {number}"):
                    run = await shared.run(workflow(nodes, edges, **(STREAM_OUT if "out" in nodes else {})))
                    assert run.status == "complete", run.error
                    await check(shared, run, nodes, edges, inner)


async def test_a_resumed_run_tells_in_order_what_was_done(shared: Bench, tmp_path: Path) -> None:
    always = {name: flow("NoteAlways", file=tmp_path / name, value=1) for name in "ab"}
    nodes = {**always, "c": TAKE, "f": flow("FailTimes", file=tmp_path / "f"), "u": TALLY, "t": TAKE}
    edges = "a > b > c > u, a > f > t"
    run = await shared.run(workflow(nodes, edges))
    assert run.status == "error"
    await check(shared, run, nodes, edges)

    shared.begun = shared.host.events.last_seq
    await shared.engine.resume(run.id)
    run = await shared.engine.wait(run.id)

    assert run.status == "complete", run.error
    await check(shared, run, nodes, edges)
