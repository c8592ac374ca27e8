"""The basic nodes in workflows that a whole host runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import ExecutionEngine, Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with Host(project=tmp_path / "project") as host:
        yield host


@pytest.fixture
def engine(host: Host) -> ExecutionEngine:
    return host.services.get(EXECUTION_ENGINE)


def workflow(nodes: dict[str, dict[str, Any]], edges: list[str], **interface: Any) -> Workflow:
    """Return a workflow of nodes by id and edges written `source.slot > target.slot`."""
    ends = [[end.split(".") for end in edge.split(" > ")] for edge in edges]
    return Workflow.model_validate(
        {
            "name": "test",
            "nodes": [{"id": key, **node} for key, node in nodes.items()],
            "edges": [
                {"id": f"e{i}", "source": a, "sourceHandle": out, "target": b, "targetHandle": into}
                for i, ((a, out), (b, into)) in enumerate(ends)
            ],
            **interface,
        }
    )


async def run(engine: ExecutionEngine, document: Workflow, **inputs: Any) -> Run:
    return await engine.run(RunRequest(workflow=document, inputs=inputs))


async def test_texts_go_in_are_merged_in_order_and_come_out(engine: ExecutionEngine) -> None:
    document = workflow(
        {
            "in": {"type": "core:GroupInput"},
            "upper": {"type": "core:UpperCase"},
            "merge": {
                "type": "core:TextMerge",
                "inputValues": {"separator": r"\t"},
                "inputConnectionOrders": {"text_inputs": ["e2", "e1"]},
            },
            "out": {"type": "core:GroupOutput"},
        },
        [
            "in.word > upper.text",
            "in.word > merge.text_inputs__1",
            "upper.text > merge.text_inputs__0",
            "merge.merged_text > out.text",
        ],
        interfaceInputs={"word": {"key": "word", "dataFlowType": "STRING"}},
        interfaceOutputs={"text": {"key": "text", "dataFlowType": "STRING"}},
    )
    result = await run(engine, document, word="hi")
    assert (result.status, result.outputs) == (RunStatus.COMPLETE, {"text": "HI\thi"})


async def test_the_mode_of_a_math_operation_selects_its_inputs(engine: ExecutionEngine) -> None:
    document = workflow(
        {
            "text": {"type": "core:Text", "inputValues": {"text": "three"}},
            "length": {"type": "core:TextLength"},
            "power": {
                "type": "core:MathOperation",
                "configValues": {"operationMode": "power"},
                "inputValues": {"exponent": 3},
            },
        },
        ["text.text > length.text", "length.length > power.base"],
    )
    result = await run(engine, document)
    assert result.nodes["power"].output == {"result": 125.0}


async def test_json_is_taken_apart_and_put_into_a_text(engine: ExecutionEngine) -> None:
    document = workflow(
        {
            "parse": {
                "type": "core:ParseJson",
                "inputValues": {"text": '{"user": {"name": "Ann", "tags": ["a", "b"]}}'},
            },
            "tags": {"type": "core:JsonGet", "inputValues": {"path": "user.tags"}},
            "join": {"type": "core:JoinText", "inputValues": {"separator": ", "}},
            "user": {"type": "core:JsonGet", "inputValues": {"path": "user"}},
            "set": {"type": "core:JsonSet", "inputValues": {"key": "list"}},
            "format": {"type": "core:FormatText", "inputValues": {"template": "{name} has {list}"}},
        },
        [
            "parse.value > tags.data",
            "parse.value > user.data",
            "tags.value > join.parts",
            "user.value > set.object",
            "join.text > set.value",
            "set.object > format.values",
        ],
    )
    result = await run(engine, document)
    assert result.error is None
    assert result.nodes["format"].output == {"text": "Ann has a, b"}


async def test_a_failure_shows_the_creators_message(engine: ExecutionEngine) -> None:
    document = workflow({"stop": {"type": "core:Fail", "inputValues": {"message": "the house is full"}}}, [])
    result = await run(engine, document)
    assert result.status is RunStatus.ERROR
    error = result.nodes["stop"].error
    assert error is not None
    assert "the house is full" in error.message


async def test_interrupting_a_run_ends_a_wait(host: Host, engine: ExecutionEngine) -> None:
    document = workflow({"wait": {"type": "core:Wait", "inputValues": {"seconds": 3000}}}, [])
    started = aiter(host.events.subscribe("NODE_EXECUTING"))
    run_id = await engine.submit(RunRequest(workflow=document))
    async with asyncio.timeout(30):
        await anext(started)
        assert await engine.interrupt(run_id)
        assert (await engine.wait(run_id)).status is RunStatus.INTERRUPTED


async def test_a_counter_begins_anew_in_each_run(engine: ExecutionEngine) -> None:
    document = workflow({"count": {"type": "core:Counter", "configValues": {"start": 5}}}, [])
    results = [await run(engine, document) for _ in range(2)]
    assert [result.nodes["count"].output for result in results] == [{"count": 5}, {"count": 5}]
