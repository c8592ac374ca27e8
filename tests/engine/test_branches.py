"""Branches: what follows one that was not taken is left out, without an error, until something brings them together."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from engine_bench import Bench, give, group, output, slot, workflow
from helpers.repetition import Failures
from loops_bench import flow, policy
from run_cases import case, check

from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
IN, OUT = "core:GroupInput", "core:GroupOutput"
YES = {"s": flow("Switch", condition=True, value="x")}
WAYS = dict.fromkeys(["yes0", "yes1", "no0", "no1"], "Take")


def what_became(run: Run) -> dict[str, tuple[str, Any]]:
    return {name: (shown.status.value, shown.output) for name, shown in run.nodes.items()}


def switched(condition: bool) -> dict[str, Any]:
    return {"s": flow("Switch", condition=condition, value="x")}


CASES = [
    *(case(f"what follows the other way of {condition} is skipped to the end",
        {**switched(condition), **WAYS, "merge": flow("Merge")},
        "s.yes > yes0, s.no > no0, yes0 > yes1, no0 > no1, yes1 > merge.values, no1 > merge.values",
        gives={"merge": "x", f"{ran}1": "x"}, skipped=f"{not_run}0 {not_run}1")
        for condition, ran, not_run in ((True, "yes", "no"), (False, "no", "yes"))),
    case("a node runs without an optional input of a branch not taken",
        {**YES, "one": give(1), "n": flow("Needs", may="written")}, "one > n.must, s.no > n.may",
        gives={"n.list": [1, "written"]}),
    case("a node is skipped without its required input, though a value is written",
        {**YES, "one": give(1), "n": flow("Needs", must="written"), "after": "Take"},
        "s.no > n.must, one > n.may, n.list > after", gives={"one": 1}, skipped="n after"),
    case("a node all of whose edges are of branches not taken is skipped", {**YES, "n": flow("Needs", must=1)},
        "s.no > n.may", skipped="n"),
    case("an output that is no branch is there either way", {**switched(False), "take": "Take"}, "s.both > take",
        gives={"take": "x"}),
    case("a multi input takes the branches taken, in order",
        {**YES, "t": flow("Switch", condition=False, value="y"), "g": flow("Gather")},
        "s.no > g.values__0, t.no > g.values__1, t.yes > g.values__2, s.yes > g.values__3",
        gives={"g.list": ["y", "x"]}),
    case("a multi input without any branch taken skips its node", {**YES, "g": flow("Gather"), "m": flow("Merge")},
        "s.no > g.values, s.no > m.values", skipped="g m"),
    case("a switch that is skipped takes neither way",
        {**YES, "t": flow("Switch", condition=True), "a": "Take", "b": "Take"}, "s.no > t, t.yes > a, t.no > b",
        skipped="t a b"),
    case("a failed node is no branch not taken, else a merge would hide it",
        {"bad": "Boom", "one": give(1), "m": flow("Merge")}, "bad > m.values, one > m.values", skipped="m",
        error="node bad (boom): ValueError: boom"),
    case("a node whose policy skips its branch lets the others continue",
        {"bad": policy("Boom", onError="skip_branch"), "after": "Take", "one": give(1), "m": flow("Merge")},
        "bad > after > m.values, one > m.values", gives={"m": 1}, failed="bad", skipped="after"),
    case("interface outputs of branches not taken are absent", {**YES, "out": OUT},
        "s.yes > out.yes, s.no > out.no, s.both > out.either",
        interfaceOutputs={"yes": slot(), "no": slot(), "either": slot(), "default": slot(config={"default": 5})},
        outputs={"yes": "x", "either": "x", "default": 5}),
]  # fmt: skip


async def test_branches_not_taken_are_skipped(shared: Bench) -> None:
    await check(shared, CASES)


async def test_a_group_behind_a_branch_is_skipped_whole(shared: Bench) -> None:
    inner = workflow(
        {"in": IN, "take": "Take", "out": OUT},
        "in > take > out",
        interfaceInputs={"value": slot()},
        interfaceOutputs={"value": slot()},
    )
    await shared.workflows.save("inner", inner)
    document = case(
        "groups",
        {**switched(False), "yes": group("inner"), "no": group("inner"), "after": "Take", "merge": flow("Merge")},
        "s.yes > yes, s.no > no, yes > after > merge.values, no > merge.values",
        gives={"merge": "x", "no/take": "x"},
        skipped="yes yes/take after",
    )
    await check(shared, [document])


# --- with a cache ---------------------------------------------------------------------------------

WAYS_OUT = "s.yes > a, s.no > b, a > m.values__0, b > m.values__1"
TWO = {"a": "Take", "b": "Take", "m": flow("Merge")}
INNER = {"t": flow("Switch", condition=True), "c": "Take", "d": "Take", "either": flow("Needs")}
SHAPES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "two ways": (TWO, (WAYS_OUT,)),
    "a way within a way, and a node that both switches lead to": (
        {**TWO, **INNER},
        (WAYS_OUT, "b > t, t.yes > c, t.no > d, c > m.values__2, d > m.values__3",
            "t.both > either.may, s.both > either.must, either.list > m.values__4")),
    "a way without a node": (
        {"a": "Take", "n": flow("Needs", must=1), "m": flow("Merge"), "one": give(1)},
        ("s.yes > m.values__0, s.no > a, a > m.values__1, a > n.may, one > n.must, n.list > m.values__2",)),
    "what follows the error of a node that has none": (
        {"routed": policy("Take", onError="route"), "after": "Take", "m": flow("Merge")},
        ("s.both > routed, routed.error > after, routed > m.values__0, after > m.values__1",)),
    "a node that runs each time behind one that was not taken": (
        {**TWO, "again": {"type": "acme-flow:Tally"}, "last": flow("Merge")},
        (WAYS_OUT, "b > again, again.count > last.values__0, m > last.values__1")),
}  # fmt: skip
"""What follows a switch `s`, as nodes and edges."""


def shaped(name: str, condition: bool) -> Workflow:
    nodes, edges = SHAPES[name]
    return workflow({**switched(condition), **nodes}, *edges)


def in_groups(condition: bool) -> Workflow:
    """Return switches in groups, whose outputs are the ways."""
    values = {"value": "x", "condition": condition}
    nodes = {"g": group("switch", **values), "h": group("switch", **values), **TWO}
    edges = "g.no > h, g.yes > a, h.no > b, a > m.values__0, b > m.values__1, h.yes > m.values__2"
    return workflow(nodes, edges)


async def test_cached_outputs_never_stand_in_on_branches_not_taken(shared: Bench) -> None:
    """Whichever way was taken before, and the other one in between."""
    inner = workflow(
        {"in": IN, "s": flow("Switch"), "a": "Take", "b": "Take", "out": OUT},
        "in > s, in.condition > s.condition, s.yes > a, s.no > b, a > out.yes, b > out.no",
        interfaceInputs={"value": slot(), "condition": slot("BOOLEAN")},
        interfaceOutputs={"yes": slot(), "no": slot()},
    )
    await shared.workflows.save("switch", inner)
    documents = {name: partial(shaped, name) for name in SHAPES} | {"groups": in_groups}
    with Failures() as failures:
        for name, document in documents.items():
            known: dict[bool, Any] = {}
            for condition in (True, True, False, False, True):
                with failures.row((name, condition)):
                    run = await shared.run(document(condition))
                    assert run.status == "complete"
                    assert known.setdefault(condition, what_became(run)) == what_became(run)
                    request = RunRequest(workflow=document(condition), use_cache=False)
                    assert what_became(await shared.engine.run(request)) == what_became(run)
    ways = [known[True][name][0] for name in ("g/a", "g/b", "a", "b")]
    assert ways == ["complete", "skipped", "complete", "skipped"]


async def test_a_target_behind_a_branch_stays_skipped(shared: Bench) -> None:
    for target in ("m", "either", "d"):
        request = RunRequest(workflow=shaped([*SHAPES][1], True), targets=[target])
        runs = [await shared.engine.run(request) for _ in range(2)]
        assert what_became(runs[0]) == what_became(runs[1])


async def test_a_branch_that_is_no_longer_known_is_found_out(shared: Bench) -> None:
    """What the switch gives is nothing that the cache could keep; what follows is."""
    document = workflow(
        {"o": flow("Opaque", number=3), "s": flow("Switch", condition=True), "m": flow("Merge")}
        | dict.fromkeys(["a", "b"], "acme-flow:Real"),
        "o > s, s.yes > a, s.no > b, a > m.values__0, b > m.values__1",
    )
    runs = [await shared.run(document) for _ in range(2)]

    assert what_became(runs[0]) == what_became(runs[1])
    assert [name for name, shown in runs[1].nodes.items() if shown.cached] == ["m", "a"]
    assert output(runs[1], "m") == 3
