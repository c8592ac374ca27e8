"""What a run does when something in it fails, and what is said of it."""

from __future__ import annotations

import logging

import pytest
from engine_bench import Bench, give, slot, workflow
from run_cases import case, check

pytestmark = pytest.mark.asyncio(loop_scope="module")
IN, OUT = "core:GroupInput", "core:GroupOutput"
BOOM = "node boom (boom): ValueError: boom"
PAUSES = {f"n{i}": "Pause" for i in range(5)}

CASES = [
    case("only what depends on a failed node is skipped",
        {"one": give(1), "boom": "Boom", "child": "Take", "grandchild": "Take", "beside": "Take", "join": "Collect"},
        "one > boom > child > grandchild, one > beside, grandchild > join.values, beside > join.values",
        gives={"beside": 1}, failed="boom", skipped="child grandchild join", error=BOOM),
    case("interface outputs of branches that completed are there all the same",
        {"one": give(1), "boom": "Boom", "out": OUT}, "one > out.good, boom > out.bad, boom > out.bad_default",
        interfaceOutputs={"good": slot(), "bad": slot(), "bad_default": slot(config={"default": 1}),
            "unfed": slot(config={"default": 2})}, outputs={"good": 1, "unfed": 2}, skipped="out", error=BOOM),
    case("a required input for which nothing comes is the error of its node",
        {"in": IN, "add": "Add", "beside": give(1)}, "in.number > add.a", interfaceInputs={"number": slot("INTEGER")},
        gives={"beside": 1}, failed="add",
        error="node add (add): the required input 'a' has no value: in.number gave none"),
    case("a node that exits ends neither the host nor other branches", {"leave": "Leave", "one": give(1)},
        gives={"one": 1}, error="node leave (leave): node Leave tried to end the program (SystemExit: 3)"),
    case("a node that cancels itself has failed and nothing else", {"c": "CancelItself", "after": "Take", **PAUSES},
        "c > after", gives=dict.fromkeys(PAUSES), skipped="after",
        error="node c (cancel itself): it was cancelled by its own code"),
    case("an error message that is not Unicode is told all the same",
        {"n": "Boom", "text": {"type": "Odd", "configValues": {"kind": "surrogate"}}}, "text > n.message",
        error="node n (boom): ValueError: a\ufffdb"),
]  # fmt: skip


async def test_a_failure_stops_what_depends_on_it(shared: Bench) -> None:
    await check(shared, CASES)


async def test_the_error_names_the_first_failed_node(shared: Bench) -> None:
    first = {"type": "Boom", "displayName": "The first", "inputValues": {"message": "out of eggs"}}
    nodes = {"first": first, "pause": {"type": "Pause", "inputValues": {"turns": 5}}, "second": "Boom"}

    run = await shared.run(workflow(nodes, "pause > second"))

    assert run.error.message == "node first (The first): ValueError: out of eggs"
    assert (run.error.code, run.error.plugin, run.error.details) == ("plugin_error", "acme-nodes", {"node": "first"})
    assert run.nodes["second"].status == "error"


async def test_a_traceback_is_logged_and_not_shown(shared: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = await shared.run(workflow({"n": "Boom"}))

    logged = [record for record in caplog.records if "node n (acme-nodes:Boom of acme-nodes)" in record.message]
    assert logged and logged[0].exc_info
    assert "Traceback" not in str(run.to_json())


async def test_all_problems_are_reported_before_anything_runs(shared: Bench) -> None:
    document = workflow(
        {"in": IN, "add": "Add", "typo": "Takes", "text": give("x", "STRING"), "loose": "Add"},
        "text > add.a, text.nothing > add.b",
        interfaceInputs={"n": slot("INTEGER", required=True)},
    )

    assert await shared.refusal(document, m=1) == {
        "$.nodes[2].type": "there is no node type 'acme-nodes:Takes' (did you mean acme-nodes:Take?)",
        "$.edges[0]": "text.value to add.a: STRING does not go into INTEGER",
        "$.edges[1].sourceHandle": "acme-nodes:Give has no output 'nothing'",
        "$.nodes[4].inputValues.a": "the required input 'a' has neither an edge, a value nor a default",
        "$.inputs.m": "the workflow has no input 'm'; it has n",
        "$.inputs.n": "the input 'n' is required",
    }
    assert (await shared.engine.queue()).running == []
