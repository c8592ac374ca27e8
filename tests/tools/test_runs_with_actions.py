"""A run that was submitted with `actions` has the calls in its outputs carried out; others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.executions import RunActions, RunRequest
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

        run = await engine.run(RunRequest(workflow=says(TEXT), actions=RunActions()))

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

        run = await engine.run(RunRequest(workflow=says("!info name=absent\n"), actions=RunActions()))

    assert run.status == "complete"
    (result,) = run.outputs["__actions__"]  # type: ignore[misc]
    assert result["status"] == "error"


async def test_the_calls_of_a_run_are_made_on_behalf_of_whom_it_names(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        bench.write_info("info")
        engine = bench.host.services.get(EXECUTION_ENGINE)
        updates = bench.host.events.subscribe("TOOL_CALL_UPDATE")
        actions = RunActions(principal=Principal(kind="agent", id="clerk"))

        await engine.run(RunRequest(workflow=says(TEXT), actions=actions))

        async for event in updates:
            assert event.payload["caller"] == "agent:clerk"
            break


async def test_nobody_but_the_host_and_people_acts_for_others(open_host: OpenHost) -> None:
    async with open_host() as bench:
        engine = bench.host.services.get(EXECUTION_ENGINE)
        actions = RunActions(principal=Principal(kind="user", id="operator"))
        call = CallContext(principal=Principal(kind="agent", id="clerk"))
        with pytest.raises(TavernError, match="agent:clerk may not have calls made on behalf of user:operator"):
            await engine.run(RunRequest(workflow=says(TEXT), actions=actions), call=call)
