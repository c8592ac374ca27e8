"""What a run gives: values along edges, where inputs come from, the workflow's interface."""

from __future__ import annotations

import asyncio

import pytest
from engine_bench import Bench, give, output, slot, workflow

from tavern_host import WORKFLOW_MANAGER, InvalidInput, NotFound
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

IN, OUT = "core:GroupInput", "core:GroupOutput"


async def test_a_run_takes_values_at_its_interface_and_gives_values_at_its_interface(bench: Bench) -> None:
    document = workflow(
        {"in": IN, "add": "Add", "out": OUT},
        "in.number > add.a",
        "add.sum > out.answer",
        interfaceInputs={"number": slot("INTEGER")},
        interfaceOutputs={"answer": slot("INTEGER")},
        name="plus one",
    )

    run = await bench.run(document, number=41)

    assert run.status == "complete"
    assert run.outputs == {"answer": 42}
    assert run.workflow_name == "plus one"
    assert [state.status for state in run.nodes.values()] == ["complete"] * 3
    assert run.finished_at is not None and run.finished_at >= run.submitted_at


async def test_an_empty_workflow_completes(bench: Bench) -> None:
    run = await bench.run(Workflow())

    assert (run.status, run.outputs, run.nodes) == ("complete", {}, {})


async def test_a_stored_workflow_is_run_by_its_id(bench: Bench) -> None:
    document = workflow({"one": give(1), "out": OUT}, "one.value > out.x", interfaceOutputs={"x": slot()})
    await bench.host.services.get(WORKFLOW_MANAGER).save("stored", document)

    run = await bench.engine.run(RunRequest(workflow_id="stored"))

    assert run.outputs == {"x": 1}
    assert run.workflow_id == "stored"


async def test_a_run_needs_a_workflow(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="needs a workflow"):
        await bench.engine.submit(RunRequest())
    with pytest.raises(NotFound, match="no workflow 'nowhere'"):
        await bench.engine.submit(RunRequest(workflow_id="nowhere"))


async def test_an_edge_comes_before_a_written_value_and_that_before_the_default(bench: Bench) -> None:
    written = {"type": "Add", "inputValues": {"a": 10, "b": 20}}
    document = workflow(
        {
            "five": give(5, "INTEGER"),
            "edge": written,
            "written": written,
            "default": {**written, "inputValues": {"a": 10}},
        },
        "five.value > edge.b",
    )

    run = await bench.run(document)

    assert output(run, "edge", "sum") == 15
    assert output(run, "written", "sum") == 30
    assert output(run, "default", "sum") == 11


async def test_null_as_a_written_value_is_no_value(bench: Bench) -> None:
    run = await bench.run(workflow({"add": {"type": "Add", "inputValues": {"a": 1, "b": None}}}))

    assert output(run, "add", "sum") == 2


async def test_null_on_an_edge_is_a_value(bench: Bench) -> None:
    take = {"type": "Take", "inputValues": {"value": "written"}}
    run = await bench.run(workflow({"null": give(None), "take": take}, "null.value > take.value"))

    assert output(run, "take") is None


async def test_an_edge_that_brings_nothing_leaves_the_written_value(bench: Bench) -> None:
    take = {"type": "Take", "inputValues": {"value": "written"}}
    run = await bench.run(workflow({"nothing": "Nothing", "take": take}, "nothing.value > take.value"))

    assert output(run, "take") == "written"


async def test_a_multi_input_gets_a_list_in_the_order_that_the_node_says(bench: Bench) -> None:
    collect = {"type": "Collect", "inputConnectionOrders": {"values": ["e2", "e0"]}}
    document = workflow(
        {"a": give("a"), "b": give("b"), "c": give("c"), "all": collect},
        "a.value > all.values__0",
        "b.value > all.values__1",
        "c.value > all.values__2",
    )

    assert output(await bench.run(document), "all", "list") == ["c", "a", "b"]


async def test_a_multi_input_without_an_order_follows_positions_then_the_order_of_edges(bench: Bench) -> None:
    document = workflow(
        {"a": give("a"), "b": give("b"), "c": give("c"), "d": give("d"), "all": "Collect"},
        "a.value > all.values",
        "b.value > all.values__1",
        "c.value > all.values__0",
        "d.value > all.values",
    )

    assert output(await bench.run(document), "all", "list") == ["c", "b", "a", "d"]


