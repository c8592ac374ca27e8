"""Loops: what is carried from one iteration to the next, what comes out, how they end, what may be inside of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, give, group, output, slot, state, workflow
from loops_bench import flow, inside, loop, looped, notes, policy
from run_cases import case, check

from tavern_host.contracts.executions import RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]

IN, OUT = "core:GroupInput", "core:GroupOutput"
ADD = inside("z", "Add")
COUNTING = ("z.in__n > add.a, add.sum > z.next__n",)
GROUP = inside("z", group("counting"))


def ended(by: str, iterations: int) -> dict[str, Any]:
    return {"z.iterations": iterations, "z.stopped_by": by}


CARRIED = [
    case("the last value of a carried one comes out",
        {"z": loop("n: INTEGER = 10", count=3), "add": ADD, "take": "Take"}, *COUNTING, "z.out__n > take",
        gives={"take": 13, "z.out__n": 13, **ended("count", 3)}),
    case("an edge comes before a written value",
        {"z": loop("n: INTEGER = 500", count=2, values={"in__n": 50}), "add": ADD, "five": give(5, "INTEGER")},
        *COUNTING, "five > z.in__n", gives={"z.out__n": 7}),
    case("a written value comes before the initial one",
        {"z": loop("n: INTEGER = 500", count=2, values={"in__n": 50}), "add": ADD}, *COUNTING, gives={"z.out__n": 52}),
    case("a value without a beginning is absent in the first iteration",
        {"z": loop("last: WILDCARD", each="seen: WILDCARD", count=2), "take": inside("z", "Take")},
        "z.in__last > take, z.index > z.next__last, take > z.each__seen",
        gives={"z.out__last": 1, "z.list__seen": ["nothing came", 0], "z.stream__seen": ["nothing came", 0]}),
    case("a value without an edge into its next one stays",
        {"z": loop("n: INTEGER = 1", "still: STRING = 'same'", each="seen: STRING", count=2), "add": ADD}, *COUNTING,
        "z.in__still > z.each__seen", gives={"z.out__still": "same", "z.list__seen": ["same", "same"]}),
    case("models are carried",
        {"start": flow("Opaque", number=1), "z": loop("o: WILDCARD", each="r: INTEGER", count=2),
            "real": inside("z", flow("Real")), "add": ADD, "next": inside("z", flow("Opaque"))},
        "start > z.in__o, z.in__o > real > add.a, add.sum > next.number, next > z.next__o, add.sum > z.each__r",
        gives={"z.list__r": [2, 3], "z.out__o": {"real": 3}}),
    case("values are converted on the way into the next iteration",
        {"z": loop("text: STRING = 'x'", each="n: FLOAT", count=2)}, "z.index > z.next__text, z.index > z.each__n",
        gives={"z.out__text": "1", "z.list__n": [0.0, 1.0]}),
    case("two carried values change places", {"z": loop("a: STRING = 'A'", "b: STRING = 'B'", count=3)},
        "z.in__a > z.next__b, z.in__b > z.next__a", gives={"z.out__a": "B", "z.out__b": "A"}),
    case("the values of all iterations come out as a list and a stream",
        {"z": loop("n: INTEGER = 0", each="n: INTEGER", count=30), "add": ADD, "read": flow("Read"), "take": "Take"},
        *COUNTING, "add.sum > z.each__n, z.stream__n > read.items, z.list__n > take",
        gives={"read.list": list(range(1, 31)), "take": list(range(1, 31))}),
    case("a reader that leaves early does not end the loop",
        {"z": loop(each="n: INTEGER", count=40), "read": flow("ReadOne")},
        "z.index > z.each__n, z.stream__n > read.items", gives={"read": 0, "z.iterations": 40}),
    case("the stream of a loop goes out by the interface", {"z": loop(each="t: STRING", count=3), "out": OUT},
        "z.index > z.each__t, z.stream__t > out.text", interfaceOutputs={"text": slot("STRING", isStream=True)},
        outputs={"text": "012"}),
]  # fmt: skip


def counted(count: Any) -> tuple[dict[str, Any], ...]:
    """Return nodes of a loop whose number of iterations comes by an edge."""
    return ({"many": give(count), "z": loop("n: INTEGER = 0"), "add": ADD},)


MANY = (*COUNTING, "many.value > z.count")
NO_INTEGER = "node z (core:LoopZone): the input 'count': the value on edge e2 is no INTEGER: expected an integer, got "
BOUNDS = "node z (core:LoopZone): the number of iterations must be an integer from 0 to 1,000,000, not "
ENDING = [
    case("no iteration gives the initial values and empty lists",
        {"z": loop("n: INTEGER = 7", "nothing: WILDCARD", each="n: INTEGER", count=0), "add": ADD, "read": flow("Read"),
            "take": "Take"}, *COUNTING, "add.sum > z.each__n, z.stream__n > read.items, z.out__nothing > take",
        gives={"z.out__n": 7, "z.list__n": [], "z.stream__n": [], **ended("count", 0), "read.list": [],
            "take": "nothing came"}, skipped="add"),
    case("an edge gives the count", *counted(2), *MANY, gives={"z.out__n": 2}),
    case("a whole float is a count", *counted(2.0), *MANY, gives={"z.out__n": 2}),
    case("null is no count", *counted(None), *MANY, gives={"z.out__n": 1000, **ended("maximum", 1000)}),
    case("text is no count", *counted("3"), *MANY, error=f"{NO_INTEGER}text"),
    case("2.5 is no count", *counted(2.5), *MANY, error=f"{NO_INTEGER}a number"),
    case("true is no count", *counted(True), *MANY, error=f"{NO_INTEGER}a boolean"),
    case("the count is not negative", *counted(-1), *MANY, error=f"{BOUNDS}-1"),
    case("the count is bounded", *counted(10**7), *MANY, error=f"{BOUNDS}10000000"),
    case("a count that is written as text", {"z": loop("n: INTEGER = 0", values={"count": "3"}), "add": ADD}, *COUNTING,
        error=f"{BOUNDS}'3'"),
    *(case(f"the condition 3 < n ends a loop when it is {stop_when}",
        {"z": loop("n: INTEGER = 0", conditionSlot="enough", stopWhen=stop_when, maxIterations=50), "add": ADD,
            "less": inside("z", flow("Less", a=3))},
        *COUNTING, "add.sum > less.b, less > z.enough",
        gives={"z.out__n": iterations, **ended("condition", iterations)})
        for stop_when, iterations in ((True, 4), (False, 1))),
    case("the maximum ends a loop in any case", {"z": loop("n: INTEGER = 0", count=30, maxIterations=4), "add": ADD},
        *COUNTING, gives={"z.out__n": 4, **ended("maximum", 4)}),
    case("a condition is true or false", {"z": loop(conditionSlot="enough", count=3), "text": inside("z", give("yes"))},
        "text > z.enough",
        error="node z (core:LoopZone): iteration 0: what it gives: the input 'enough': the value on edge e0 is "
            "no BOOLEAN: expected a boolean, got text"),
]  # fmt: skip
INSIDE = [
    case("values from outside are the same in all iterations",
        {"three": give(3, "INTEGER"), "z": loop("n: INTEGER = 0", each="all: ARRAY", count=3), "add": ADD,
            "pair": inside("z", flow("Needs"))},
        "z.in__n > add.a, three > add.b, add.sum > z.next__n, add.sum > pair.must, three > pair.may",
        "pair.list > z.each__all", gives={"z.out__n": 9, "z.list__all": [[3, 3], [6, 3], [9, 3]]}),
    case("a branch outside that was not taken skips what needs it inside",
        {"switch": flow("Switch", condition=True, value=1), "z": loop("n: INTEGER = 0", each="n: INTEGER", count=2),
            "add": ADD, "other": ADD, "merge": inside("z", flow("Merge"))},
        "switch.yes > add.a, switch.no > other.a, add.sum > merge.values, other.sum > merge.values",
        "merge > z.each__n", gives={"z.list__n": [2, 2]}, skipped="other"),
    case("a loop on a branch that was not taken is skipped as a whole",
        {"switch": flow("Switch", condition=True, value=1), "z": loop("n: INTEGER = 0", count=2), "add": ADD,
            "take": "Take"}, *COUNTING, "switch.no > z.in__n, z.out__n > take", skipped="z add take"),
    case("loops in loops see the values of all levels",
        {"thousand": give(1000, "INTEGER"), "z": loop("sum: INTEGER = 0", each="sum: INTEGER", count=2),
            "b": inside("z", loop("sum: INTEGER", count=3)), "c": inside("b", loop("sum: INTEGER", count=2)),
            "add1": inside("c", "Add"), "add2": inside("c", "Add")},
        "z.in__sum > b.in__sum, b.in__sum > c.in__sum, c.in__sum > add1.a, thousand > add1.b, add1.sum > add2.a",
        "z.index > add2.b, add2.sum > c.next__sum, c.out__sum > b.next__sum, b.out__sum > z.next__sum",
        "b.out__sum > z.each__sum", gives={"z.list__sum": [6000, 12006]}),
    case("frames of the canvas are no loops",
        {"frame": "Take", "z": {**loop("n: INTEGER = 0", count=2), "parentNode": "frame"}, "inner": inside("z", "Take"),
            "add": inside("inner", "Add")}, *COUNTING, gives={"z.out__n": 2}),
    case("a node knows the iteration it is in",
        {"z": loop(each="i: INTEGER", count=2), "i": inside("z", flow("Iteration")),
            "y": inside("z", loop(each="i: INTEGER", count=3)), "j": inside("y", flow("Iteration")),
            "outside": flow("Iteration")}, "i > z.each__i, j > y.each__i",
        gives={"z.list__i": [0, 1], "outside": None}),
    case("a class keeps its state over iterations and no longer",
        {"z": loop(each="n: INTEGER", count=3), "t": {**inside("z", flow("Tally")), "configValues": {"start": 10}}},
        "t.count > z.each__n", gives={"z.list__n": [11, 12, 13]}),
    case("streams flow inside of an iteration",
        {"z": loop("text: STRING = 'ab'", each="read: ARRAY", count=2), "letters": inside("z", flow("Letters")),
            "read": inside("z", flow("Read"))},
        "z.in__text > letters.text, letters.letters > read.items, letters.letters > z.next__text",
        "read.list > z.each__read", gives={"z.list__read": [["a", "b"], ["a", "b"]], "z.out__text": "ab"}),
    case("a branch inside that is not taken gives nothing in that iteration",
        {"z": loop("last: INTEGER = -1", each="even: INTEGER", conditionSlot="stop", stopWhen=True, count=5),
            "even": inside("z", flow("IsEven")), "switch": inside("z", flow("Switch")),
            "less": inside("z", flow("Less", a=100))},
        "z.index > even.number, even > switch.condition, z.index > switch, switch.yes > z.next__last",
        "switch.yes > z.each__even, switch.no > less.b, less > z.stop",
        gives={"z.list__even": [0, 2, 4], "z.out__last": 4, **ended("count", 5)}),
    case("a bypassed loop has no iterations",
        {"z": {**loop("n: INTEGER = 4", each="n: INTEGER", count=3), "bypassed": True}, "add": ADD, "take": "Take"},
        *COUNTING, "z.out__n > take", gives={"take": 4}, skipped="add"),
    case("policies of inner nodes hold in every iteration",
        {"z": loop("last: INTEGER = -1", each="n: INTEGER", count=4),
            "bad": inside("z", policy(flow("FailAt", at=1), onError="skip_branch")),
            "worse": inside("z", policy(flow("FailAt", at=2), onError="default", defaults={"value": 99}))},
        "z.index > bad, z.index > worse, bad > z.next__last, worse > z.each__n",
        gives={"z.list__n": [0, 1, 99, 3], "z.out__last": 3}),
]  # fmt: skip


def failing(**options: Any) -> tuple[Any, ...]:
    """Return a loop that fails in its third iteration, and nodes after it."""
    nodes = {
        "z": policy(loop("n: INTEGER = 0", each="n: INTEGER", count=5), **options),
        "add": ADD,
        "bad": {**inside("z", flow("FailAt", at=3)), "displayName": "The bad one"},
        "take": "Take",
        "told": "Take",
    }
    return nodes, *COUNTING, "add.sum > bad.value", "bad.value > z.each__n", "z.list__n > take.value"


FAILURE = "iteration 2: node bad (The bad one): ValueError: it is 3"
FAILING = [
    case("a failed loop may be skipped", *failing(onError="skip_branch"), failed="z", skipped="take"),
    case("a failed loop may have default outputs", *failing(onError="default", defaults={"list__n": [0]}),
        gives={"take": [0]}, failed="z"),
    case("a failed loop may hand on its error", *failing(onError="route"), "z.error > told",
        gives={"told": {"code": "loop_failed", "message": FAILURE, "details": {"iteration": 2, "cause": "plugin_error"},
            "plugin": "acme-flow", "retryable": False}}, skipped="take"),
    case("the error of a loop in a loop names the way to it",
        {"a": loop(count=2), "b": inside("a", loop(count=2)), "c": inside("b", flow("FailAt", at=1))}, "b.index > c",
        error="node a (core:LoopZone): iteration 0: node b (core:LoopZone): iteration 1: node c (fail at): "
            "ValueError: it is 1"),
]  # fmt: skip


async def test_loops_carry_values_and_give_them(shared: Bench) -> None:
    await check(shared, CARRIED)


async def test_loops_end_by_count_condition_or_maximum(shared: Bench) -> None:
    await check(shared, ENDING)


async def test_anything_may_be_inside_of_a_loop(shared: Bench) -> None:
    await check(shared, INSIDE)


async def test_failed_loops_follow_their_policies(shared: Bench) -> None:
    await check(shared, FAILING)


async def test_an_error_inside_names_iteration_and_node(shared: Bench) -> None:
    run = await shared.run(workflow(*failing()))

    assert run.error.message == f"node z (core:LoopZone): {FAILURE}"
    assert [state(run, name).status for name in ("bad", "take", "add")] == ["error", "skipped", "complete"]


async def test_a_changed_list_spoils_neither_workflow_nor_log(shared: Bench) -> None:
    edges = "z.in__items > append.items, z.index > append.item, append.list > z.next__items"
    document = workflow(looped(loop("items: ARRAY = []", count=3), append=flow("AppendInPlace")), edges)
    for run in (await shared.run(document), await shared.run(document)):
        assert output(run, "z", "out__items") == [0, 1, 2]
        assert [entry["carried"]["items"] for entry in output(run, "z", "log")] == [[0], [0, 1], [0, 1, 2]]


async def test_a_loops_items_are_read_while_it_runs(shared: Bench, file: Path) -> None:
    """The second iteration waits for a file that the reader outside makes when it gets the first item."""
    nodes = looped(loop(each="n: INTEGER", count=3), wait=flow("WaitUntil", file=file, at=1))
    nodes["read"] = flow("Read", file=file)
    document = workflow(nodes, "z.index > wait > z.each__n, z.stream__n > read.items")
    run = await asyncio.wait_for(shared.run(document), 60)
    assert (output(run, "read", "list"), notes(file)) == ([0, 1, 2], ["0", "1", "2"])


async def test_the_log_has_the_last_thousand_iterations(shared: Bench) -> None:
    nodes = {"z": loop("n: INTEGER = 5", "long: STRING", count=1500, maxIterations=2000), "add": ADD}
    run = await shared.run(workflow({**nodes, "long": give("x" * 5000)}, *COUNTING, "long > z.in__long"))

    log = output(run, "z", "log")
    assert [(entry["index"], entry["carried"]["n"]) for entry in log] == [(n, n + 6) for n in range(500, 1500)]
    assert all(entry["seconds"] >= 0 for entry in log)
    assert log[0]["carried"]["long"] == "x" * 200 + "…"


async def test_loops_in_groups_count_for_each_instance(shared: Bench) -> None:
    counting = workflow(
        {"in": IN, "z": loop("n: INTEGER", count=3), "add": ADD, "out": OUT},
        *(*COUNTING, "in.n > z.in__n, z.out__n > out.n"),
        interfaceInputs={"n": slot("INTEGER", required=True)},
        interfaceOutputs={"n": slot("INTEGER")},
    )
    await shared.workflows.save("counting", counting)
    nodes = {"ten": give(10, "INTEGER"), "one": group("counting"), "two": group("counting"), "three": GROUP}
    edges = "ten > one.n, one.n > two.n, z.in__n > three.n, three.n > z.next__n"

    run = await shared.run(workflow({**nodes, "z": loop("n: INTEGER = 100", count=2)}, edges))

    assert (output(run, "one", "n"), output(run, "two", "n"), output(run, "z", "out__n")) == (13, 16, 106)
    assert (state(run, "one/add").iterations, state(run, "three/add").iterations) == (3, 6)


# --- trying again, interrupting, telling ----------------------------------------------------------


async def test_a_loop_is_retried_from_its_beginning(shared: Bench, calls: Path) -> None:
    """A node's attempts are those of its last iteration."""
    bad = flow("FailTimes", file=calls, times=1)
    zone = policy(loop("n: INTEGER = 0", each="n: INTEGER", count=3), retry=1)
    run = await shared.run(workflow(looped(zone, add="Add", bad=bad), *COUNTING, "add.sum > bad > z.each__n"))
    assert (output(run, "z", "list__n"), state(run, "z").attempts, len(notes(calls))) == ([1, 2, 3], 2, 4)
    calls.unlink()
    run = await shared.run(workflow(looped(loop(count=2), bad=policy(bad, retry=2)), "z.index > bad"))
    assert (state(run, "bad").attempts, state(run, "bad").iterations) == (1, 2)


