"""The hook: a run gets a greeting where its workflow has a place for one."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, Host, InvalidInput, NotFound
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing import CallRecorder

TEXT = {"dataFlowType": "STRING"}
GREET: dict[str, Any] = {
    "name": "Greet",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "join", "type": "core:TextMerge", "inputValues": {"separator": ""}},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {
            "id": "e1",
            "source": "in",
            "sourceHandle": "greeting_prefix",
            "target": "join",
            "targetHandle": "text_inputs__0",
        },
        {"id": "e2", "source": "in", "sourceHandle": "name", "target": "join", "targetHandle": "text_inputs__1"},
        {"id": "e3", "source": "join", "sourceHandle": "merged_text", "target": "out", "targetHandle": "greeting"},
    ],
    "interfaceInputs": {"greeting_prefix": {**TEXT, "required": True}, "name": TEXT},
    "interfaceOutputs": {"greeting": TEXT},
}
"""Joins `greeting_prefix` and `name`."""

pytestmark = pytest.mark.tavern(plugins=["../my_awesome_plugin"], workflows={"greet": GREET})


async def greet(host: Host, **inputs: str) -> Any:
    """Return the greeting of a run of the document."""
    request = RunRequest(workflow=Workflow.model_validate(GREET), inputs={"name": "Ada", **inputs})
    run = await host.services.get(EXECUTION_ENGINE).run(request)
    assert run.status is RunStatus.COMPLETE, run.error
    return run.outputs["greeting"]


async def test_a_run_without_a_greeting_gets_one(host: Host) -> None:
    assert await greet(host) == "Hello, Ada"


@pytest.mark.tavern(settings={"extensions.my-awesome-plugin.greetingPrefix": "Dear "})
async def test_the_greeting_is_a_setting(host: Host) -> None:
    assert await greet(host) == "Dear Ada"


async def test_a_greeting_that_the_run_brings_stays(host: Host) -> None:
    assert await greet(host, greeting_prefix="Oi ") == "Oi Ada"


@pytest.mark.tavern(settings={"extensions.my-awesome-plugin.enableFeatureX": False})
async def test_with_feature_x_off_nothing_is_filled_in(host: Host) -> None:
    with pytest.raises(InvalidInput, match="greeting_prefix"):
        await greet(host)


async def test_a_stored_workflow_gets_a_greeting_too(host: Host) -> None:
    run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="greet", inputs={"name": "Bo"}))
    assert run.outputs == {"greeting": "Hello, Bo"}


async def test_it_looks_at_the_workflow_that_is_run_and_at_nothing_else(
    host: Host, call_recorder: CallRecorder
) -> None:
    await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="greet", inputs={"name": "Bo"}))
    hook = call_recorder.getcall("tavern_before_execute")
    assert (hook.plugin, hook.arguments["request"].workflow_id) == ("my-awesome-plugin", "greet")
    assert hook.result.inputs == {"name": "Bo", "greeting_prefix": "Hello, "}
    asked = call_recorder.calls("workflowManager.get", plugin="my-awesome-plugin")
    assert {call.arguments["workflow_id"] for call in asked} == {"greet"}


async def test_a_workflow_without_such_an_input_is_left_alone(host: Host) -> None:
    run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=Workflow(name="Empty")))
    assert run.status is RunStatus.COMPLETE


async def test_an_unknown_workflow_is_reported_by_the_engine_not_by_the_hook(host: Host) -> None:
    with pytest.raises(NotFound, match="there is no workflow 'nowhere'"):
        await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="nowhere"))
    assert host.plugin("my-awesome-plugin").problems == []
