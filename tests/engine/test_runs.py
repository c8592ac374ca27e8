"""What a run gives: values along edges, where inputs come from, the workflow's interface."""

from __future__ import annotations

import asyncio

import pytest
from engine_bench import Bench, give, output, slot, workflow
from helpers.repetition import Failures
from run_cases import case, check

from tavern_host import InvalidInput, NotFound
from tavern_host.contracts.executions import RunRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")
IN, OUT = "core:GroupInput", "core:GroupOutput"
TAKE = {"type": "Take", "inputValues": {"value": "written"}}
WRITTEN = {"type": "Add", "inputValues": {"a": 10, "b": 20}}
BYTES = {"type": "opaque", "python": "builtins.bytes"}
CHAIN = {f"n{i}": {"type": "Add", "inputValues": {"a": 0}} for i in range(500)}
WIDE = {f"m{i}": {"type": "Pause", "inputValues": {"turns": i % 3}} for i in range(300)}
MEET = {"type": "Meet", "inputValues": {"room": "hall", "people": 6}}

CASES = [
    case("values go in and out by the interface", {"in": IN, "add": "Add", "out": OUT},
        "in.number > add.a, add.sum > out.answer", interfaceInputs={"number": slot("INTEGER")},
        interfaceOutputs={"answer": slot("INTEGER")}, inputs={"number": 41}, gives={"add.sum": 42},
        outputs={"answer": 42}),
    case("an empty workflow completes", {}, outputs={}),
    case("an edge comes before a written value and that before the default",
        {"five": give(5, "INTEGER"), "edge": WRITTEN, "written": WRITTEN,
            "default": {"type": "Add", "inputValues": {"a": 10, "b": None}}}, "five > edge.b",
        gives={"edge.sum": 15, "written.sum": 30, "default.sum": 11}),
    case("null on an edge is a value", {"null": give(None), "take": TAKE}, "null > take", gives={"take": None}),
    case("an edge that brings nothing leaves the written value", {"nothing": "Nothing", "take": TAKE}, "nothing > take",
        gives={"take": "written"}),
    case("a multi input without edges gets a list all the same",
        {name: {"type": "Collect", "inputValues": {"values": value}}
            for name, value in (("list", ["x", "y"]), ("one", "x"), ("none", None))},
        gives={"list.list": ["x", "y"], "one.list": ["x"], "none.list": []}),
    case("the edges of a multi input are converted one by one",
        {"a": give(1, "INTEGER"), "b": give(True, "BOOLEAN"), "c": give("c", "STRING"), "all": "CollectText"},
        "a > all.values__0, b > all.values__1, c > all.values__2", gives={"all.list": ["1", "true", "c"]}),
    case("a node with dynamic slots takes and gives what is connected",
        {"a": give(1), "mirror": {"type": "Mirror", "inputValues": {"written": 2}}, "take": "Take"},
        "a > mirror.anything, mirror.written > take", gives={"mirror.anything": 1, "mirror.written": 2, "take": 2}),
    case("six nodes that wait for one another run at the same time", {f"m{i}": MEET for i in range(6)}),
    case("a blocking node runs in a thread", {"n": "Where"}, gives={"n": "thread"}),
    case("context variables of a node do not reach other nodes",
        {"paint": {"type": "Paint", "inputValues": {"colour": "red"}}, "a": "Look", "b": "Look"},
        "paint > a, paint > b", gives={"a": "none", "b": "none"}),
    *(case(f"{kind} travels between nodes and is shown as JSON",
        {"odd": {"type": "Odd", "configValues": {"kind": kind}}, "take": "Take", "out": OUT},
        "odd > take > out.x", interfaceOutputs={"x": slot()}, outputs={"x": shown})
        for kind, shown in (("bytes", BYTES), ("model", {"real": 1}), ("surrogate", "a\ufffdb"))),
    case("a chain of many nodes runs without recursion", CHAIN, *(f"n{i}.sum > n{i + 1}.a" for i in range(499)),
        gives={"n499.sum": 500}),
    case("a wide fan-out comes together again", {"seven": give(7), **WIDE, "all": "Collect"},
        *(f"seven.value > {name}.value" for name in WIDE), *(f"{name}.value > all.values" for name in WIDE),
        gives={"all.list": [7] * 300}),
    *(case(f"{value!r} arrives at the interface as {type}", {"in": IN}, interfaceInputs={"x": slot(type)},
        inputs={"x": value}, gives={"in.x": arrives})
        for type, value, arrives in (("STRING", "x", "x"), ("STRING", 3, "3"), ("STRING", True, "true"),
            ("INTEGER", 3, 3), ("INTEGER", 3.0, 3), ("FLOAT", 3, 3.0), ("BOOLEAN", False, False),
            ("OBJECT", {"a": [1]}, {"a": [1]}), ("ARRAY", [1], [1]), ("WILDCARD", [None], [None]),
            ("BINARY", "AAE=", BYTES))),
    case("interface defaults fill up and null counts as not given", {"in": IN},
        interfaceInputs={"tone": slot("STRING", required=True, config={"default": "kind"}), "n": slot("INTEGER")},
        inputs={"tone": None, "n": None}, gives={"in.tone": "kind"}),
    case("an interface output that nothing feeds is absent", {"one": give(1), "out": OUT}, "one > out.given",
        interfaceOutputs={"given": slot(), "defaulted": slot(config={"default": 5}), "missing": slot()},
        outputs={"given": 1, "defaulted": 5}),
]  # fmt: skip