async def test_a_loop_that_has_streamed_is_not_retried(shared: Bench, calls: Path) -> None:
    zone = policy(loop(each="n: INTEGER", count=3), retry=3)
    nodes = looped(zone, note=flow("NoteAlways", file=calls), bad=flow("FailAt", at=1)) | {"read": flow("Read")}
    document = workflow(nodes, "z.index > note > bad > z.each__n, z.stream__n > read.items")
    run = await asyncio.wait_for(shared.run(document), 60)
    assert (state(run, "z").status, state(run, "read").status) == ("error", "skipped")
    assert notes(calls) == ["0", "1"]


async def test_a_time_limit_holds_for_all_iterations(shared: Bench) -> None:
    nodes = looped(policy(loop(count=1000), timeout=0.1), slow=flow("Sleep", seconds=0.03))
    run = await shared.run(workflow(nodes, "z.index > slow"))

    error = state(run, "z").error
    assert error is not None and error.message == "it did not end within 0.1 s"
    assert (state(run, "z").iterations or 0) < 5


async def test_an_interrupt_reaches_nodes_inside_of_nested_loops(shared: Bench) -> None:
    nodes = {"a": loop(count=2), "b": inside("a", loop(count=2)), "h": inside("b", "Hang"), "o": inside("a", "Hang")}
    run_id = await shared.start(workflow(nodes, "b.index > h"))
    for name in "ho":
        await shared.until("NODE_EXECUTING", nodeId=name)

    run = await shared.interrupted(run_id)

    for name in "ho":
        await shared.until("ACME_RELEASED", node=name)
    assert {shown.status.value for shown in run.nodes.values()} == {"interrupted"}


