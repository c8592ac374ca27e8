"""A run that was submitted with `actions` has the calls in its outputs carried out; others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

OpenHost = Callable[..., Any]

TEXT = "Let me look.\n!info name=tavern-llm\n"


def says(text: str) -> Workflow:
    """Return a workflow whose only output is a text."""
    return Workflow.model_validate(
        {
            "nodes": [
                {"id": "text", "type": "core:Text", "inputValues": {"text": text}},
                {"id": "out", "type": "core:GroupOutput"},
            ],
            "edges": [
                {"id": "e", "source": "text", "sourceHandle": "text", "target": "out", "targetHandle": "reply"},
            ],
            "interfaceOutputs": {"reply": {"dataFlowType": "STRING"}},
        }
    )


async def test_the_calls_in_the_outputs_of_a_run_with_actions_are_carried_out(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_info("info")
        engine = bench.host.services.get(EXECUTION_ENGINE)

        run = await engine.run(RunRequest(workflow=says(TEXT), actions=True))

    assert run.status == "complete"
    assert run.outputs["reply"] == "Let me look.\n"
    (result,) = run.outputs["__actions__"]  # type: ignore[misc]
    assert (result["status"], result["output"], result["structured"]["name"]) == ("done", "reply", "tavern-llm")


async def test_the_outputs_of_a_run_without_actions_stay_as_they_are(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_info("info")
        engine = bench.host.services.get(EXECUTION_ENGINE)

        run = await engine.run(RunRequest(workflow=says(TEXT)))

    assert run.outputs == {"reply": TEXT}


async def test_a_call_that_fails_is_a_result_and_the_run_is_complete(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_info("info")
        engine = bench.host.services.get(EXECUTION_ENGINE)

        run = await engine.run(RunRequest(workflow=says("!info name=absent\n"), actions=True))

    assert run.status == "complete"
    (result,) = run.outputs["__actions__"]  # type: ignore[misc]
    assert result["status"] == "error"