async def test_a_run_gives_what_its_workflow_says(shared: Bench) -> None:
    await check(shared, CASES)


async def test_a_stored_workflow_is_run_by_its_id(shared: Bench) -> None:
    document = workflow({"one": give(1), "out": OUT}, "one > out.x", interfaceOutputs={"x": slot()}, name="One")
    await shared.workflows.save("stored", document)
    run = await shared.engine.run(RunRequest(workflow_id="stored"))
    assert (run.outputs, run.workflow_id, run.workflow_name) == ({"x": 1}, "stored", "One")
    assert run.finished_at is not None and run.finished_at >= run.submitted_at
    with pytest.raises(InvalidInput, match="needs a workflow"):
        await shared.engine.submit(RunRequest())
    with pytest.raises(NotFound, match="no workflow 'nowhere'"):
        await shared.engine.submit(RunRequest(workflow_id="nowhere"))


async def test_a_node_knows_its_run_and_principal(shared: Bench) -> None:
    call = shared.host.call()
    run = await shared.run(workflow({"n": "Told"}), call=call)
    assert output(run, "n") == {
        "run": run.id,
        "node": "n",
        "call_run": run.id,
        "principal": "user:operator",
        "trace": call.trace_id,
        "depth": 1,
    }


async def test_a_long_run_leaves_the_event_loop_to_others(shared: Bench) -> None:
    """While 2,000 nodes run that never suspend, another task gets its turn many times."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    document = workflow({f"n{i}": {"type": "Add", "inputValues": {"a": i}} for i in range(2000)})
    run_id = await shared.start(document)
    other = asyncio.create_task(count())
    await shared.engine.wait(run_id)
    other.cancel()
    assert turns >= 3


REFUSED = [
    ("STRING", [1], "expected text, got an array"),
    ("INTEGER", "3", "expected an integer, got text"),
    ("INTEGER", 3.5, "expected an integer, got a number"),
    ("INTEGER", True, "expected an integer, got a boolean"),
    ("FLOAT", "3", "expected a number, got text"),
    ("BOOLEAN", 1, "expected a boolean, got an integer"),
    ("OBJECT", [], "expected an object, got an array"),
    ("ARRAY", {}, "expected an array, got an object"),
    ("BINARY", "no base64!", "expected binary data as base64 text, got other text"),
]


async def test_interface_values_of_another_type_are_refused(shared: Bench) -> None:
    with Failures() as failures:
        for type, value, message in REFUSED:
            with failures.row((type, value)):
                document = workflow({"in": IN}, interfaceInputs={"x": slot(type)})
                assert await shared.refusal(document, x=value) == {"$.inputs.x": f"the input 'x': {message}"}


@pytest.mark.in_process_only("the wire has whole numbers of 64 bits")
async def test_outputs_that_no_wire_carries_fail_their_node(shared: Bench) -> None:
    refused = {
        "object": "the output 'value': object is none of the types that a wire carries",
        "set": "the output 'value': set is none of the types that a wire carries",
        "nan": "the output 'value': a number must be finite, this one is nan",
        "inf": "the output 'value'[0]: a number must be finite, this one is inf",
        "keys": "the output 'value': keys must be str, one is int",
        "int": "the output 'value'.a[0]: an int must have at most 64 bits",
        "smallest": "the output 'value': an int must have at most 64 bits",
        "deep": f"the output 'value'{'[0]' * 100}: it is nested more than 100 levels deep",
        "naive": "the output 'value': a datetime must say its time zone, this one does not",
    }
    with Failures() as failures:
        for kind, message in refused.items():
            with failures.row(kind):
                odd = {"type": "Odd", "configValues": {"kind": kind}}
                run = await shared.run(workflow({"odd": odd, "take": "Take"}, "odd > take"))
                error = run.nodes["odd"].error
                assert error is not None and (error.code, error.message) == ("output_error", message)
                assert (run.status, run.nodes["take"].status) == ("error", "skipped")


async def test_an_integer_too_large_for_a_float_is_refused(shared: Bench) -> None:
    document = workflow({"in": IN}, interfaceInputs={"x": slot("FLOAT")})
    expected = "the input 'x': an int must have at most 64 bits"
    assert await shared.refusal(document, x=10**400) == {"$.inputs.x": expected}


async def test_all_problems_of_the_inputs_are_reported_together(shared: Bench) -> None:
    inputs = {"text": slot("STRING", required=True), "count": slot("INTEGER"), "tone": slot("STRING")}
    document = workflow({"in": IN}, interfaceInputs=inputs)
    assert await shared.refusal(document, count="many", tones="kind", other=1) == {
        "$.inputs.tones": "the workflow has no input 'tones' (did you mean tone?)",
        "$.inputs.other": "the workflow has no input 'other'; it has text, count, tone",
        "$.inputs.text": "the input 'text' is required",
        "$.inputs.count": "the input 'count': expected an integer, got text",
    }


async def test_defaults_are_not_shared_between_runs(shared: Bench) -> None:
    document = workflow(
        {"in": IN, "keep": "KeepsList", "out": OUT},
        "in.list > keep.items, keep > out.list",
        interfaceInputs={"list": slot("ARRAY", config={"default": ["a"]})},
        interfaceOutputs={"list": slot("ARRAY")},
    )
    first = await shared.run(document)
    first.outputs["list"].append("b")  # type: ignore[union-attr]
    assert (await shared.run(document)).outputs == {"list": ["a"]}