async def test_inner_nodes_and_progress_are_published(shared: Bench) -> None:
    run = await shared.run(workflow({"z": loop("n: INTEGER = 0", count=2), "add": ADD}, *COUNTING))

    completed: list[Any] = [event.payload for event in await shared.events(run, "NODE_COMPLETE")]
    assert [(p["nodeId"], p["output"].get("sum")) for p in completed[:3]] == [("add", 1), ("add", 2), ("z", None)]
    last = (await shared.events(run, "NODE_PROGRESS"))[-1].payload
    assert [last[key] for key in ("nodeId", "value", "max")] == ["z", 2, 2]


# --- caching --------------------------------------------------------------------------------------


async def test_a_loop_is_cached_as_a_whole(shared: Bench, calls: Path) -> None:
    nodes = looped(loop(each="n: INTEGER", count=3), note=flow("Note", file=calls))
    for read, cached in (({}, False), ({"read": flow("Read")}, True), ({"read": flow("Read")}, True)):
        edges = ["z.index > note > z.each__n", *(["z.stream__n > read.items"] if read else [])]
        run = await shared.run(workflow({**nodes, **read}, *edges))
        assert state(run, "z").cached == cached
    assert (output(run, "read", "list"), notes(calls)) == ([0, 1, 2], ["0", "1", "2"])

    calls.unlink()
    uncached = workflow(looped(loop(count=2), n=flow("NoteAlways", file=calls)), "z.index > n")
    for _ in range(2):
        await shared.run(uncached)
    assert notes(calls) == ["0", "1"] * 2


