"""What clients are told of a run, in the platform's words and order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engine_bench import Bench, give, slot, workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")

IN, OUT = "core:GroupInput", "core:GroupOutput"
MESSAGES = ("EXECUTION_STATUS_UPDATE", "NODE_EXECUTING", "NODE_COMPLETE", "NODE_ERROR")


async def told(bench: Bench, document: Any, **inputs: Any) -> list[tuple[str, dict[str, Any]]]:
    """Run a workflow and return what was told of it, without its id."""
    watching = bench.host.events.subscribe(*MESSAGES)
    run = await bench.run(document, **inputs)
    await watching.close()
    events: list[Any] = [event async for event in watching]
    assert {event.payload["promptId"] for event in events} == {run.id}
    return [(e.type, {key: value for key, value in e.payload.items() if key != "promptId"}) for e in events]


async def test_a_run_is_told_from_its_beginning_to_its_outputs(shared: Bench) -> None:
    slots = {"interfaceInputs": {"n": slot("INTEGER")}, "interfaceOutputs": {"answer": slot("INTEGER")}}
    document = workflow({"in": IN, "add": "Add", "out": OUT}, "in.n > add.a, add.sum > out.answer", **slots)

    assert await told(shared, document, n=1) == [
        ("EXECUTION_STATUS_UPDATE", {"status": "running"}),
        ("NODE_COMPLETE", {"nodeId": "in", "output": {"n": 1}}),
        ("NODE_COMPLETE", {"nodeId": "add", "output": {"sum": 2}}),
        ("NODE_COMPLETE", {"nodeId": "out", "output": {}}),
        ("NODE_COMPLETE", {"nodeId": "__WORKFLOW_INTERFACE_OUTPUTS__", "output": {"answer": 2}}),
        ("EXECUTION_STATUS_UPDATE", {"status": "complete"}),
    ]


async def test_a_failure_is_told_with_its_node_and_with_the_run(shared: Bench) -> None:
    events = await told(shared, workflow({"boom": "Boom", "after": "Take"}, "boom > after"))

    error = {"code": "plugin_error", "message": "ValueError: boom", "details": {}, "plugin": "acme-nodes"}
    assert events[1] == ("NODE_ERROR", {"nodeId": "boom", "errorDetails": {**error, "retryable": False}})
    status, end = events[-1]
    assert (status, end["status"], end["skippedNodes"]) == ("EXECUTION_STATUS_UPDATE", "error", ["after"])
    assert end["errorInfo"]["message"] == "node boom (boom): ValueError: boom"
    assert not any(payload.get("nodeId") in ("after", "__WORKFLOW_INTERFACE_OUTPUTS__") for _, payload in events)


async def test_slow_nodes_are_told_twice_and_values_as_json(shared: Bench) -> None:
    odd = {"type": "Odd", "configValues": {"kind": "bytes"}}
    events = await told(shared, workflow({"wait": {"type": "Pause", "inputValues": {"turns": 3}}, "odd": odd}))

    assert [type for type, payload in events if payload.get("nodeId") == "wait"] == ["NODE_EXECUTING", "NODE_COMPLETE"]
    shown = [payload["output"] for _, payload in events if payload.get("nodeId") == "odd" and "output" in payload]
    assert shown == [{"value": {"type": "opaque", "python": "builtins.bytes"}}]


async def test_others_get_turns_between_reused_nodes(shared: Bench) -> None:
    document = workflow({f"n{number}": give(number) for number in range(2_000)})
    await shared.run(document)
    turns = 0
    seen: set[int] = set()

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def read() -> None:
        async for _ in shared.host.events.subscribe("NODE_COMPLETE"):
            seen.add(turns)

    others = [asyncio.create_task(work) for work in (turn(), read())]
    await asyncio.sleep(0)
    run = await shared.run(document)
    for other in others:
        other.cancel()
    assert {one.cached for one in run.nodes.values()} == {True}
    assert len(seen) > 2
