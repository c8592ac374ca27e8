"""A run that was submitted with `actions` has the calls in its outputs carried out; others are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.executions import RunActions, RunRequest
from tavern_host.contracts.workflows import Workflow

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


async def test_a_run_with_actions_carries_out_its_calls(stocked: Any) -> None:
    stocked.write_info("info")
    engine = stocked.host.services.get(EXECUTION_ENGINE)
    updates = stocked.host.events.subscribe("TOOL_CALL_UPDATE")
    actions = RunActions(principal=Principal(kind="agent", id="clerk"))

    run = await engine.run(RunRequest(workflow=says(TEXT), actions=RunActions()))
    failed = await engine.run(RunRequest(workflow=says("!info name=absent\n"), actions=actions))
    without = await engine.run(RunRequest(workflow=says(TEXT)))
    await updates.close()

    assert (run.status, run.outputs["reply"], without.outputs) == ("complete", "Let me look.\n", {"reply": TEXT})
    (result,) = run.outputs["__actions__"]
    assert (result["status"], result["output"], result["structured"]["name"]) == ("done", "reply", "tavern-llm")
    assert (failed.status, [result["status"] for result in failed.outputs["__actions__"]]) == ("complete", ["error"])
    assert [event.payload["caller"] async for event in updates][-1] == "agent:clerk"


async def test_nobody_but_the_host_and_people_acts_for_others(bench: Any) -> None:
    engine = bench.host.services.get(EXECUTION_ENGINE)
    actions = RunActions(principal=Principal(kind="user", id="operator"))
    call = CallContext(principal=Principal(kind="agent", id="clerk"))
    with pytest.raises(TavernError, match="agent:clerk may not have calls made on behalf of user:operator"):
        await engine.run(RunRequest(workflow=says(TEXT), actions=actions), call=call)