@pytest.mark.parametrize(("written", "expected"), [(["x", "y"], ["x", "y"]), ("x", ["x"]), (None, [])])
async def test_a_multi_input_without_edges_gets_a_list_all_the_same(
    bench: Bench, written: object, expected: list[str]
) -> None:
    run = await bench.run(workflow({"all": {"type": "Collect", "inputValues": {"values": written}}}))

    assert output(run, "all", "list") == expected


async def test_the_edges_of_a_multi_input_are_converted_one_by_one(bench: Bench) -> None:
    document = workflow(
        {"a": give(1, "INTEGER"), "b": give(True, "BOOLEAN"), "c": give("c", "STRING"), "all": "CollectText"},
        "a.value > all.values__0",
        "b.value > all.values__1",
        "c.value > all.values__2",
    )

    assert output(await bench.run(document), "all", "list") == ["1", "true", "c"]


async def test_a_node_with_dynamic_slots_takes_and_gives_what_is_connected(bench: Bench) -> None:
    document = workflow(
        {"a": give(1), "mirror": {"type": "Mirror", "inputValues": {"written": 2}}, "take": "Take"},
        "a.value > mirror.anything",
        "mirror.written > take.value",
    )

    run = await bench.run(document)

    assert run.nodes["mirror"].output == {"anything": 1, "written": 2}
    assert output(run, "take") == 2


async def test_branches_run_at_the_same_time(bench: Bench) -> None:
    """Each node waits until the other five are there."""
    meet = {"type": "Meet", "inputValues": {"room": "hall", "people": 6}}
    run = await bench.run(workflow({f"m{i}": meet for i in range(6)}))

    assert run.status == "complete"


async def test_a_node_knows_its_run_and_acts_for_who_asked(bench: Bench) -> None:
    call = bench.host.call()

    run = await bench.run(workflow({"n": "Told"}), call=call)

    assert output(run, "n") == {
        "run": run.id,
        "node": "n",
        "call_run": run.id,
        "principal": "user:operator",
        "trace": call.trace_id,
        "depth": 1,
    }


async def test_a_blocking_node_runs_in_a_thread(bench: Bench) -> None:
    assert output(await bench.run(workflow({"n": "Where"})), "n") == "thread"


async def test_what_a_node_does_to_context_variables_does_not_reach_other_nodes(bench: Bench) -> None:
    nodes = {"paint": {"type": "Paint", "inputValues": {"colour": "red"}}}
    after = {f"look{i}": "Look" for i in range(3)}
    run = await bench.run(workflow(nodes | after, *(f"paint.value > {name}.value" for name in after)))

    assert [output(run, name) for name in after] == ["none"] * 3


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("object", {"type": "opaque", "python": "builtins.object"}),
        ("nan", {"type": "opaque", "python": "builtins.float"}),
        ("inf", [{"type": "opaque", "python": "builtins.float"}]),
        ("bytes", {"type": "opaque", "python": "builtins.bytes"}),
        ("keys", {"type": "opaque", "python": "builtins.dict"}),
        ("surrogate", "a?b"),
    ],
)
async def test_values_that_json_does_not_have_travel_between_nodes_and_are_shown_as_opaque(
    bench: Bench, kind: str, shown: object
) -> None:
    document = workflow(
        {"odd": {"type": "Odd", "configValues": {"kind": kind}}, "take": "Take", "out": OUT},
        "odd.value > take.value",
        "take.value > out.x",
        interfaceOutputs={"x": slot()},
    )

    run = await bench.run(document)

    assert run.outputs == {"x": shown}


async def test_a_chain_of_many_nodes_runs_without_recursion(bench: Bench) -> None:
    links = [f"n{i}.sum > n{i + 1}.a" for i in range(499)]
    nodes = {f"n{i}": "Add" for i in range(500)}
    nodes["n0"] = {"type": "Add", "inputValues": {"a": 0}}  # type: ignore[assignment]

    run = await bench.run(workflow(nodes, *links))

    assert output(run, "n499", "sum") == 500


async def test_a_wide_fan_out_comes_together_again(bench: Bench) -> None:
    middle = {f"m{i}": {"type": "Pause", "inputValues": {"turns": i % 3}} for i in range(300)}
    document = workflow(
        {"seven": give(7), **middle, "all": "Collect"},
        *(f"seven.value > {name}.value" for name in middle),
        *(f"{name}.value > all.values" for name in middle),
    )

    assert output(await bench.run(document), "all", "list") == [7] * 300


