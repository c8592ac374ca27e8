"""The node `core:LlmApiRequest`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.model_server import breaks_off, model_server, says
from helpers.repetition import Failures
from helpers.workflow_documents import function

import tavern_llm.nodes
from tavern_host import EXECUTION_ENGINE, Host, InvalidInput, nodes_of
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import LlmChunk, LlmResponse
from tavern_llm.messages import read_messages, read_tools

MODELS = "extensions.tavern-llm.models"
HI = {"role": "user", "content": "hi"}


def test_its_definition_says_what_goes_in_and_out() -> None:
    (definition,) = nodes_of(tavern_llm.nodes)
    assert definition.type == "LlmApiRequest"
    inputs = {key: (slot.data_flow_type.value, slot.required) for key, slot in definition.inputs.items()}
    texts, objects = ("system_prompt", "model", "tools_text", "tool_choice"), ("parameters", "response_schema")
    optional = {**dict.fromkeys(texts, "STRING"), **dict.fromkeys(objects, "OBJECT"), "tools": "ARRAY"}
    assert inputs == {"messages": ("ARRAY", True), **{key: (kind, False) for key, kind in optional.items()}}
    outputs = {key: (slot.data_flow_type.value, bool(slot.is_stream)) for key, slot in definition.outputs.items()}
    whole = {"text": ("STRING", False), "response": ("OBJECT", False)}
    assert outputs == {**whole, "text_stream": ("STRING", True), "chunks": ("OBJECT", True)}


def test_messages_are_read_with_all_that_they_hold() -> None:
    call = {"id": "c1", "name": "look", "arguments": '{"at": "sky"}'}
    openai = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"at": "sky"}}}
    messages = read_messages(
        [
            {**HI, "time": 3, "images": [{"url": "https://example.com/a.png"}]},
            {"role": "assistant", "content": None, "tool_calls": [openai], "reasoning": "hm", "extra": {"sig": "x"}},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "blue", "tool_call_id": "c1"},
        ],
        "Be brief.",
    )
    assert [(m.role, m.content) for m in messages[:2]] == [("system", "Be brief."), ("user", "hi")]
    assert messages[1].images[0].url == "https://example.com/a.png"
    assert (messages[2].reasoning, messages[2].extra) == ("hm", {"sig": "x"})
    assert messages[2].tool_calls == messages[3].tool_calls
    assert messages[3].to_json() == {"role": "assistant", "content": "", "tool_calls": [call]}
    assert messages[4].tool_call_id == "c1"


def test_what_is_no_message_is_told_by_its_place() -> None:
    bard, answering = {"role": "bard", "content": ""}, {"role": "tool", "content": "x"}
    rows: list[tuple[list[Any], str]] = [
        (["hi"], "messages[0]: expected an object with role and content, found str"),
        ([HI, bard], "messages[1].role: expected one of system, user, assistant, tool, found 'bard'"),
        ([{"role": "user"}], "messages[0].content: expected a text, found NoneType"),
        ([{"role": "assistant", "content": []}], "messages[0].content: expected a text, found list"),
        ([HI, answering], "messages[1].tool_call_id: a message of the role tool says which call it answers"),
        ([{**HI, "tool_calls": "x"}], "messages[0].tool_calls: input should be a valid list"),
        ([{**HI, "tool_calls": [{"id": "a"}]}], "messages[0].tool_calls.0.name: field required"),
        ([{**HI, "images": [{"file": "a"}]}], "messages[0].images.0.file: unknown option"),
        ([{**HI, "name": 3}], "messages[0].name: input should be a valid string"),
        ([], "messages: expected at least one message, or a system prompt"),
    ]
    with Failures() as failures:
        for messages, told in rows:
            with failures.row(told):
                with pytest.raises(InvalidInput) as caught:
                    read_messages(messages)
                assert caught.value.message == told
    with pytest.raises(InvalidInput, match=r"tools\[1\]: expected"):
        read_tools([{"type": "function", "function": {"name": "a"}}, {"name": "a"}])


async def run(host: Host, **values: Any) -> tuple[Run, Any]:
    """Run a workflow of the node alone, its outputs as the interface; return the run and its outputs."""
    kinds = {"text": "STRING", "response": "OBJECT", "text_stream": "STRING", "chunks": "OBJECT"}
    node = {"type": "core:LlmApiRequest", "inputValues": values}
    document = function("ask", {"llm": node}, *(f"llm.{key} > out.{key}" for key in kinds), takes={}, gives=kinds)
    for key in ("text_stream", "chunks"):
        document["interfaceOutputs"][key]["isStream"] = True
    request = RunRequest(workflow=Workflow.model_validate(document))
    done = await host.services.get(EXECUTION_ENGINE).run(request)
    return done, done.outputs


async def test_it_gives_the_answer_whole_and_as_it_comes(project: Path) -> None:
    (project / "replies.yaml").write_text(
        "- when: {contains: Be brief}\n  reply: Yes, I am.\n  reasoning: Hm.\n"
        "  tool_calls: [{name: look, arguments: {at: sky}}, {name: wait}]\n",
        encoding="utf-8",
    )
    setup = {"adapter": "scripted", "file": "replies.yaml", "chunk_chars": 4}
    async with Host(project=project, settings={MODELS: {"bar": setup}}) as host:
        done, outputs = await run(host, messages=[HI], system_prompt="Be brief.")
        assert (done.status, done.error) == (RunStatus.COMPLETE, None)
        response = LlmResponse.model_validate(outputs["response"])
        assert set(outputs["response"]) == set(LlmResponse.model_fields)
        assert (outputs["text"], response.text, response.reasoning) == ("Yes, I am.", "Yes, I am.", "Hm.")
        calls = [(call.name, call.arguments) for call in response.tool_calls]
        assert calls == [("look", '{"at": "sky"}'), ("wait", "{}")]
        assert len({call.id for call in response.tool_calls}) == 2
        assert outputs["text_stream"] == "Yes, I am."
        chunks = [LlmChunk.model_validate(chunk) for chunk in outputs["chunks"]]
        assert "".join(chunk.text for chunk in chunks) == "Yes, I am."
        assert [chunk.call.name for chunk in chunks if chunk.call and chunk.call.name] == ["look", "wait"]
        assert chunks[-1].response == response

        failed, _ = await run(host, messages=[HI])
        assert failed.status is RunStatus.ERROR and failed.error is not None
        assert "replies.yaml: no reply fits; the last message was user: 'hi'" in failed.error.message


async def test_an_answer_that_begins_anew_is_marked(project: Path) -> None:
    async with model_server(plans=[breaks_off("half an")], default=says("whole answer")) as server:
        setup = {"adapter": "openai", "base_url": server.base_url, "model": "tiny"}
        async with Host(project=project, settings={MODELS: {"m": setup}}) as host:
            done, outputs = await run(host, messages=[HI])
        assert done.status is RunStatus.COMPLETE
        text = outputs["text_stream"]
        assert text.startswith("half an \n\n[The answer broke off and restarts: the model 'tiny' at ")
        assert text.endswith("]\n\nwhole answer ")
        assert outputs["text"] == "whole answer "
