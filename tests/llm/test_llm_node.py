"""The node `core:LlmApiRequest`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tavern_llm.nodes
from tavern_host import EXECUTION_ENGINE, Host, InvalidInput, nodes_of
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_llm.nodes.llm_api_request import read_messages

MODELS = "extensions.tavern-llm.models"


def test_its_definition_says_what_goes_in_and_out() -> None:
    (definition,) = nodes_of(tavern_llm.nodes)
    assert definition.type == "LlmApiRequest"
    inputs = {key: (slot.data_flow_type.value, slot.required) for key, slot in definition.inputs.items()}
    assert inputs == {
        "messages": ("ARRAY", True),
        "system_prompt": ("STRING", False),
        "model": ("STRING", False),
        "parameters": ("OBJECT", False),
    }
    assert {key: slot.data_flow_type.value for key, slot in definition.outputs.items()} == {
        "text": "STRING",
        "response": "OBJECT",
    }


def test_the_system_prompt_comes_first() -> None:
    messages = read_messages([{"role": "user", "content": "hi", "time": 3}], "Be brief.")
    assert [(m.role, m.content) for m in messages] == [("system", "Be brief."), ("user", "hi")]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (["hi"], "messages[0]: expected an object with role and content, found str"),
        (
            [{"role": "bard", "content": ""}],
            "messages[0].role: expected one of system, user, assistant, tool, found 'bard'",
        ),
        ([{"role": "user"}], "messages[0].content: expected a text, found NoneType"),
        ([], "messages: expected at least one message, or a system prompt"),
    ],
)
def test_what_is_no_message_is_told_by_its_place(messages: list[Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_messages(messages)
    assert caught.value.message == message


async def run(project: Path, **values: Any) -> Run:
    """Run a workflow of the node alone, its outputs as the interface."""
    document = {
        "name": "ask",
        "nodes": [
            {"id": "llm", "type": "core:LlmApiRequest", "inputValues": values},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"id": key, "source": "llm", "sourceHandle": key, "target": "out", "targetHandle": key}
            for key in ("text", "response")
        ],
        "interfaceOutputs": {
            "text": {"key": "text", "dataFlowType": "STRING"},
            "response": {"key": "response", "dataFlowType": "OBJECT"},
        },
    }
    (project / "replies.yaml").write_text("- when: {contains: Be brief}\n  reply: Yes.\n", encoding="utf-8")
    settings = {MODELS: {"bar": {"adapter": "scripted", "file": "replies.yaml"}}}
    async with Host(project=project, settings=settings) as host:
        request = RunRequest(workflow=Workflow.model_validate(document))
        return await host.services.get(EXECUTION_ENGINE).run(request)


async def test_it_asks_the_model_within_a_workflow(project: Path) -> None:
    done = await run(project, messages=[{"role": "user", "content": "hi"}], system_prompt="Be brief.")
    assert done.status is RunStatus.COMPLETE
    assert done.outputs["text"] == "Yes."
    assert done.outputs["response"] == {"text": "Yes.", "model": "bar", "finish_reason": "stop", "usage": {}}


async def test_a_failure_of_the_model_is_the_nodes(project: Path) -> None:
    done = await run(project, messages=[{"role": "user", "content": "hi"}])
    assert done.status is RunStatus.ERROR
    assert "replies.yaml: no reply fits; the last message was user: 'hi'" in done.error.message