async def test_a_loop_that_used_a_default_is_not_cached(shared: Bench, calls: Path) -> None:
    """At any depth: the next run tries the node itself."""
    flaky = policy(flow("FailTimes", file=calls, times=2), onError="default", defaults={"value": -1})
    nodes = looped(loop(each="n: ARRAY", count=1), y=loop(each="n: INTEGER", count=2)) | {"n": inside("y", flaky)}
    document = workflow(nodes, "y.index > n > y.each__n, y.list__n > z.each__n")
    values = [output(await shared.run(document), "z", "list__n") for _ in range(3)]
    assert (values, len(notes(calls))) == ([[[-1, -1]], [[0, 1]], [[0, 1]]], 4)


async def test_a_changed_loop_is_run_again(shared: Bench, calls: Path) -> None:
    for change in ("value", "captured", "count"):
        found = []
        for new in (3, 5):
            now = {"value": 0, "captured": 0, "count": 2, change: new}
            nodes = looped(
                loop(each="n: ARRAY", count=now["count"]),
                note=flow("Note", file=calls),
                needs=flow("Needs", may=now["value"]),
            )
            document = workflow(
                {**nodes, "out": give(now["captured"])}, "out > note > needs.must, needs.list > z.each__n"
            )
            found.append(output(await shared.run(document), "z", "list__n"))
        assert found[0] != found[1], change


async def test_a_target_inside_runs_the_whole_loop(shared: Bench) -> None:
    nodes = {"z": loop("n: INTEGER", count=2), "add": ADD, "five": give(5, "INTEGER"), "other": "Boom", "take": "Take"}
    nodes["by"] = {**inside("z", "Take"), "bypassed": True}
    document = workflow(nodes, *COUNTING, "five > z.in__n, z.out__n > take, add.sum > by")
    for target in ("add", "by"):
        run = await shared.engine.run(RunRequest(workflow=document, targets=[target], use_cache=False))
        assert (run.status, output(run, "z", "out__n")) == ("complete", 7)
        assert {state(run, name).status for name in ("other", "take")} == {"skipped"}


async def test_quick_iterations_leave_the_event_loop_to_others(shared: Bench) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    zone = loop("n: INTEGER = 0", count=3000, maxIterations=3000)
    other = asyncio.create_task(count())
    for body, edges, least in (({"add": ADD}, COUNTING, 1000), ({}, ["z.index > z.next__n"], 3)):
        before = turns
        run = await shared.run(workflow({"z": zone, **body}, *edges))
        assert output(run, "z", "iterations") == 3000
        assert turns - before >= least
    other.cancel()
