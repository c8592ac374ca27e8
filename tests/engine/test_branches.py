"""Branches: what follows one that was not taken is left out, without an error, until something brings them together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from engine_bench import Bench, OpenHost, give, output, slot, state, workflow
from loops_bench import flow, policy

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.executions import Run, RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]

IN, OUT = "core:GroupInput", "core:GroupOutput"


@pytest_asyncio.fixture(loop_scope="module")
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host("acme_flow") as opened:
        yield opened


def statuses(run: Run) -> dict[str, str]:
    return {name: shown.status.value for name, shown in run.nodes.items()}


def what_became(run: Run) -> dict[str, tuple[str, Any]]:
    return {name: (shown.status.value, shown.output) for name, shown in run.nodes.items()}


def switched(condition: bool) -> dict[str, Any]:
    return {"s": flow("Switch", condition=condition, value="x")}


@pytest.mark.parametrize(("condition", "ran", "left_out"), [(True, "yes", "no"), (False, "no", "yes")])
async def test_what_follows_the_other_way_is_skipped_however_far_it_goes(
    shared: Bench, condition: bool, ran: str, left_out: str
) -> None:
    names = [f"{way}{i}" for way in ("yes", "no") for i in range(3)]
    document = workflow(
        {**switched(condition), **dict.fromkeys(names, "Take"), "merge": flow("Merge")},
        "s.yes > yes0.value",
        "s.no > no0.value",
        *(f"{way}{i}.value > {way}{i + 1}.value" for way in ("yes", "no") for i in range(2)),
        "yes2.value > merge.values",
        "no2.value > merge.values",
    )

    run = await shared.run(document)

    assert run.status == "complete"
    assert output(run, "merge") == "x"
    assert {state(run, f"{ran}{i}").status for i in range(3)} == {"complete"}
    assert {state(run, f"{left_out}{i}").status for i in range(3)} == {"skipped"}


async def test_a_node_runs_without_an_optional_input_whose_branch_was_not_taken(shared: Bench) -> None:
    document = workflow(
        {**switched(True), "one": give(1), "n": flow("Needs", may="written")},
        "one.value > n.must",
        "s.no > n.may",
    )

    assert output(await shared.run(document), "n", "list") == [1, "written"]


async def test_a_node_is_skipped_where_a_required_input_is_on_a_branch_that_was_not_taken(shared: Bench) -> None:
    """Though its other input lives, and though a value is written down for the one that does not."""
    document = workflow(
        {**switched(True), "one": give(1), "n": flow("Needs", must="written"), "after": "Take"},
        "s.no > n.must",
        "one.value > n.may",
        "n.list > after.value",
    )

    run = await shared.run(document)

    assert statuses(run) == {"s": "complete", "one": "complete", "n": "skipped", "after": "skipped"}


async def test_a_node_is_skipped_where_all_that_comes_to_it_is_on_branches_that_were_not_taken(shared: Bench) -> None:
    document = workflow({**switched(True), "n": flow("Needs", must=1)}, "s.no > n.may")

    assert statuses(await shared.run(document))["n"] == "skipped"


async def test_an_output_that_is_no_branch_is_there_either_way(shared: Bench) -> None:
    run = await shared.run(workflow({**switched(False), "take": "Take"}, "s.both > take.value"))

    assert output(run, "take") == "x"


async def test_an_input_for_several_takes_those_that_live_in_their_order(shared: Bench) -> None:
    document = workflow(
        {**switched(True), "t": flow("Switch", condition=False, value="y"), "g": flow("Gather")},
        "s.no > g.values__0",
        "t.no > g.values__1",
        "t.yes > g.values__2",
        "s.yes > g.values__3",
    )

    assert output(await shared.run(document), "g", "list") == ["y", "x"]


async def test_an_input_for_several_none_of_which_lives_skips_its_node(shared: Bench) -> None:
    document = workflow(
        {**switched(True), "g": flow("Gather"), "m": flow("Merge")}, "s.no > g.values", "s.no > m.values"
    )

    assert statuses(await shared.run(document)) == {"s": "complete", "g": "skipped", "m": "skipped"}


async def test_a_switch_behind_a_branch_that_was_not_taken_takes_neither_way(shared: Bench) -> None:
    document = workflow(
        {**switched(True), "t": flow("Switch", condition=True), "a": "Take", "b": "Take"},
        "s.no > t.value",
        "t.yes > a.value",
        "t.no > b.value",
    )

    assert statuses(await shared.run(document)) == {"s": "complete", "t": "skipped", "a": "skipped", "b": "skipped"}


async def test_a_failed_node_is_no_branch_that_was_not_taken(shared: Bench) -> None:
    """Else a merge would hide the failure."""
    document = workflow(
        {"bad": "Boom", "one": give(1), "m": flow("Merge")}, "bad.value > m.values", "one.value > m.values"
    )

    run = await shared.run(document)

    assert (run.status, state(run, "m").status) == ("error", "skipped")


async def test_interface_outputs_of_branches_that_were_not_taken_are_not_there(shared: Bench) -> None:
    outputs = {"yes": slot(), "no": slot(), "either": slot(), "default": slot(config={"default": 5})}
    document = workflow(
        {**switched(True), "out": OUT},
        "s.yes > out.yes",
        "s.no > out.no",
        "s.both > out.either",
        interfaceOutputs=outputs,
    )

    run = await shared.run(document)

    assert run.outputs == {"yes": "x", "either": "x", "default": 5}
    assert run.status == "complete"


async def test_branches_go_through_groups_and_a_group_behind_one_is_skipped_as_a_whole(bench: Bench) -> None:
    inner = workflow(
        {"in": IN, "take": "Take", "out": OUT},
        "in.value > take.value",
        "take.value > out.value",
        interfaceInputs={"value": slot()},
        interfaceOutputs={"value": slot()},
    )
    await bench.host.services.get(WORKFLOW_MANAGER).save("inner", inner)
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}
    document = workflow(
        {**switched(False), "yes": group, "no": group, "after": "Take", "merge": flow("Merge")},
        "s.yes > yes.value",
        "s.no > no.value",
        "yes.value > after.value",
        "after.value > merge.values",
        "no.value > merge.values",
    )

    run = await bench.run(document)

    assert output(run, "merge") == "x"
    assert {name: status for name, status in statuses(run).items() if status == "skipped"} == dict.fromkeys(
        ["yes", "yes/take", "after"], "skipped"
    )


async def test_a_branch_that_ends_inside_of_a_group_leaves_its_other_outputs(bench: Bench) -> None:
    inner = workflow(
        {"in": IN, "s": flow("Switch", condition=True), "out": OUT},
        "in.value > s.value",
        "s.yes > out.yes",
        "s.no > out.no",
        interfaceInputs={"value": slot()},
        interfaceOutputs={"yes": slot(), "no": slot()},
    )
    await bench.host.services.get(WORKFLOW_MANAGER).save("inner", inner)
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}
    document = workflow(
        {"one": give(1), "g": group, "a": "Take", "b": "Take"},
        "one.value > g.value",
        "g.yes > a.value",
        "g.no > b.value",
    )

    run = await bench.run(document)

    assert (output(run, "a"), state(run, "b").status, output(run, "g", "yes")) == (1, "skipped", 1)


async def test_a_skipped_node_runs_when_its_branch_is_taken(
    shared: Bench,
) -> None:
    """With the cache: an output of the earlier run must not stand in on a branch that is not taken now."""

    def document(condition: bool) -> Any:
        return workflow({**switched(condition), "a": "Take", "b": "Take"}, "s.yes > a.value", "s.no > b.value")

    for condition, expected in [
        (True, ("complete", "skipped")),
        (False, ("skipped", "complete")),
        (True, ("complete", "skipped")),
    ]:
        run = await shared.run(document(condition))
        assert (state(run, "a").status, state(run, "b").status) == expected


async def test_a_node_whose_policy_skips_its_branch_lets_the_others_go_on(shared: Bench) -> None:
    document = workflow(
        {"bad": policy("Boom", onError="skip_branch"), "after": "Take", "one": give(1), "m": flow("Merge")},
        "bad.value > after.value",
        "after.value > m.values",
        "one.value > m.values",
    )

    run = await shared.run(document)

    assert (run.status, output(run, "m")) == ("complete", 1)
    assert (state(run, "bad").status, state(run, "after").status) == ("error", "skipped")


def two_ways(condition: bool) -> tuple[dict[str, Any], list[str]]:
    """A switch, a node on each way and a merge of both."""
    nodes = {**switched(condition), "a": "Take", "b": "Take", "m": flow("Merge")}
    return nodes, ["s.yes > a.value", "s.no > b.value", "a.value > m.values__0", "b.value > m.values__1"]


def way_within_a_way(condition: bool) -> tuple[dict[str, Any], list[str]]:
    """As `two_ways`; on the way that a true condition does not take there is another switch, with two ways of its own,
    and a node that both switches lead to."""
    nodes, edges = two_ways(condition)
    nodes |= {"t": flow("Switch", condition=True), "c": "Take", "d": "Take", "either": flow("Needs")}
    return nodes, [
        *edges,
        *("b.value > t.value", "t.yes > c.value", "t.no > d.value"),
        *("c.value > m.values__2", "d.value > m.values__3"),
        *("t.both > either.may", "s.both > either.must", "either.list > m.values__4"),
    ]


def way_without_a_node(condition: bool) -> tuple[dict[str, Any], list[str]]:
    """One way leads to the merge at once; an input that need not be fed is on it, too."""
    nodes = {**switched(condition), "a": "Take", "n": flow("Needs", must=1), "m": flow("Merge"), "one": give(1)}
    return nodes, [
        *("s.yes > m.values__0", "s.no > a.value", "a.value > m.values__1"),
        *("a.value > n.may", "one.value > n.must", "n.list > m.values__2"),
    ]


def way_of_an_error(condition: bool) -> tuple[dict[str, Any], list[str]]:
    """What follows the error of a node that has none."""
    nodes = {**switched(condition), "routed": policy("Take", onError="route"), "after": "Take", "m": flow("Merge")}
    return nodes, [
        *("s.both > routed.value", "routed.error > after.value"),
        *("routed.value > m.values__0", "after.value > m.values__1"),
    ]


def way_past_what_is_never_cached(condition: bool) -> tuple[dict[str, Any], list[str]]:
    """A node that runs each time, behind one that was not taken."""
    nodes, edges = two_ways(condition)
    nodes |= {"again": {"type": "acme-flow:Tally"}, "last": flow("Merge")}
    return nodes, [*edges, "b.value > again.value", "again.count > last.values__0", "m.value > last.values__1"]


SHAPES = [two_ways, way_within_a_way, way_without_a_node, way_of_an_error, way_past_what_is_never_cached]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
async def test_a_branch_that_was_not_taken_stays_skipped_when_what_follows_is_known_already(
    shared: Bench, shape: Any
) -> None:
    """Whichever way was taken before, and the other one in between."""
    known: dict[bool, Any] = {}
    for condition in (True, True, False, False, True):
        nodes, edges = shape(condition)
        run = await shared.run(workflow(nodes, *edges))
        assert run.status == "complete"
        assert known.setdefault(condition, what_became(run)) == what_became(run)
        uncached = await shared.engine.run(RunRequest(workflow=workflow(nodes, *edges), use_cache=False))
        assert what_became(uncached) == what_became(run)


async def test_a_branch_in_a_group_stays_skipped_when_what_follows_is_known_already(bench: Bench) -> None:
    inner = workflow(
        {"in": IN, "s": flow("Switch"), "a": "Take", "b": "Take", "out": OUT},
        *("in.value > s.value", "in.condition > s.condition", "s.yes > a.value", "s.no > b.value"),
        *("a.value > out.yes", "b.value > out.no"),
        interfaceInputs={"value": slot(), "condition": slot("BOOLEAN")},
        interfaceOutputs={"yes": slot(), "no": slot()},
    )
    await bench.host.services.get(WORKFLOW_MANAGER).save("inner", inner)
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}
    edges = ["g.no > h.value", "g.yes > a.value", "h.no > b.value", "a.value > m.values__0", "b.value > m.values__1"]
    edges.append("h.yes > m.values__2")
    known: dict[bool, Any] = {}
    for condition in (True, True, False, False, True):
        values = {"value": "x", "condition": condition}
        nodes = {"g": {**group, "inputValues": values}, "h": {**group, "inputValues": values}}
        run = await bench.run(workflow({**nodes, "a": "Take", "b": "Take", "m": flow("Merge")}, *edges))
        assert known.setdefault(condition, what_became(run)) == what_became(run)
    assert [known[True][name][0] for name in ("g/a", "g/b", "a", "b")] == ["complete", "skipped", "complete", "skipped"]


async def test_a_target_behind_a_branch_that_was_not_taken_is_skipped_the_next_time_too(shared: Bench) -> None:
    nodes, edges = way_within_a_way(True)
    for target in ("m", "either", "d"):
        request = RunRequest(workflow=workflow(nodes, *edges), targets=[target])
        runs = [await shared.engine.run(request) for _ in range(2)]
        assert what_became(runs[0]) == what_became(runs[1])


async def test_where_it_is_not_known_any_more_which_branch_was_taken_that_is_found_out(shared: Bench) -> None:
    """What the switch gives is nothing that the cache could keep; what follows is."""
    document = workflow(
        {"o": flow("Opaque", number=3), "s": flow("Switch", condition=True), "m": flow("Merge")}
        | dict.fromkeys(["a", "b"], "acme-flow:Real"),
        *("o.value > s.value", "s.yes > a.value", "s.no > b.value"),
        *("a.value > m.values__0", "b.value > m.values__1"),
    )
    runs = [await shared.run(document) for _ in range(2)]

    assert what_became(runs[0]) == what_became(runs[1])
    assert [name for name, shown in runs[1].nodes.items() if shown.cached] == ["m", "a"]
