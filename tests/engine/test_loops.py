"""Loops: what goes from one iteration to the next, what comes out, how they end, and what may be inside of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engine_bench import Bench, OpenHost, give, output, slot, state, workflow
from loops_bench import flow, inside, loop, notes, policy

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]

IN, OUT = "core:GroupInput", "core:GroupOutput"
ADD = inside("z", flow("Add"))
COUNTING = ("z.in__n > add.a", "add.sum > z.next__n")


@pytest_asyncio.fixture(loop_scope="module")
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host("acme_flow") as opened:
        yield opened


def outputs(run: Run, zone: str = "z") -> dict[str, Any]:
    """Return the outputs of a loop without its log."""
    shown = run.nodes[zone]
    assert shown.status == "complete", shown
    assert shown.output is not None
    return {key: value for key, value in shown.output.items() if key != "log"}


# --- what is carried ------------------------------------------------------------------------------


async def test_a_value_goes_from_one_iteration_to_the_next_and_its_last_comes_out(shared: Bench) -> None:
    run = await shared.run(
        workflow(
            {"z": loop("n: INTEGER = 10", count=3), "add": ADD, "take": "Take"}, *COUNTING, "z.out__n > take.value"
        )
    )

    assert output(run, "take") == 13
    assert outputs(run) == {"out__n": 13, "iterations": 3, "stopped_by": "count"}


@pytest.mark.parametrize(
    ("edge", "written", "initial", "expected"),
    [(5, 50, " = 500", 7), (None, 50, " = 500", 52), (None, None, " = 500", 502)],
)
async def test_an_edge_comes_before_a_written_value_and_that_before_the_initial_one(
    shared: Bench, edge: int | None, written: int | None, initial: str, expected: int
) -> None:
    nodes: dict[str, Any] = {"z": loop(f"n: INTEGER{initial}", count=2, values={"in__n": written}), "add": ADD}
    edges = list(COUNTING)
    if edge is not None:
        nodes["five"] = give(edge, "INTEGER")
        edges.append("five.value > z.in__n")

    assert outputs(await shared.run(workflow(nodes, *edges)))["out__n"] == expected


async def test_a_carried_value_without_a_beginning_is_not_there_in_the_first_iteration(shared: Bench) -> None:
    document = workflow(
        {"z": loop("last: WILDCARD", each="seen: WILDCARD", count=2), "take": inside("z", "Take")},
        "z.in__last > take.value",
        "z.index > z.next__last",
        "take.value > z.each__seen",
    )

    assert outputs(await shared.run(document)) == {
        "out__last": 1,
        "list__seen": ["nothing came", 0],
        "stream__seen": ["nothing came", 0],
        "iterations": 2,
        "stopped_by": "count",
    }


async def test_a_carried_value_without_an_edge_into_its_next_one_stays(shared: Bench) -> None:
    document = workflow(
        {"z": loop("n: INTEGER = 1", "still: STRING = 'same'", each="seen: STRING", count=2), "add": ADD},
        *COUNTING,
        "z.in__still > z.each__seen",
    )

    found = outputs(await shared.run(document))

    assert (found["out__still"], found["list__seen"]) == ("same", ["same", "same"])


async def test_objects_that_have_no_json_form_are_carried_too(shared: Bench) -> None:
    document = workflow(
        {
            "start": flow("Opaque", number=1),
            "z": loop("o: WILDCARD", each="r: INTEGER", count=2),
            "real": inside("z", flow("Real")),
            "add": inside("z", flow("Add")),
            "next": inside("z", flow("Opaque")),
        },
        "start.value > z.in__o",
        "z.in__o > real.value",
        "real.value > add.a",
        "add.sum > next.number",
        "next.value > z.next__o",
        "add.sum > z.each__r",
    )

    found = outputs(await shared.run(document))

    assert (found["list__r"], found["out__o"]) == ([2, 3], {"type": "opaque", "python": "builtins.complex"})


async def test_values_are_converted_on_the_way_into_the_next_iteration(shared: Bench) -> None:
    document = workflow(
        {"z": loop("text: STRING = 'x'", each="n: FLOAT", count=2)},
        "z.index > z.next__text",
        "z.index > z.each__n",
    )

    found = outputs(await shared.run(document))

    assert (found["out__text"], found["list__n"]) == ("1", [0.0, 1.0])
    assert all(isinstance(value, float) for value in found["list__n"])


async def test_two_carried_values_change_places(shared: Bench) -> None:
    """Both are read as they were at the beginning of the iteration."""
    document = workflow(
        {"z": loop("a: STRING = 'A'", "b: STRING = 'B'", count=3)}, "z.in__a > z.next__b", "z.in__b > z.next__a"
    )

    found = outputs(await shared.run(document))

    assert (found["out__a"], found["out__b"]) == ("B", "A")


async def test_a_node_that_changes_the_list_it_was_given_spoils_neither_the_workflow_nor_the_log(shared: Bench) -> None:
    document = workflow(
        {"z": loop("items: ARRAY = []", count=3), "append": inside("z", flow("AppendInPlace"))},
        "z.in__items > append.items",
        "z.index > append.item",
        "append.list > z.next__items",
    )

    first, second = await shared.run(document), await shared.run(document)

    for run in (first, second):
        assert outputs(run)["out__items"] == [0, 1, 2]
        assert [entry["carried"]["items"] for entry in output(run, "z", "log")] == [[0], [0, 1], [0, 1, 2]]


# --- what comes out -------------------------------------------------------------------------------


async def test_the_values_of_all_iterations_come_out_as_a_list_and_as_a_stream(shared: Bench) -> None:
    document = workflow(
        {"z": loop("n: INTEGER = 0", each="n: INTEGER", count=3), "add": ADD, "read": flow("Read"), "take": "Take"},
        *COUNTING,
        "add.sum > z.each__n",
        "z.stream__n > read.items",
        "z.list__n > take.value",
    )

    run = await shared.run(document)

    assert output(run, "read", "list") == [1, 2, 3]
    assert output(run, "take") == [1, 2, 3]


async def test_an_item_of_a_loops_stream_is_read_while_the_loop_goes_on(bench: Bench, tmp_path: Path) -> None:
    """The second iteration waits for a file that the reader outside makes when it gets the first item."""
    seen = tmp_path / "seen"
    document = workflow(
        {
            "z": loop(each="n: INTEGER", count=3),
            "wait": inside("z", flow("WaitAt", file=seen, at=1)),
            "read": flow("ReadNoting", file=seen),
        },
        "z.index > wait.value",
        "wait.value > z.each__n",
        "z.stream__n > read.items",
    )

    run = await asyncio.wait_for(bench.run(document), 10)

    assert output(run, "read", "list") == [0, 1, 2]
    assert notes(seen) == ["0", "1", "2"]


async def test_a_reader_that_leaves_early_does_not_end_the_loop(shared: Bench) -> None:
    document = workflow(
        {"z": loop(each="n: INTEGER", count=40), "read": flow("ReadOne")},
        "z.index > z.each__n",
        "z.stream__n > read.items",
    )

    run = await asyncio.wait_for(shared.run(document), 10)

    assert (output(run, "read"), outputs(run)["iterations"]) == (0, 40)


async def test_a_slow_reader_holds_the_loop_back_and_gets_everything(shared: Bench) -> None:
    document = workflow(
        {"z": loop(each="n: INTEGER", count=200), "read": flow("Read")},
        "z.index > z.each__n",
        "z.stream__n > read.items",
    )

    assert output(await shared.run(document), "read", "list") == list(range(200))


async def test_the_stream_of_a_loop_goes_out_by_the_interface(shared: Bench) -> None:
    document = workflow(
        {"z": loop(each="t: STRING", count=3), "out": OUT},
        "z.index > z.each__t",
        "z.stream__t > out.text",
        interfaceOutputs={"text": slot("STRING", isStream=True)},
    )

    assert (await shared.run(document)).outputs == {"text": "012"}


async def test_the_log_has_an_entry_for_each_iteration(shared: Bench) -> None:
    document = workflow({"z": loop("n: INTEGER = 5", "long: STRING", count=2), "add": ADD, "long": give("x" * 5000)},
                        *COUNTING, "long.value > z.in__long")  # fmt: skip

    log = output(await shared.run(document), "z", "log")

    assert [(entry["index"], entry["carried"]["n"]) for entry in log] == [(0, 6), (1, 7)]
    assert all(entry["seconds"] >= 0 for entry in log)
    assert log[0]["carried"]["long"] == "x" * 200 + "…"


async def test_the_log_of_a_long_loop_has_its_last_thousand_iterations(shared: Bench) -> None:
    log = output(await shared.run(workflow({"z": loop(count=1500, maxIterations=2000)})), "z", "log")

    assert [entry["index"] for entry in log] == list(range(500, 1500))


# --- how it ends ----------------------------------------------------------------------------------


async def test_no_iteration_gives_the_initial_values_and_empty_lists(shared: Bench) -> None:
    document = workflow(
        {
            "z": loop("n: INTEGER = 7", "nothing: WILDCARD", each="n: INTEGER", count=0),
            "add": ADD,
            "read": flow("Read"),
            "take": "Take",
        },
        *COUNTING,
        "add.sum > z.each__n",
        "z.stream__n > read.items",
        "z.out__nothing > take.value",
    )

    run = await shared.run(document)

    assert outputs(run) == {
        "out__n": 7, "list__n": [], "stream__n": [], "iterations": 0, "stopped_by": "count"
    }  # fmt: skip
    assert output(run, "read", "list") == []
    assert output(run, "take") == "nothing came"
    assert state(run, "add").status == "skipped"


@pytest.mark.parametrize("count", [2, 2.0])
async def test_an_edge_says_how_many_iterations_there_are(shared: Bench, count: float) -> None:
    document = workflow(
        {"two": give(count), "z": loop("n: INTEGER = 0", count=9), "add": ADD}, *COUNTING, "two.value > z.count"
    )

    assert outputs(await shared.run(document))["out__n"] == 2


@pytest.mark.parametrize(
    ("count", "shown"),
    [("3", "text"), (2.5, "a number"), (True, "a boolean"), ([1], "an array")],
)
async def test_what_is_no_integer_is_no_number_of_iterations(shared: Bench, count: Any, shown: str) -> None:
    document = workflow(
        {"many": give(count), "z": loop("n: INTEGER = 0"), "add": ADD}, *COUNTING, "many.value > z.count"
    )

    error = state(await shared.run(document), "z").error

    assert error is not None
    assert error.message == f"the input 'count': the value on edge e2 is no INTEGER: expected an integer, got {shown}"


@pytest.mark.parametrize("count", [-1, 10**7])
async def test_a_number_of_iterations_has_its_bounds(shared: Bench, count: int) -> None:
    document = workflow(
        {"many": give(count), "z": loop("n: INTEGER = 0"), "add": ADD}, *COUNTING, "many.value > z.count"
    )

    error = state(await shared.run(document), "z").error

    assert error is not None
    assert error.message == f"the number of iterations must be an integer from 0 to 1,000,000, not {count}"


async def test_null_as_the_number_of_iterations_is_none(shared: Bench) -> None:
    document = workflow(
        {"many": give(None), "z": loop("n: INTEGER = 0"), "add": ADD}, *COUNTING, "many.value > z.count"
    )

    assert outputs(await shared.run(document)) == {"out__n": 1000, "iterations": 1000, "stopped_by": "maximum"}


async def test_a_number_of_iterations_that_is_written_as_text_is_none(shared: Bench) -> None:
    document = workflow({"z": loop("n: INTEGER = 0", values={"count": "3"}), "add": ADD}, *COUNTING)

    error = state(await shared.run(document), "z").error

    assert error is not None
    assert error.message == "the number of iterations must be an integer from 0 to 1,000,000, not '3'"


@pytest.mark.parametrize(("stop_when", "expected"), [(True, 4), (False, 1)])
async def test_a_condition_ends_the_loop_after_the_iteration_in_which_it_holds(
    shared: Bench, stop_when: bool, expected: int
) -> None:
    """The condition is `3 < n`: with `stopWhen` false, the loop ends as soon as it does not hold."""
    document = workflow(
        {
            "z": loop("n: INTEGER = 0", conditionSlot="enough", stopWhen=stop_when, maxIterations=50),
            "add": ADD,
            "less": inside("z", flow("Less", a=3)),
        },
        *COUNTING,
        "add.sum > less.b",
        "less.value > z.enough",
    )

    assert outputs(await shared.run(document)) == {
        "out__n": expected,
        "iterations": expected,
        "stopped_by": "condition",
    }


async def test_the_maximum_ends_a_loop_in_any_case(shared: Bench) -> None:
    document = workflow({"z": loop("n: INTEGER = 0", count=30, maxIterations=4), "add": ADD}, *COUNTING)

    assert outputs(await shared.run(document)) == {"out__n": 4, "iterations": 4, "stopped_by": "maximum"}


async def test_a_condition_that_is_neither_true_nor_false_is_an_error(shared: Bench) -> None:
    document = workflow(
        {"z": loop(conditionSlot="enough", count=3), "text": inside("z", give("yes"))}, "text.value > z.enough"
    )

    error = state(await shared.run(document), "z").error

    assert error is not None
    expected = "the value on edge e0 is no BOOLEAN: expected a boolean, got text"
    assert error.message == f"iteration 0: what it gives: the input 'enough': {expected}"


# --- what may be inside ---------------------------------------------------------------------------


async def test_values_from_outside_are_the_same_in_all_iterations(shared: Bench) -> None:
    document = workflow(
        {
            "three": give(3, "INTEGER"),
            "z": loop("n: INTEGER = 0", each="all: ARRAY", count=3),
            "add": inside("z", flow("Add")),
            "pair": inside("z", flow("Needs")),
        },
        "z.in__n > add.a",
        "three.value > add.b",
        "add.sum > z.next__n",
        "add.sum > pair.must",
        "three.value > pair.may",
        "pair.list > z.each__all",
    )

    found = outputs(await shared.run(document))

    assert (found["out__n"], found["list__all"]) == (9, [[3, 3], [6, 3], [9, 3]])


async def test_a_value_from_a_branch_that_was_not_taken_leaves_out_what_needs_it_inside(shared: Bench) -> None:
    document = workflow(
        {
            "switch": flow("Switch", condition=True, value=1),
            "z": loop("n: INTEGER = 0", each="n: INTEGER", count=2),
            "add": inside("z", flow("Add")),
            "other": inside("z", flow("Add")),
            "merge": inside("z", flow("Merge")),
        },
        "switch.yes > add.a",
        "switch.no > other.a",
        "add.sum > merge.values",
        "other.sum > merge.values",
        "merge.value > z.each__n",
    )

    run = await shared.run(document)

    assert outputs(run)["list__n"] == [2, 2]
    assert (state(run, "other").status, run.status) == ("skipped", "complete")


async def test_a_loop_on_a_branch_that_was_not_taken_is_skipped_with_all_that_is_in_it(shared: Bench) -> None:
    document = workflow(
        {
            "switch": flow("Switch", condition=True, value=1),
            "z": loop("n: INTEGER = 0", count=2),
            "add": ADD,
            "take": "Take",
        },
        *COUNTING,
        "switch.no > z.in__n",
        "z.out__n > take.value",
    )

    run = await shared.run(document)

    assert {state(run, name).status for name in ("z", "add", "take")} == {"skipped"}
    assert run.status == "complete"


async def test_loops_in_loops_three_deep_with_values_from_all_levels(shared: Bench) -> None:
    """The innermost adds `outer index * 100 + middle index * 10 + index + 1000` of what the levels give."""
    document = workflow(
        {
            "thousand": give(1000, "INTEGER"),
            "a": loop("sum: INTEGER = 0", each="sum: INTEGER", count=2),
            "b": inside("a", loop("sum: INTEGER", count=3)),
            "c": inside("b", loop("sum: INTEGER", count=2)),
            "add1": inside("c", flow("Add")),
            "add2": inside("c", flow("Add")),
        },
        "a.in__sum > b.in__sum",
        "b.in__sum > c.in__sum",
        "c.in__sum > add1.a",
        "thousand.value > add1.b",
        "add1.sum > add2.a",
        "a.index > add2.b",
        "add2.sum > c.next__sum",
        "c.out__sum > b.next__sum",
        "b.out__sum > a.next__sum",
        "b.out__sum > a.each__sum",
    )

    run = await shared.run(document)

    assert outputs(run, "a")["list__sum"] == [6000, 12006]
    assert state(run, "add1").iterations == 12
    assert (state(run, "a").iterations, state(run, "b").iterations, state(run, "c").iterations) == (2, 3, 2)


async def test_a_loop_inside_of_a_frame_of_the_canvas_and_frames_in_loops(shared: Bench) -> None:
    document = workflow(
        {
            "frame": "Take",
            "z": {**loop("n: INTEGER = 0", count=2), "parentNode": "frame"},
            "inner": inside("z", "Take"),
            "add": inside("inner", flow("Add")),
        },
        *COUNTING,
    )

    assert outputs(await shared.run(document))["out__n"] == 2


async def test_loops_in_groups_and_groups_in_loops_and_several_instances(bench: Bench) -> None:
    manager = bench.host.services.get(WORKFLOW_MANAGER)
    counting = workflow(
        {"in": IN, "z": loop("n: INTEGER", count=3), "add": ADD, "out": OUT},
        *COUNTING,
        "in.n > z.in__n",
        "z.out__n > out.n",
        interfaceInputs={"n": slot("INTEGER", required=True)},
        interfaceOutputs={"n": slot("INTEGER")},
    )
    await manager.save("counting", counting)
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "counting"}}
    document = workflow(
        {
            "ten": give(10, "INTEGER"),
            "one": group,
            "two": group,
            "z": loop("n: INTEGER = 100", count=2),
            "three": inside("z", group),
        },
        "ten.value > one.n",
        "one.n > two.n",
        "z.in__n > three.n",
        "three.n > z.next__n",
    )

    run = await bench.run(document)

    assert (output(run, "one", "n"), output(run, "two", "n")) == (13, 16)
    assert outputs(run)["out__n"] == 106
    assert state(run, "one/add").iterations == 3
    assert state(run, "three/add").iterations == 6
    assert run.status == "complete"


async def test_a_node_knows_the_iteration_it_is_in(shared: Bench) -> None:
    document = workflow(
        {
            "z": loop(each="i: INTEGER", count=2),
            "i": inside("z", flow("Iteration")),
            "y": inside("z", loop(each="i: INTEGER", count=3)),
            "j": inside("y", flow("Iteration")),
            "outside": flow("Iteration"),
        },
        "i.value > z.each__i",
        "j.value > y.each__i",
    )

    run = await shared.run(document)

    assert (outputs(run)["list__i"], outputs(run, "y")["list__i"]) == ([0, 1], [0, 1, 2])
    assert output(run, "outside") is None


async def test_a_class_keeps_its_state_over_iterations_and_begins_anew_in_the_next_run(shared: Bench) -> None:
    tally = {**inside("z", flow("Tally")), "configValues": {"start": 10}}
    document = workflow({"z": loop(each="n: INTEGER", count=3), "t": tally}, "t.count > z.each__n")

    for _ in range(2):
        assert outputs(await shared.run(document))["list__n"] == [11, 12, 13]


async def test_streams_flow_inside_of_an_iteration(shared: Bench) -> None:
    document = workflow(
        {
            "z": loop("text: STRING = 'ab'", each="read: ARRAY", count=2),
            "letters": inside("z", flow("Letters")),
            "read": inside("z", flow("Read")),
        },
        "z.in__text > letters.text",
        "letters.letters > read.items",
        "letters.letters > z.next__text",
        "read.list > z.each__read",
    )

    found = outputs(await shared.run(document))

    assert (found["list__read"], found["out__text"]) == ([["a", "b"], ["a", "b"]], "ab")


async def test_a_branch_inside_that_is_not_taken_gives_nothing_in_that_iteration(shared: Bench) -> None:
    """Even numbers take the branch; it feeds the next value, the list, and the condition."""
    document = workflow(
        {
            "z": loop("last: INTEGER = -1", each="even: INTEGER", conditionSlot="stop", stopWhen=True, count=5),
            "even": inside("z", flow("IsEven")),
            "switch": inside("z", flow("Switch")),
            "less": inside("z", flow("Less", a=100)),
        },
        "z.index > even.number",
        "even.value > switch.condition",
        "z.index > switch.value",
        "switch.yes > z.next__last",
        "switch.yes > z.each__even",
        "switch.no > less.b",
        "less.value > z.stop",
    )

    found = outputs(await shared.run(document))

    assert (found["list__even"], found["out__last"]) == ([0, 2, 4], 4)
    assert (found["iterations"], found["stopped_by"]) == (5, "count")


async def test_a_bypassed_loop_has_no_iterations(shared: Bench) -> None:
    document = workflow(
        {"z": {**loop("n: INTEGER = 4", each="n: INTEGER", count=3), "bypassed": True}, "add": ADD, "take": "Take"},
        *COUNTING,
        "z.out__n > take.value",
    )

    run = await shared.run(document)

    assert outputs(run)["iterations"] == 0
    assert state(run, "z").bypassed
    assert (output(run, "take"), state(run, "add").status) == (4, "skipped")


async def test_a_body_without_nodes_counts_and_leaves_the_event_loop_to_others(shared: Bench) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count())
    run = await shared.run(
        workflow({"z": loop("n: INTEGER = 0", count=2000, maxIterations=2000)}, "z.index > z.next__n")
    )
    other.cancel()

    assert outputs(run)["out__n"] == 1999
    assert turns >= 3


# --- failures -------------------------------------------------------------------------------------


def failing(*edges: str, **given: Any) -> Workflow:
    """Return a loop that fails in its third iteration, and nodes after it."""
    return workflow(
        {
            "z": policy(loop("n: INTEGER = 0", each="n: INTEGER", count=5), **given),
            "add": ADD,
            "bad": {**inside("z", flow("FailAt", at=3)), "displayName": "The bad one"},
            "take": "Take",
            "told": "Take",
        },
        *COUNTING,
        "add.sum > bad.value",
        "bad.value > z.each__n",
        "z.list__n > take.value",
        *edges,
    )


async def test_an_error_inside_names_the_iteration_and_the_node(shared: Bench) -> None:
    run = await shared.run(failing())

    error = state(run, "z").error
    assert error is not None and run.error is not None
    assert error.message == "iteration 2: node bad (The bad one): ValueError: it is 3"
    assert run.error.message == f"node z (core:LoopZone): {error.message}"
    assert (error.code, error.details, error.plugin) == (
        "loop_failed",
        {"iteration": 2, "cause": "plugin_error"},
        "acme-flow",
    )
    assert (state(run, "bad").status, state(run, "take").status) == ("error", "skipped")
    assert state(run, "add").status == "complete"


async def test_the_error_of_a_loop_in_a_loop_names_the_way_to_it(shared: Bench) -> None:
    document = workflow(
        {"a": loop(count=2), "b": inside("a", loop(count=2)), "c": inside("b", flow("FailAt", at=1))},
        "b.index > c.value",
    )

    run = await shared.run(document)

    assert run.error is not None
    way = "node a (core:LoopZone): iteration 0: node b (core:LoopZone): iteration 1: node c (fail at)"
    assert run.error.message == f"{way}: ValueError: it is 1"


async def test_a_loop_may_be_skipped_where_it_fails(shared: Bench) -> None:
    run = await shared.run(failing(onError="skip_branch"))

    assert (run.status, state(run, "take").status, state(run, "z").status) == ("complete", "skipped", "error")


async def test_a_loop_may_have_default_outputs_where_it_fails(shared: Bench) -> None:
    run = await shared.run(failing(onError="default", defaults={"list__n": [0]}))

    assert (run.status, output(run, "take")) == ("complete", [0])


async def test_a_loop_may_hand_on_its_error(shared: Bench) -> None:
    run = await shared.run(failing("z.error > told.value", onError="route"))

    assert run.status == "complete"
    assert output(run, "told")["message"].startswith("iteration 2: ")
    assert state(run, "take").status == "skipped"


async def test_a_loop_that_is_tried_again_begins_from_its_beginning(bench: Bench, tmp_path: Path) -> None:
    document = workflow(
        {
            "z": policy(loop("n: INTEGER = 0", each="n: INTEGER", count=3), retry=1),
            "add": ADD,
            "bad": inside("z", flow("FailTimes", file=tmp_path / "calls", times=1)),
        },
        *COUNTING,
        "add.sum > bad.value",
        "bad.value > z.each__n",
    )

    run = await bench.run(document)

    assert outputs(run)["list__n"] == [1, 2, 3]
    assert state(run, "z").attempts == 2
    assert len(notes(tmp_path / "calls")) == 4


async def test_a_loop_whose_stream_has_begun_is_not_tried_again(bench: Bench, tmp_path: Path) -> None:
    document = workflow(
        {
            "z": policy(loop(each="n: INTEGER", count=3), retry=3),
            "bad": inside("z", flow("FailAt", at=1)),
            "note": inside("z", flow("NoteAlways", file=tmp_path / "calls")),
            "read": flow("Read"),
        },
        "z.index > note.value",
        "note.value > bad.value",
        "bad.value > z.each__n",
        "z.stream__n > read.items",
    )

    run = await asyncio.wait_for(bench.run(document), 10)

    assert (state(run, "z").status, state(run, "read").status) == ("error", "skipped")
    assert notes(tmp_path / "calls") == ["0", "1"]


async def test_a_loop_has_a_time_limit_for_all_its_iterations(shared: Bench) -> None:
    document = workflow(
        {"z": policy(loop(count=1000), timeout=0.1), "slow": inside("z", flow("Sleep", seconds=0.03))},
        "z.index > slow.value",
    )

    run = await shared.run(document)

    error = state(run, "z").error
    assert error is not None and error.message == "it did not end within 0.1 s"
    assert 1 <= (state(run, "z").iterations or 0) < 5


async def test_policies_of_inner_nodes_hold_in_every_iteration(shared: Bench) -> None:
    document = workflow(
        {
            "z": loop("last: INTEGER = -1", each="n: INTEGER", count=4),
            "bad": inside("z", policy(flow("FailAt", at=1), onError="skip_branch")),
            "worse": inside("z", policy(flow("FailAt", at=2), onError="default", defaults={"value": 99})),
        },
        "z.index > bad.value",
        "z.index > worse.value",
        "bad.value > z.next__last",
        "worse.value > z.each__n",
    )

    run = await shared.run(document)

    assert outputs(run)["list__n"] == [0, 1, 99, 3]
    assert outputs(run)["out__last"] == 3
    assert state(run, "bad").status == "complete"  # in the last iteration
    assert state(run, "bad").error is None


async def test_attempts_of_a_node_are_those_of_its_last_iteration(bench: Bench, tmp_path: Path) -> None:
    flaky = policy(flow("FailTimes", file=tmp_path / "calls", times=1), retry=2)
    document = workflow({"z": loop(count=2), "bad": inside("z", flaky)}, "z.index > bad.value")

    run = await bench.run(document)

    assert (state(run, "bad").attempts, state(run, "bad").iterations) == (1, 2)


# --- interrupting, telling, caching ---------------------------------------------------------------


async def test_an_interrupt_reaches_a_node_inside_of_nested_loops(bench: Bench) -> None:
    document = workflow(
        {
            "a": loop(count=2),
            "b": inside("a", loop(count=2)),
            "hang": inside("b", "Hang"),
            "other": inside("a", "Hang"),
        },
        "b.index > hang.value",
    )
    run_id = await bench.start(document)
    await bench.until("NODE_EXECUTING", nodeId="hang")
    await bench.until("NODE_EXECUTING", nodeId="other")

    assert await bench.engine.interrupt(run_id)
    run = await bench.engine.wait(run_id)

    await bench.until("ACME_RELEASED", node="hang")
    await bench.until("ACME_RELEASED", node="other")
    assert {shown.status.value for shown in run.nodes.values()} == {"interrupted"}


async def test_clients_are_told_of_inner_nodes_and_of_the_progress_of_the_loop(bench: Bench) -> None:
    run = await bench.run(workflow({"z": loop("n: INTEGER = 0", count=2), "add": ADD}, *COUNTING))

    completed, progress = [], []
    async for event in bench.host.events.subscribe(since=0):
        payload: Any = getattr(event, "payload", {})
        if payload.get("promptId") != run.id:
            continue
        if event.type == "NODE_COMPLETE":  # type: ignore[union-attr]
            completed.append((payload["nodeId"], payload["output"].get("sum")))
        elif event.type == "NODE_PROGRESS":  # type: ignore[union-attr]
            progress.append((payload["nodeId"], payload["value"], payload["max"]))
        elif payload.get("status") == "complete":
            break

    assert completed[:2] == [("add", 1), ("add", 2)]
    assert [name for name, _ in completed[2:3]] == ["z"]
    assert progress[-1] == ("z", 2, 2)


async def test_a_loop_is_cached_as_a_whole(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    document = workflow(
        {"z": loop(each="n: INTEGER", count=3), "note": inside("z", flow("Note", file=file)), "read": flow("Read")},
        "z.index > note.value",
        "note.value > z.each__n",
        "z.stream__n > read.items",
    )

    first, second = await bench.run(document), await bench.run(document)

    assert notes(file) == ["0", "1", "2"]
    assert (state(first, "z").cached, state(second, "z").cached) == (False, True)
    assert output(second, "read", "list") == [0, 1, 2]


async def test_a_loop_that_is_cached_feeds_a_reader_that_was_not_there_before(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    nodes = {"z": loop(each="n: INTEGER", count=3), "note": inside("z", flow("Note", file=file))}
    edges = ("z.index > note.value", "note.value > z.each__n")
    await bench.run(workflow(nodes, *edges))

    run = await bench.run(workflow({**nodes, "read": flow("Read")}, *edges, "z.stream__n > read.items"))

    assert output(run, "read", "list") == [0, 1, 2]
    assert notes(file) == ["0", "1", "2"]


async def test_a_loop_with_something_in_it_that_is_never_cached_is_not(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    document = workflow(
        {"z": loop(count=2), "note": inside("z", flow("NoteAlways", file=file))}, "z.index > note.value"
    )

    await bench.run(document)
    await bench.run(document)

    assert notes(file) == ["0", "1"] * 2


async def test_a_loop_in_which_something_stood_in_for_a_result_is_not_used_again(bench: Bench, tmp_path: Path) -> None:
    """At any depth: the next run tries the node itself."""
    flaky = policy(flow("FailTimes", file=tmp_path / "calls", times=2), onError="default", defaults={"value": -1})
    document = workflow(
        {
            "z": loop(each="n: ARRAY", count=1),
            "y": inside("z", loop(each="n: INTEGER", count=2)),
            "n": inside("y", flaky),
        },
        "y.index > n.value",
        "n.value > y.each__n",
        "y.list__n > z.each__n",
    )

    values = [outputs(await bench.run(document))["list__n"] for _ in range(3)]

    assert values == [[[-1, -1]], [[0, 1]], [[0, 1]]]
    assert len(notes(tmp_path / "calls")) == 4


@pytest.mark.parametrize("change", ["value", "captured", "count"])
async def test_a_loop_runs_anew_where_something_of_it_changed(bench: Bench, tmp_path: Path, change: str) -> None:
    def document(value: int) -> Any:
        return workflow(
            {
                "outside": give(value if change == "captured" else 0),
                "z": loop(each="n: ARRAY", count=value if change == "count" else 2),
                "note": inside("z", flow("Note", file=tmp_path / "calls")),
                "needs": inside("z", flow("Needs", may=value if change == "value" else 0)),
            },
            "outside.value > note.value",
            "note.value > needs.must",
            "needs.list > z.each__n",
        )

    first, second = await bench.run(document(3)), await bench.run(document(5))

    assert outputs(first)["list__n"] != outputs(second)["list__n"]


async def test_a_target_inside_of_a_loop_runs_the_whole_loop_and_what_it_needs(shared: Bench) -> None:
    document = workflow(
        {"z": loop("n: INTEGER", count=2), "add": ADD, "five": give(5, "INTEGER"), "other": "Boom", "take": "Take"},
        *COUNTING,
        "five.value > z.in__n",
        "z.out__n > take.value",
    )

    run = await shared.engine.run(RunRequest(workflow=document, targets=["add"]))

    assert run.status == "complete"
    assert outputs(run)["out__n"] == 7
    assert {state(run, name).status for name in ("other", "take")} == {"skipped"}


async def test_many_quick_iterations_hold_neither_the_event_loop_nor_memory(shared: Bench) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(count())
    document = workflow({"z": loop("n: INTEGER = 0", count=5000, maxIterations=5000), "add": ADD}, *COUNTING)
    run = await shared.run(document)
    other.cancel()

    assert outputs(run)["out__n"] == 5000
    assert turns > 1000