async def test_a_long_run_leaves_the_event_loop_to_others(bench: Bench) -> None:
    """While 2,000 nodes run that never suspend, another task gets its turn many times."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    document = workflow({f"n{i}": {"type": "Add", "inputValues": {"a": i}} for i in range(2000)})
    run_id = await bench.start(document)
    other = asyncio.create_task(count())
    await bench.engine.wait(run_id)
    other.cancel()

    assert turns >= 3


# --- the interface --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "given", "arrives"),
    [
        ("STRING", "x", "x"),
        ("STRING", 3, "3"),
        ("STRING", True, "true"),
        ("INTEGER", 3, 3),
        ("INTEGER", 3.0, 3),
        ("FLOAT", 3, 3.0),
        ("BOOLEAN", False, False),
        ("OBJECT", {"a": [1]}, {"a": [1]}),
        ("ARRAY", [1], [1]),
        ("WILDCARD", [None], [None]),
        ("BINARY", "AAE=", {"type": "opaque", "python": "builtins.bytes"}),
    ],
)
async def test_interface_values_are_brought_to_their_type(
    bench: Bench, type: str, given: object, arrives: object
) -> None:
    document = workflow({"in": IN}, interfaceInputs={"x": slot(type)})

    run = await bench.run(document, x=given)

    shown = output(run, "in", "x")
    assert (shown, shown.__class__) == (arrives, arrives.__class__)


@pytest.mark.parametrize(
    ("type", "given", "message"),
    [
        ("STRING", [1], "expected text, got an array"),
        ("INTEGER", "3", "expected an integer, got text"),
        ("INTEGER", 3.5, "expected an integer, got a number"),
        ("INTEGER", True, "expected an integer, got a boolean"),
        ("FLOAT", "3", "expected a number, got text"),
        pytest.param(
            *("FLOAT", 10**400, "expected a number, got an integer too large for one"),
            marks=pytest.mark.in_process_only("the wire has whole numbers of 64 bits"),
        ),
        ("BOOLEAN", 1, "expected a boolean, got an integer"),
        ("OBJECT", [], "expected an object, got an array"),
        ("ARRAY", {}, "expected an array, got an object"),
        ("BINARY", "no base64!", "expected binary data as base64 text, got other text"),
    ],
)
async def test_interface_values_of_another_type_are_refused(
    bench: Bench, type: str, given: object, message: str
) -> None:
    document = workflow({"in": IN}, interfaceInputs={"x": slot(type)})

    assert await bench.refusal(document, x=given) == {"$.inputs.x": f"the input 'x': {message}"}


async def test_everything_wrong_with_the_inputs_is_said_at_once(bench: Bench) -> None:
    inputs = {"text": slot("STRING", required=True), "count": slot("INTEGER"), "tone": slot("STRING")}
    document = workflow({"in": IN}, interfaceInputs=inputs)

    assert await bench.refusal(document, count="many", tones="kind", other=1) == {
        "$.inputs.tones": "the workflow has no input 'tones' (did you mean tone?)",
        "$.inputs.other": "the workflow has no input 'other'; it has text, count, tone",
        "$.inputs.text": "the input 'text' is required",
        "$.inputs.count": "the input 'count': expected an integer, got text",
    }


async def test_interface_defaults_fill_up_and_null_counts_as_not_given(bench: Bench) -> None:
    inputs = {
        "tone": slot("STRING", required=True, config={"default": "kind"}),
        "length": slot("INTEGER"),
    }
    document = workflow({"in": IN}, interfaceInputs=inputs)

    run = await bench.run(document, tone=None, length=None)

    assert run.nodes["in"].output == {"tone": "kind"}


async def test_an_interface_output_that_nothing_feeds_is_not_there(bench: Bench) -> None:
    outputs = {"given": slot(), "defaulted": slot(config={"default": 5}), "missing": slot()}
    document = workflow({"one": give(1), "out": OUT}, "one.value > out.given", interfaceOutputs=outputs)

    assert (await bench.run(document)).outputs == {"given": 1, "defaulted": 5}


async def test_defaults_are_not_shared_between_runs(bench: Bench) -> None:
    inputs = {"list": slot("ARRAY", config={"default": ["a"]})}
    document = workflow(
        {"in": IN, "keep": "KeepsList", "out": OUT},
        "in.list > keep.items",
        "keep.value > out.list",
        interfaceInputs=inputs,
        interfaceOutputs={"list": slot("ARRAY")},
    )

    first = await bench.run(document)
    first.outputs["list"].append("b")  # type: ignore[union-attr]
    second = await bench.run(document)

    assert second.outputs == {"list": ["a"]}
