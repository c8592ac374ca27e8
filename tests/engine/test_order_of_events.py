"""The order in which a run's events come: no node is done before what feeds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, give, group, slot, workflow
from helpers.repetition import Failures, repetitions
from loops_bench import flow, inside, loop, policy

from tavern_host.contracts.executions import Run
from tavern_host.contracts.workflows import Workflow

SHARED_PLUGINS = ["acme_flow", "acme_streams"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

IN, OUT = "core:GroupInput", "core:GroupOutput"
BEGUN, DONE = "NODE_EXECUTING", ("NODE_COMPLETE", "NODE_CACHED", "NODE_BYPASSED", "NODE_ERROR")
PLUS = workflow({"in": IN, "add": "Add", "out": OUT}, "in.n > add.a, add.sum > out.n",
    interfaceInputs={"n": slot("INTEGER")}, interfaceOutputs={"n": slot("INTEGER")})  # fmt: skip


def stream(type: str, **values: Any) -> dict[str, Any]:
    return {"type": f"acme-streams:{type}", "inputValues": values}


@dataclass
class Row:
    """A workflow; `after` says of some nodes which ones are done before, beside its plain edges."""

    name: str
    nodes: dict[str, Any]
    edges: list[str]
    after: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def document(self) -> Workflow:
        return workflow(self.nodes, *self.edges, **self.more)

    def pairs(self) -> list[tuple[str, str]]:
        """Return which node feeds which: edges between nodes that run, and not those on the inner side of a loop."""
        ends = [
            (one.partition(".")[0], two.partition(".")[0]) for one, _, two in (e.partition(" > ") for e in self.edges)
        ]
        zones = {(key, node.get("parentNode")) for key, node in self.nodes.items() if isinstance(node, dict)}
        shown = {key for key, node in self.nodes.items() if node == group("plus") or "bypassed" in node}
        return [(a, b) for a, b in ends if (a, b) not in zones and (b, a) not in zones and not {a, b} & shown]


ADD = flow("Add")
ROWS = [
    Row("a chain", {"a": give(1), "b": "Take", "c": "Take", "d": "Take"},
        ["a.value > b.value", "b.value > c.value", "c.value > d.value"]),
    Row("known nodes that feed one another", {"a": give(2), "b": "Take", "c": "Take", "u": flow("Tally"),
        "v": flow("Tally"), "w": flow("Tally")},
        ["a.value > b.value", "b.value > c.value", "a.value > u.value", "b.value > v.value", "c.value > w.value"]),
    Row("unread nodes between known ones", {"a": give(3), "x": "Take", "y": "Take", "c": "Take", "u": flow("Tally"),
        "w": flow("Tally")},
        ["a.value > x.value", "x.value > y.value", "y.value > c.value", "a.value > u.value", "c.value > w.value"]),
    Row("a node that waits", {"a": give(4), "p": {"type": "Pause", "inputValues": {"turns": 3}}, "b": "Take"},
        ["a.value > p.value", "p.value > b.value"]),
    Row("streams", {"n": stream("Numbers", length=60), "r": stream("Relay"), "o": stream("AddOne"),
        "t": stream("Total"), "s": stream("Size"), "after": "Take"},
        ["n.items > r.items", "r.items > o.items", "o.items > t.items", "n.items > s.items", "t.total > after.value"]),
    Row("a stream that goes out", {"a": give(5, "INTEGER"), "n": stream("Numbers"), "out": OUT},
        ["a.value > n.length", "n.items > out.items"],
        more={"interfaceOutputs": {"items": slot("INTEGER", isStream=True)}}),
    Row("groups", {"a": give(6, "INTEGER"), "x": group("plus"), "y": group("plus"), "t": "Take"},
        ["a.value > x.n", "x.n > y.n", "y.n > t.value"],
        {"x": "x/add", "x/add": "a", "y": "y/add", "y/add": "a x/add", "t": "y/add"}),
    Row("a bypassed node", {"a": give(7), "m": {"type": "Take", "bypassed": True}, "t": "Take"},
        ["a.value > m.value", "m.value > t.value"], {"m": "a", "t": "a"}),
    Row("a loop", {"a": give(8, "INTEGER"), "b": give(3), "z": loop("n: INTEGER = 0", count=9),
        "add": inside("z", ADD), "t": "Take"},
        ["b.value > z.count", "z.in__n > add.a", "a.value > add.b", "add.sum > z.next__n", "z.out__n > t.value"],
        {"z": "add", "add": "b"}),
    Row("a loop in a loop", {"a": give(9, "INTEGER"), "z": loop("n: INTEGER = 0", count=4), "add": inside("z", ADD),
        "y": inside("z", loop("m: INTEGER = 0", count=3)), "more": inside("y", ADD), "t": "Take"},
        ["a.value > add.b", "z.in__n > add.a", "add.sum > y.in__m", "y.in__m > more.a", "more.sum > y.next__m",
            "y.out__m > z.next__n", "z.out__n > t.value"], {"z": "add y more", "more": "add a", "y": "more"}),
    Row("a failure whose place a default takes", {"a": give(10), "f": policy({"type": "Boom"}, onError="default"),
        "t": "Take"}, ["a.value > f.value", "f.value > t.value"]),
]  # fmt: skip


async def happened(bench: Bench, run: Run) -> list[tuple[str, str]]:
    """Return what happened to which node, in order."""
    found: list[tuple[str, str]] = []
    for event in await bench.events(run, BEGUN, *DONE):
        ids: Any = event.payload.get("nodeIds", [event.payload.get("nodeId")])
        found += [(event.type, node_id) for node_id in ids]
    return found


def check(row: Row, found: list[tuple[str, str]]) -> None:
    """Raise `AssertionError` where a node begins or is done before what feeds it."""
    done: dict[str, int] = {}
    begun: dict[str, int] = {}
    for place, (type, node_id) in enumerate(found):
        (begun if type == BEGUN else done).setdefault(node_id, place)
    streams = {edge.partition(".")[0] for edge in row.edges if ".items > " in edge}
    for before, after in row.pairs():
        if before in done and after in begun and before not in streams:
            assert done[before] < begun[after], f"{after} begins before {before} is done: {found}"
    inner = [(before, after) for after, several in row.after.items() for before in several.split()]
    for before, after in [*row.pairs(), *inner]:
        if before in done and after in done:
            assert done[before] < done[after], f"{after} is done before {before}: {found}"


async def test_no_node_is_done_before_what_feeds_it(shared: Bench) -> None:
    await shared.workflows.save("plus", PLUS)
    with Failures() as failures:
        for row in ROWS:
            for number in range(repetitions(3, 20)):
                with failures.row(f"{row.name}, run {number}"):
                    run = await shared.run(row.document)
                    assert run.status == "complete", run.error
                    found = await happened(shared, run)
                    if not number:
                        fed = {end for pair in row.pairs() for end in pair}
                        assert {*row.after, *fed} <= {node_id for _, node_id in found}
                    check(row, found)


async def test_a_resumed_run_tells_in_order_what_was_done(shared: Bench, tmp_path: Path) -> None:
    row = Row(
        "resumed",
        {"a": flow("NoteAlways", file=tmp_path / "a", value=1), "b": flow("NoteAlways", file=tmp_path / "b"),
            "c": "Take", "f": flow("FailTimes", file=tmp_path / "f"), "u": flow("Tally"), "t": "Take"},
        ["a.value > b.value", "b.value > c.value", "a.value > f.value", "c.value > u.value", "f.value > t.value"],
    )  # fmt: skip
    run = await shared.run(row.document)
    assert run.status == "error"
    check(row, await happened(shared, run))

    shared._begun = shared.host.events.last_seq
    await shared.engine.resume(run.id)
    run = await shared.engine.wait(run.id)

    assert run.status == "complete", run.error
    check(row, await happened(shared, run))
