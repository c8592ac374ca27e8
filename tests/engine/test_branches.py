"""Branches: what follows one that was not taken is left out, without an error, until something brings them together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, output, slot, state, workflow
from loops_bench import flow, policy

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.executions import Run

IN, OUT = "core:GroupInput", "core:GroupOutput"


@pytest.fixture
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host("acme_flow") as opened:
        yield opened


def statuses(run: Run) -> dict[str, str]:
    return {name: shown.status.value for name, shown in run.nodes.items()}


def switched(condition: bool) -> dict[str, Any]:
    return {"s": flow("Switch", condition=condition, value="x")}


@pytest.mark.parametrize(("condition", "ran", "left_out"), [(True, "yes", "no"), (False, "no", "yes")])
async def test_what_follows_the_other_way_is_skipped_however_far_it_goes(
    bench: Bench, condition: bool, ran: str, left_out: str
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

    run = await bench.run(document)

    assert run.status == "complete"
    assert output(run, "merge") == "x"
    assert {state(run, f"{ran}{i}").status for i in range(3)} == {"complete"}
    assert {state(run, f"{left_out}{i}").status for i in range(3)} == {"skipped"}


async def test_a_node_runs_without_an_optional_input_whose_branch_was_not_taken(bench: Bench) -> None:
    document = workflow(
        {**switched(True), "one": give(1), "n": flow("Needs", may="written")},
        "one.value > n.must",
        "s.no > n.may",
    )

    assert output(await bench.run(document), "n", "list") == [1, "written"]


async def test_a_node_is_skipped_where_a_required_input_is_on_a_branch_that_was_not_taken(bench: Bench) -> None:
    """Though its other input lives, and though a value is written down for the one that does not."""
    document = workflow(
        {**switched(True), "one": give(1), "n": flow("Needs", must="written"), "after": "Take"},
        "s.no > n.must",
        "one.value > n.may",
        "n.list > after.value",
    )

    run = await bench.run(document)

    assert statuses(run) == {"s": "complete", "one": "complete", "n": "skipped", "after": "skipped"}


async def test_a_node_is_skipped_where_all_that_comes_to_it_is_on_branches_that_were_not_taken(bench: Bench) -> None:
    document = workflow({**switched(True), "n": flow("Needs", must=1)}, "s.no > n.may")

    assert statuses(await bench.run(document))["n"] == "skipped"


async def test_an_output_that_is_no_branch_is_there_either_way(bench: Bench) -> None:
    run = await bench.run(workflow({**switched(False), "take": "Take"}, "s.both > take.value"))

    assert output(run, "take") == "x"


async def test_an_input_for_several_takes_those_that_live_in_their_order(bench: Bench) -> None:
    document = workflow(
        {**switched(True), "t": flow("Switch", condition=False, value="y"), "g": flow("Gather")},
        "s.no > g.values__0",
        "t.no > g.values__1",
        "t.yes > g.values__2",
        "s.yes > g.values__3",
    )

    assert output(await bench.run(document), "g", "list") == ["y", "x"]


async def test_an_input_for_several_none_of_which_lives_skips_its_node(bench: Bench) -> None:
    document = workflow(
        {**switched(True), "g": flow("Gather"), "m": flow("Merge")}, "s.no > g.values", "s.no > m.values"
    )

    assert statuses(await bench.run(document)) == {"s": "complete", "g": "skipped", "m": "skipped"}


async def test_a_switch_behind_a_branch_that_was_not_taken_takes_neither_way(bench: Bench) -> None:
    document = workflow(
        {**switched(True), "t": flow("Switch", condition=True), "a": "Take", "b": "Take"},
        "s.no > t.value",
        "t.yes > a.value",
        "t.no > b.value",
    )

    assert statuses(await bench.run(document)) == {"s": "complete", "t": "skipped", "a": "skipped", "b": "skipped"}


async def test_a_failed_node_is_no_branch_that_was_not_taken(bench: Bench) -> None:
    """Else a merge would hide the failure."""
    document = workflow(
        {"bad": "Boom", "one": give(1), "m": flow("Merge")}, "bad.value > m.values", "one.value > m.values"
    )

    run = await bench.run(document)

    assert (run.status, state(run, "m").status) == ("error", "skipped")


async def test_interface_outputs_of_branches_that_were_not_taken_are_not_there(bench: Bench) -> None:
    outputs = {"yes": slot(), "no": slot(), "either": slot(), "default": slot(config={"default": 5})}
    document = workflow(
        {**switched(True), "out": OUT},
        "s.yes > out.yes",
        "s.no > out.no",
        "s.both > out.either",
        interfaceOutputs=outputs,
    )

    run = await bench.run(document)

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


async def test_a_node_that_was_skipped_once_runs_when_its_branch_is_taken_and_the_other_way_round(bench: Bench) -> None:
    """With the cache: an output of the earlier run must not stand in on a branch that is not taken now."""

    def document(condition: bool) -> Any:
        return workflow({**switched(condition), "a": "Take", "b": "Take"}, "s.yes > a.value", "s.no > b.value")

    for condition, expected in [
        (True, ("complete", "skipped")),
        (False, ("skipped", "complete")),
        (True, ("complete", "skipped")),
    ]:
        run = await bench.run(document(condition))
        assert (state(run, "a").status, state(run, "b").status) == expected


async def test_a_node_whose_policy_skips_its_branch_lets_the_others_go_on(bench: Bench) -> None:
    document = workflow(
        {"bad": policy("Boom", onError="skip_branch"), "after": "Take", "one": give(1), "m": flow("Merge")},
        "bad.value > after.value",
        "after.value > m.values",
        "one.value > m.values",
    )

    run = await bench.run(document)

    assert (run.status, output(run, "m")) == ("complete", 1)
    assert (state(run, "bad").status, state(run, "after").status) == ("error", "skipped")
