"""The hook: a run gets a greeting where its workflow has a place for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, WORKFLOW_MANAGER, Host, NotFound
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow

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


async def greet(host: Host, **inputs: str) -> Any:
    run = await host.services.get(EXECUTION_ENGINE).run(
        RunRequest(workflow=Workflow.model_validate(GREET), inputs={"name": "Ada", **inputs})
    )
    assert run.status is RunStatus.COMPLETE, run.error
    return run.outputs["greeting"]


async def test_a_run_without_a_greeting_gets_one(make_host: Callable[..., Host]) -> None:
    async with make_host() as host:
        assert await greet(host) == "Hello, Ada"


async def test_the_greeting_is_a_setting(make_host: Callable[..., Host]) -> None:
    async with make_host(greetingPrefix="Dear ") as host:
        assert await greet(host) == "Dear Ada"


async def test_a_greeting_that_the_run_brings_stays(make_host: Callable[..., Host]) -> None:
    async with make_host() as host:
        assert await greet(host, greeting_prefix="Oi ") == "Oi Ada"


async def test_with_feature_x_off_nothing_is_filled_in(make_host: Callable[..., Host]) -> None:
    async with make_host(enableFeatureX=False) as host:
        with pytest.raises(Exception, match="greeting_prefix"):
            await greet(host)


async def test_a_stored_workflow_gets_a_greeting_too(make_host: Callable[..., Host]) -> None:
    async with make_host() as host:
        await host.services.get(WORKFLOW_MANAGER).save("greet", Workflow.model_validate(GREET))
        request = RunRequest(workflow_id="greet", inputs={"name": "Bo"})
        run = await host.services.get(EXECUTION_ENGINE).run(request)
        assert run.outputs == {"greeting": "Hello, Bo"}


async def test_a_workflow_without_such_an_input_is_left_alone(make_host: Callable[..., Host]) -> None:
    async with make_host() as host:
        run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=Workflow(name="Empty")))
        assert run.status is RunStatus.COMPLETE


async def test_an_unknown_workflow_is_reported_by_the_engine_not_by_the_hook(make_host: Callable[..., Host]) -> None:
    async with make_host() as host:
        with pytest.raises(NotFound, match="there is no workflow 'nowhere'"):
            await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="nowhere"))
        assert host.plugin("my-awesome-plugin").problems == []
