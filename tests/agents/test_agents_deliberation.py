"""The deliberation workflow: what it is given, what of it is expanded, where its text comes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tavern_agents.deliberation import Deliberation, Situation
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.workflows import StoredWorkflow, Workflow


def stored(
    inputs: dict[str, str], outputs: dict[str, str], nodes: list[dict[str, Any]] | None = None
) -> StoredWorkflow:
    def slots(types: dict[str, str]) -> dict[str, Any]:
        return {key: {"key": key, "dataFlowType": kind} for key, kind in types.items()}

    document = {
        "name": "think",
        "nodes": nodes or [],
        "interfaceInputs": slots(inputs),
        "interfaceOutputs": slots(outputs),
    }
    return StoredWorkflow(workflow=Workflow.model_validate(document), id="think", revision="1")


SITUATION = Situation(
    conversation=tuple(
        ChatMessage(role="user" if place % 2 == 0 else "assistant", content=text)
        for place, text in enumerate(["hello", "yes?", "write it down", "CALL", "<OBSERVATION>"])
    ),
    message="write it down",
    said_at=2,
    observations=("Tool a executed.", "Tool b failed."),
    step=2,
)


def test_a_workflow_gets_the_inputs_that_it_has() -> None:
    names = ["messages", "user_message", "history", "observations", "step", "mood"]
    types = dict(zip(names, ["ARRAY", "STRING", "ARRAY", "STRING", "INTEGER", "STRING"], strict=True))
    deliberation = Deliberation.of(stored(types, {"response": "STRING"}))
    assert deliberation.inputs(SITUATION) == {
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "yes?"},
            {"role": "user", "content": "write it down"},
            {"role": "assistant", "content": "CALL"},
            {"role": "user", "content": "<OBSERVATION>"},
        ],
        "user_message": "write it down",
        "history": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes?"}],
        "observations": "Tool a executed.\n\nTool b failed.",
        "step": 2,
    }
    only = Deliberation.of(stored({"user_message": "STRING"}, {"response": "STRING"}))
    assert only.inputs(SITUATION) == {"user_message": "write it down"}


def test_what_an_agent_perceives_is_an_input() -> None:
    takes = stored({"messages": "ARRAY", "world_state": "OBJECT"}, {"response": "STRING"})
    assert Deliberation.of(takes).inputs(SITUATION)["world_state"] == {}
    perceives = replace(Deliberation.of(takes), world_state={"door": "open"})
    assert perceives.inputs(SITUATION)["world_state"] == {"door": "open"}


def test_a_text_input_for_messages_gets_them_as_json_text() -> None:
    deliberation = Deliberation.of(stored({"messages": "STRING"}, {"response": "STRING"}))
    assert deliberation.inputs(Situation((ChatMessage(role="user", content="好"),), "好")) == {
        "messages": '[{"role": "user", "content": "好"}]'
    }


def test_a_workflow_that_takes_no_message_cannot_deliberate() -> None:
    with pytest.raises(Misconfigured) as caught:
        Deliberation.of(stored({"input_0": "STRING"}, {"response": "STRING"}))
    assert caught.value.message == (
        "the workflow 'think' cannot deliberate: it needs an interface input with the key 'messages' or "
        "'user_message', found 'input_0'"
    )


@pytest.mark.parametrize(
    ("outputs", "chosen"),
    [(["text", "response", "x"], "response"), (["x", "text"], "text"), (["output_0"], "output_0")],
)
def test_the_text_is_the_output_response_else_text_else_the_only_one(outputs: list[str], chosen: str) -> None:
    deliberation = Deliberation.of(stored({"messages": "ARRAY"}, dict.fromkeys(outputs, "STRING")))
    assert deliberation.answer({**dict.fromkeys(outputs, 0), chosen: "said"}).text == "said"


@pytest.mark.parametrize("outputs", [[], ["a", "b"]])
def test_a_workflow_whose_text_cannot_be_told_cannot_deliberate(outputs: list[str]) -> None:
    with pytest.raises(Misconfigured, match=r"needs an interface output with the key 'response' or 'text'"):
        Deliberation.of(stored({"messages": "ARRAY"}, dict.fromkeys(outputs, "STRING")))


def test_an_answer_object_counts_by_its_text_and_other_values_are_an_error() -> None:
    deliberation = Deliberation.of(stored({"messages": "ARRAY"}, {"response": "OBJECT"}))
    assert deliberation.answer({"response": {"text": "said", "model": "m"}}).text == "said"
    with pytest.raises(TavernError, match="gave no text: its output 'response' is an object"):
        deliberation.answer({"response": {"model": "m"}})
    with pytest.raises(TavernError, match="is empty"):
        deliberation.answer({})


async def test_prompts_are_the_values_of_nodes_and_nothing_else() -> None:
    node = {
        "id": "n",
        "type": "core:X",
        "displayName": "{{{m}}}",
        "inputValues": {"prompt": "Use {{{m}}}.", "n": 1},
        "configValues": {"deep": [{"text": "{{{m}}}"}]},
    }
    deliberation = Deliberation.of(stored({"messages": "ARRAY"}, {"response": "STRING"}, [node]))

    assert deliberation.prompts == [[node["inputValues"], node["configValues"]]]
    expanded = deliberation.with_prompts([[{"prompt": "Use tools.", "n": 1}, {"deep": [{"text": "tools"}]}]])
    (after,) = expanded.nodes
    assert after.input_values == {"prompt": "Use tools.", "n": 1}
    assert after.config_values == {"deep": [{"text": "tools"}]}
    assert after.display_name == "{{{m}}}"
    assert deliberation.workflow.nodes[0].input_values["prompt"] == "Use {{{m}}}."
    said = Situation((ChatMessage(role="user", content="{{{m}}}"),), "{{{m}}}")
    assert deliberation.inputs(said)["messages"] == [{"role": "user", "content": "{{{m}}}"}]
