"""What clients are told of a run, in the platform's words and order."""

from __future__ import annotations

import asyncio
from typing import Any

from engine_bench import Bench, give, slot, workflow

IN, OUT = "core:GroupInput", "core:GroupOutput"
MESSAGES = ("EXECUTION_STATUS_UPDATE", "NODE_EXECUTING", "NODE_COMPLETE", "NODE_ERROR")


async def told(bench: Bench, document: Any, **inputs: Any) -> list[tuple[str, dict[str, Any]]]:
    """Run a workflow and return what was told of it, without its id."""
    watching = bench.host.events.subscribe(*MESSAGES)
    run = await bench.run(document, **inputs)
    await watching.close()
    found = []
    async for event in watching:
        payload: dict[str, Any] = dict(event.payload)  # type: ignore[union-attr]
        assert payload.pop("promptId") == run.id
        found.append((event.type, payload))  # type: ignore[union-attr]
    return found


async def test_a_run_is_told_from_its_beginning_to_its_outputs(bench: Bench) -> None:
    document = workflow(
        {"in": IN, "add": "Add", "out": OUT},
        "in.n > add.a, add.sum > out.answer",
        interfaceInputs={"n": slot("INTEGER")},
        interfaceOutputs={"answer": slot("INTEGER")},
    )

    assert await told(bench, document, n=1) == [
        ("EXECUTION_STATUS_UPDATE", {"status": "running"}),
        ("NODE_COMPLETE", {"nodeId": "in", "output": {"n": 1}}),
        ("NODE_COMPLETE", {"nodeId": "add", "output": {"sum": 2}}),
        ("NODE_COMPLETE", {"nodeId": "out", "output": {}}),
        ("NODE_COMPLETE", {"nodeId": "__WORKFLOW_INTERFACE_OUTPUTS__", "output": {"answer": 2}}),
        ("EXECUTION_STATUS_UPDATE", {"status": "complete"}),
    ]


async def test_a_failure_is_told_with_its_node_and_with_the_run(bench: Bench) -> None:
    document = workflow({"boom": "Boom", "after": "Take"}, "boom > after")

    events = await told(bench, document)

    error = {
        "code": "plugin_error",
        "message": "ValueError: boom",
        "details": {},
        "plugin": "acme-nodes",
        "retryable": False,
    }
    assert events[1] == ("NODE_ERROR", {"nodeId": "boom", "errorDetails": error})
    status, end = events[-1]
    assert (status, end["status"], end["skippedNodes"]) == ("EXECUTION_STATUS_UPDATE", "error", ["after"])
    assert end["errorInfo"]["message"] == "node boom (boom): ValueError: boom"
    assert not any(payload.get("nodeId") in ("after", "__WORKFLOW_INTERFACE_OUTPUTS__") for _, payload in events)


async def test_a_node_that_takes_longer_is_told_to_execute_before_it_is_complete(bench: Bench) -> None:
    events = await told(bench, workflow({"wait": {"type": "Pause", "inputValues": {"turns": 3}}}))

    about = [type for type, payload in events if payload.get("nodeId") == "wait"]
    assert about == ["NODE_EXECUTING", "NODE_COMPLETE"]


async def test_events_are_json_whatever_nodes_give(bench: Bench) -> None:
    events = await told(bench, workflow({"odd": {"type": "Odd", "configValues": {"kind": "bytes"}}, "one": give(1)}))

    (output,) = [
        payload["output"] for type, payload in events if type == "NODE_COMPLETE" and payload["nodeId"] == "odd"
    ]
    assert output == {"value": {"type": "opaque", "python": "builtins.bytes"}}


async def test_others_get_turns_between_reused_nodes(bench: Bench) -> None:
    document = workflow({f"n{number}": give(number) for number in range(5_000)})
    await bench.run(document)
    turns = 0
    seen: set[tuple[str, int]] = set()

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def read() -> None:
        async for event in bench.host.events.subscribe("NODE_COMPLETE"):
            seen.add((event.type, turns))

    others = [asyncio.create_task(work) for work in (turn(), read())]
    await asyncio.sleep(0)
    run = await bench.run(document)
    for other in others:
        other.cancel()
    assert {one.cached for one in run.nodes.values()} == {True}
    assert len(seen) > 5
