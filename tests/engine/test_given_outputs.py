"""Runs that are given outputs of nodes: these count as done, and what follows them uses what was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, group, output, slot, state, workflow
from helpers.repetition import Failures
from loops_bench import flow, inside, loop, notes

from tavern_engine.cli.progress_view import ProgressView
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import served

SHARED_PLUGINS = ["acme_flow", "acme_streams"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

IN, OUT = "core:GroupInput", "core:GroupOutput"
PLUS = workflow({"in": IN, "add": "Add", "out": OUT}, "in.n > add.a, add.sum > out.n",
    interfaceInputs={"n": slot("INTEGER")}, interfaceOutputs={"n": slot("INTEGER")})  # fmt: skip


async def ran(bench: Bench, document: Workflow, overrides: dict[str, Any], **more: Any) -> Run:
    bench.begun = bench.host.events.last_seq
    return await bench.engine.run(RunRequest(workflow=document, overrides=overrides, **more))


def shown(run: Run) -> dict[str, str]:
    """Return how each node stands, in a word."""
    return {
        key: "given" if node.given else "cached" if node.cached else node.status.value
        for key, node in run.nodes.items()
    }


def chain(file: Path) -> Workflow:
    nodes = {"a": flow("Note", file=file, value=1), "b": flow("Note", file=file), "c": "Take", "d": "Take"}
    return workflow(nodes, "a > b > c > d")


async def test_given_outputs_count_as_done_and_are_marked(shared: Bench, tmp_path: Path) -> None:
    run = await ran(shared, chain(tmp_path / "notes"), {"b": {"value": "pinned"}})
    events = [(e.payload.get("nodeId"), e.payload.get("given")) for e in await shared.events(run, "NODE_COMPLETE")]
    view = ProgressView(run, lambda node_id: node_id)

    assert run.status == "complete"
    assert shown(run) == {"a": "skipped", "b": "given", "c": "complete", "d": "complete"}
    assert (output(run, "b"), output(run, "d"), notes(tmp_path / "notes")) == ("pinned", "pinned", [])
    assert events[:3] == [("b", True), ("c", None), ("d", None)]
    assert view.tally(run) == "4 nodes: 2 done, 1 given, 1 skipped"


STREAM = {"type": "acme-streams:Numbers", "inputValues": {"length": 9}}
TOTAL, SIZE = {"type": "acme-streams:Total"}, {"type": "acme-streams:Size"}
COUNTING = {"z": loop("n: INTEGER = 0", count=9), "add": inside("z", "Add"), "t": "Take"}
GROUPED = ({"a": give(1), "x": group("plus"), "t": "Take"}, "a > x.n, x.n > t")
ROWS: dict[str, tuple[dict[str, Any], str, dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "a node that is never cached": ({"u": flow("Tally"), "t": "Take"}, "u.count > t",
        {"u": {"count": 41}}, {"t.value": 41}, {"u": "given"}),
    "a branch": ({"s": flow("Switch", condition=True, value=1), "y": "Take", "n": "Take"}, "s.yes > y, s.no > n",
        {"s": {"no": 5}}, {"n.value": 5}, {"y": "skipped", "s": "given"}),
    "a stream": ({"n": STREAM, "t": TOTAL, "s": SIZE}, "n.items > t.items, n.items > s.items",
        {"n": {"items": [1, 2, 3]}}, {"t.total": 6, "s.count": 3}, {"n": "given"}),
    "a group": (*GROUPED, {"x": {"n": 70}}, {"t.value": 70, "x.n": 70},
        {"a": "skipped", "x": "given", "x/add": "skipped"}),
    "a node in a group": (*GROUPED, {"x/add": {"sum": 70}}, {"t.value": 70, "x.n": 70}, {"x/add": "given"}),
    "a loop": (COUNTING, "z.in__n > add.a, add.sum > z.next__n, z.out__n > t",
        {"z": {"out__n": 3}}, {"t.value": 3}, {"z": "given", "add": "skipped"}),
    "a value of another type": ({"o": give(1, "INTEGER"), "a": "Add", "t": "Take"}, "o > a.a, a.sum > t",
        {"a": {"sum": 4.0}}, {"t.value": 4}, {"a": "given"}),
    "a node between others that are needed": ({"a": give(1), "b": "Take", "c": "Take", "d": "Take"},
        "a > b > c, a > d", {"b": {"value": 2}}, {"c.value": 2, "d.value": 1}, {"b": "given"}),
    "a node that is not read": ({"a": give(1), "b": "Take"}, "a > b",
        {"b": {"value": 2}}, {"b.value": 2}, {"b": "given", "a": "skipped"}),
}  # fmt: skip
"""Nodes and edges, what is given, what nodes give, and how some of them stand."""


async def test_outputs_of_every_kind_of_node_can_be_given(shared: Bench) -> None:
    await shared.workflows.save("plus", PLUS)
    with Failures() as failures:
        for name, (nodes, edges, overrides, gives, stands) in ROWS.items():
            for attempt in ("at first", "again"):
                with failures.row(f"{name}, {attempt}"):
                    run = await ran(shared, workflow(nodes, edges), overrides)
                    assert run.status == "complete", run.error
                    assert {key: output(run, *key.split(".")) for key in gives} == gives
                    assert stands.items() <= shown(run).items()


async def test_what_follows_is_cached_by_what_was_given(shared: Bench) -> None:
    document = workflow({"a": {"type": "Add", "inputValues": {"a": 1}}, "b": "Add"}, "a.sum > b.a")

    own = await ran(shared, document, {})
    five = await ran(shared, document, {"a": {"sum": 5}})
    six = await ran(shared, document, {"a": {"sum": 6}})
    again = await ran(shared, document, {"a": {"sum": 5}})
    last = await ran(shared, document, {})

    assert [output(run, "b", "sum") for run in (own, five, six, again, last)] == [3, 6, 7, 6, 3]
    assert [state(run, "b").cached for run in (own, five, six, again, last)] == [False, False, False, True, True]


async def test_one_node_runs_with_its_last_inputs(shared: Bench, tmp_path: Path) -> None:
    document = chain(tmp_path / "notes")
    first = await ran(shared, document, {})
    before = {"b": first.nodes["b"].output}

    run = await ran(shared, document, before, targets=["c"], use_cache=False)

    assert shown(run) == {"a": "skipped", "b": "given", "c": "complete", "d": "skipped"}
    assert (output(run, "c"), notes(tmp_path / "notes")) == (1, ["1", "1"])


async def test_what_is_given_wrongly_is_refused_with_its_place(shared: Bench) -> None:
    await shared.workflows.save("plus", PLUS)
    numbers = {"type": "acme-streams:Numbers", "inputValues": {"length": 1}}
    document = workflow(
        {"a": {"type": "Add", "inputValues": {"a": 1}}, "b": "Add", "x": group("plus"), "z": loop(count=1),
            "i": inside("z", "Take"), "m": {"type": "Take", "bypassed": True}, "s": numbers,
            "t": {"type": "acme-streams:Total"}},
        "a.sum > b.a, b.sum > x.n, s.items > t.items",
    )  # fmt: skip
    table = [
        ({"nobody": {}}, "$.overrides.nobody", "there is no node 'nobody'"),
        ({"a": {"smu": 1}}, "$.overrides.a.smu", "the node 'a' has no output 'smu' (did you mean sum?)"),
        ({"a": {"sum": "x"}}, "$.overrides.a.sum", "the output 'sum' of 'a': expected an integer, got text"),
        ({"a": {}}, "$.overrides.a.sum", "the output 'sum' of 'a' is read and not given"),
        ({"i": {"value": 1}}, "$.overrides.i", "outputs of the node 'i' cannot be given: it is inside the loop 'z'"),
        ({"m": {"value": 1}}, "$.overrides.m", "outputs of the node 'm' cannot be given: it is bypassed"),
        ({"s": {"items": [1, "x"]}}, "$.overrides.s.items", "the output 'items' of 's': expected an integer, got text"),
    ]  # fmt: skip
    with Failures() as failures:
        for overrides, path, message in table:
            with failures.row(path), pytest.raises(InvalidInput) as caught:
                await ran(shared, document, overrides)
            found: Any = caught.value.info.details["problems"]
            with failures.row(path):
                assert any(p["path"] == path and p["message"].startswith(message) for p in found), found


@pytest.mark.asyncio(loop_scope="function")
async def test_what_was_given_stays_after_a_restart(open_host: OpenHost, tmp_path: Path) -> None:
    document = workflow(
        {"a": flow("Note", file=tmp_path / "notes"), "wait": flow("WaitUntil", file=tmp_path / "go"), "t": "Take"},
        "a > wait > t",
    )  # fmt: skip
    async with open_host("acme_flow") as bench:
        request = RunRequest(workflow=document, overrides={"a": {"value": "given"}})
        run_id = await bench.engine.submit(request)
        await bench.until("NODE_EXECUTING", nodeId="wait")
    (tmp_path / "go").touch()
    async with open_host("acme_flow") as bench:
        kept = await bench.engine.get(run_id)
        await bench.engine.resume(run_id)
        run = await bench.engine.wait(run_id)

    assert (kept.nodes["a"].given, kept.nodes["a"].output) == (True, {"value": "given"})
    assert (run.status, output(run, "t"), shown(run)["a"]) == ("complete", "given", "given")
    assert notes(tmp_path / "notes") == []


@pytest.mark.asyncio(loop_scope="function")
async def test_outputs_are_given_over_http(open_host: OpenHost) -> None:
    nodes = [{"id": i, "fullType": "core:TextMerge", "inputs": {"text_inputs": ["own"]}} for i in "ab"]
    edges = [
        {"sourceNodeId": "a", "sourceHandle": "merged_text", "targetNodeId": "b", "targetHandle": "text_inputs__0"}
    ]
    body = {"nodes": nodes, "edges": edges, "overrides": {"a": {"merged_text": "given"}}}
    async with open_host() as bench, served(bench.host) as site:
        asked = await site.post("/api/prompt", json=body)
        run_id = (await asked.json())["promptId"]
        await bench.engine.wait(run_id)
        answer = await (await site.get(f"/api/runs/{run_id}")).json()
        wrong = await site.post("/api/prompt", json={**body, "overrides": {"a": {"text": 1}}})
        refusal = await wrong.json()

    assert (answer["nodes"]["a"]["given"], answer["nodes"]["b"]["output"]) == (True, {"merged_text": "given"})
    assert (wrong.status, refusal["details"]["problems"][0]["path"]) == (400, "$.overrides.a.text")
