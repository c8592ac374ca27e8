"""What a run does when something in it fails, and what is said of it."""

from __future__ import annotations

import logging

import pytest
from engine_bench import Bench, give, output, slot, workflow

IN, OUT = "core:GroupInput", "core:GroupOutput"


async def test_only_what_depends_on_a_failed_node_is_skipped(bench: Bench) -> None:
    document = workflow(
        {"one": give(1), "boom": "Boom", "child": "Take", "grandchild": "Take", "beside": "Take", "join": "Collect"},
        "one.value > boom.value",
        "boom.value > child.value",
        "child.value > grandchild.value",
        "one.value > beside.value",
        "grandchild.value > join.values",
        "beside.value > join.values",
    )

    run = await bench.run(document)

    assert run.status == "error"
    assert {name: state.status for name, state in run.nodes.items()} == {
        "one": "complete",
        "boom": "error",
        "child": "skipped",
        "grandchild": "skipped",
        "beside": "complete",
        "join": "skipped",
    }


async def test_the_runs_error_names_the_first_node_that_failed_and_the_plugin(bench: Bench) -> None:
    first = {"type": "Boom", "displayName": "The first", "inputValues": {"message": "out of eggs"}}
    document = workflow({"first": first, "pause": {"type": "Pause", "inputValues": {"turns": 5}}, "second": "Boom"},
                        "pause.value > second.value")  # fmt: skip

    run = await bench.run(document)

    assert run.error is not None
    assert run.error.message == "node first (The first): ValueError: out of eggs"
    assert (run.error.code, run.error.plugin, run.error.details) == ("plugin_error", "acme-nodes", {"node": "first"})
    assert run.nodes["second"].status == "error"


async def test_a_traceback_is_in_the_log_and_not_in_the_run(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = await bench.run(workflow({"n": "Boom"}))

    assert any(
        record.exc_info and "node n (acme-nodes:Boom of acme-nodes)" in record.message for record in caplog.records
    )
    assert "Traceback" not in str(run.to_json())


async def test_interface_outputs_of_branches_that_completed_are_there_all_the_same(bench: Bench) -> None:
    outputs = {
        "good": slot(),
        "bad": slot(),
        "bad_default": slot(config={"default": 1}),
        "unfed": slot(config={"default": 2}),
    }
    document = workflow(
        {"one": give(1), "boom": "Boom", "out": OUT},
        "one.value > out.good",
        "boom.value > out.bad",
        "boom.value > out.bad_default",
        interfaceOutputs=outputs,
    )

    run = await bench.run(document)

    assert run.status == "error"
    assert run.outputs == {"good": 1, "unfed": 2}
    assert run.nodes["out"].status == "skipped"


async def test_a_required_input_for_which_nothing_comes_is_the_error_of_its_node(bench: Bench) -> None:
    document = workflow(
        {"in": IN, "add": "Add", "beside": give(1)},
        "in.number > add.a",
        interfaceInputs={"number": slot("INTEGER")},
    )

    run = await bench.run(document)

    assert run.nodes["add"].error is not None
    assert run.nodes["add"].error.code == "invalid_input"
    assert run.nodes["add"].error.message == "the required input 'a' has no value: in.number gave none"
    assert run.nodes["beside"].status == "complete"


async def test_everything_wrong_with_a_workflow_is_said_before_anything_runs(bench: Bench) -> None:
    document = workflow(
        {"in": IN, "add": "Add", "typo": "Takes", "text": give("x", "STRING"), "loose": "Add"},
        "text.value > add.a",
        "text.nothing > add.b",
        interfaceInputs={"n": slot("INTEGER", required=True)},
    )

    assert await bench.refusal(document, m=1) == {
        "$.nodes[2].type": "there is no node type 'acme-nodes:Takes' (did you mean acme-nodes:Take?)",
        "$.edges[0]": "text.value to add.a: STRING does not go into INTEGER",
        "$.edges[1].sourceHandle": "acme-nodes:Give has no output 'nothing'",
        "$.nodes[4].inputValues.a": "the required input 'a' has neither an edge, a value nor a default",
        "$.inputs.m": "the workflow has no input 'm'; it has n",
        "$.inputs.n": "the input 'n' is required",
    }
    assert (await bench.engine.queue()).running == []


async def test_a_node_that_exits_ends_neither_the_host_nor_other_branches(bench: Bench) -> None:
    run = await bench.run(workflow({"leave": "Leave", "one": give(1)}))

    assert run.nodes["leave"].error is not None
    assert run.nodes["leave"].error.message == "node Leave tried to end the program (SystemExit: 3)"
    assert run.nodes["one"].status == "complete"


async def test_a_node_that_cancels_itself_has_failed_and_nothing_else(bench: Bench) -> None:
    ones = {f"n{i}": {"type": "Pause"} for i in range(5)}
    document = workflow({"c": "CancelItself", "after": "Take", **ones}, "c.value > after.value")

    run = await bench.run(document)

    assert run.nodes["c"].error is not None
    assert run.nodes["c"].error.message == "it was cancelled by its own code"
    assert run.nodes["after"].status == "skipped"
    assert [output(run, name) for name in ones] == [None] * 5


async def test_an_error_message_that_is_not_unicode_is_told_all_the_same(bench: Bench) -> None:
    document = workflow({"n": {"type": "Boom"}, "text": {"type": "Odd", "configValues": {"kind": "surrogate"}}},
                        "text.value > n.message")  # fmt: skip

    run = await bench.run(document)

    assert run.nodes["n"].error is not None
    assert run.nodes["n"].error.message.startswith("ValueError: a")
    assert run.nodes["n"].error.message.isascii()
