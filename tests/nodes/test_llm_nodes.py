"""The platform's LLM nodes, asked through the `llm` service: of a scripted model, and of a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from node_bench import DEFINITIONS, HostedNodes

from tavern_host import Host, TavernError
from tavern_llm.api.llm import LlmResponse

MODELS = "extensions.tavern-llm.models"
FROM_HOST = {"use_env_vars": True}
REPLIES = """
- when: {contains: Be brief}
  reply: Yes.
- when: {contains: long}
  reply: A long answer indeed.
"""


PROJECT_FILES = {"replies.yaml": REPLIES}
SETTINGS = {MODELS: {"bar": {"adapter": "scripted", "file": "replies.yaml", "chunk_chars": 7}}}
on_module_loop = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def host_with(project: Path, models: dict[str, Any]) -> AsyncIterator[HostedNodes]:
    async with Host(project=project, settings={MODELS: models}) as host:
        yield HostedNodes(host, project / "files")


def openai_inputs(prompt: str, **more: Any) -> dict[str, Any]:
    return {"api_settings": FROM_HOST, "model": "bar", "system_prompt": "", "prompt": prompt, **more}


async def failure(hosted: HostedNodes, type: str, **inputs: Any) -> str:
    with pytest.raises(TavernError) as caught:
        await hosted.run(type, inputs)
    return caught.value.message


# --- APISettings --------------------------------------------------------------------------------------------


@on_module_loop
async def test_api_settings_are_a_reference_and_hold_no_key(hosted: HostedNodes) -> None:
    inputs = {"use_env_vars": True, "base_url": "https://example.com/v1", "api_key": "sk-secret"}
    assert await hosted.run("APISettings", inputs) == {"api_settings": {"use_env_vars": True}}


@on_module_loop
async def test_keys_and_addresses_in_a_workflow_are_refused(hosted: HostedNodes) -> None:
    inputs = {"use_env_vars": False, "base_url": "https://a.b/v1"}
    assert await failure(hosted, "APISettings", **inputs, api_key="sk-secret") == (
        "APISettings: the api_key of a workflow is not used (remove it); the operator sets up models, with `tavern "
        "models add NAME --url … --key-env …`; then name the model in the node and switch use_env_vars on"
    )
    message = await failure(hosted, "APISettings", **inputs, api_key="")
    assert message.startswith("APISettings: base_url is not used; the operator sets up models")


@on_module_loop
async def test_settings_from_elsewhere_can_bring_no_key_or_address_either(hosted: HostedNodes) -> None:
    rows: list[Any] = [{"api_key": "sk-secret"}, {"baseUrl": "https://a.b"}, {"Authorization": "x"}]
    with Failures() as failures:
        for settings in rows:
            with failures.row(settings):
                for type, inputs in (
                    ("OpenAI", {"api_settings": settings}),
                    ("OpenAIChat", {"api_settings": settings}),
                    ("GenericLlmRequest", {"messages": '[{"role": "user", "content": "a"}]', "parameters": settings}),
                ):
                    message = await failure(hosted, type, **inputs)
                    assert "addresses and keys are not taken from a workflow" in message
                    assert "sk-secret" not in message


# --- OpenAI -------------------------------------------------------------------------------------------------


@on_module_loop
async def test_the_answer_comes_whole_or_in_pieces(hosted: HostedNodes) -> None:
    for inputs, parts in [
        (openai_inputs("Be brief", stream=False), [{"response": "Yes."}]),
        (openai_inputs("Be brief", model="", stream=False), [{"response": "Yes."}]),  # the default
        (openai_inputs("a long one", stream=True), [*({"stream_output": text} for text in ("A long ", "answer ",
            "indeed.")), {"response": "A long answer indeed."}]),
    ]:  # fmt: skip
        assert await hosted.stream("OpenAI", inputs) == parts


@on_module_loop
async def test_system_prompt_history_and_prompt_are_sent(hosted: HostedNodes) -> None:
    history = json.dumps([{"role": "user", "content": "before"}])
    message = await failure(hosted, "OpenAI", **openai_inputs("now", system_prompt="s", history=history))
    assert "no reply fits; the last message was user: 'now'" in message
    outputs = await hosted.run("OpenAI", openai_inputs("now", history='[{"role": "user", "content": "Be brief"}]'))
    assert outputs["response"] == "Yes."


@on_module_loop
async def test_what_is_wrong_is_told_in_one_line(hosted: HostedNodes) -> None:
    rows: list[Any] = [
        ({"model": "gpt-4o"}, "there is no language model 'gpt-4o' (there is bar)"),
        ({"image": "https://a.b/c.png"}, "OpenAI: image: models are sent text only; leave it empty"),
        ({"temperature": "hot"}, "OpenAI: temperature: expected a number, not 'hot'"),
        ({"max_tokens": 1.5}, "OpenAI: max_tokens: expected a whole number, not 1.5"),
        ({"history": "{}"}, "OpenAI: history[0].role: expected one of system, user, assistant, tool, not None"),
        ({"api_settings": "x"}, "OpenAI: api_settings: expected an object, as APISettings gives it, not text"),
        ({"prompt": 3}, "OpenAI: prompt must be text, not a number"),
    ]
    with Failures() as failures:
        for more, message in rows:
            with failures.row((more, message)):
                assert await failure(hosted, "OpenAI", **{**openai_inputs("Be brief"), **more}) == message


# --- OpenAIChat ---------------------------------------------------------------------------------------------


@on_module_loop
async def test_a_conversation_goes_on_or_begins_anew(hosted: HostedNodes) -> None:
    inputs = {"api_settings": FROM_HOST, "model": "bar", "system_prompt": "Be brief", "user_input": "one"}
    first = await hosted.run("OpenAIChat", inputs)
    inputs |= {"user_input": "two", "external_history": first["history"]}
    second = await hosted.run("OpenAIChat", inputs)
    assert second["current_output"] == "Yes."
    assert [m["content"] for m in json.loads(second["history"])] == ["one", "Yes.", "two", "Yes."]
    assert [m["role"] for m in json.loads(second["full_conversation"])][:2] == ["system", "user"]
    third = await hosted.run("OpenAIChat", {**inputs, "clear_history": True})
    assert [m["content"] for m in json.loads(third["history"])] == ["two", "Yes."]


# --- GenericLlmRequest --------------------------------------------------------------------------------------


@on_module_loop
async def test_a_request_gives_the_whole_answer_its_text_and_its_usage(hosted: HostedNodes) -> None:
    inputs = {"messages": '[{"role": "user", "content": "Be brief"}]', "activated_model_id": "bar"}
    outputs = await hosted.stream("GenericLlmRequest", inputs)
    response = LlmResponse(text="Yes.", model="bar", finish_reason="stop").model_dump(mode="json")
    assert {"text", "choices", "usage", "model", "response_id", "error", "tool_calls", "reasoning"} < response.keys()
    assert outputs == [{"response": response, "responseText": "Yes.", "usage": {}}]
    streamed = await hosted.stream("GenericLlmRequest", {**inputs, "stream": True})
    assert streamed == [{"stream_output": "Yes."}, *outputs]
    inputs = {"messages": [{"role": "user", "content": "Be brief"}], "parameters": {"use_env_vars": True}}
    assert (await hosted.run("GenericLlmRequest", inputs))["responseText"] == "Yes."


@on_module_loop
async def test_a_wrong_request_is_told(hosted: HostedNodes) -> None:
    rows: list[Any] = [
        ({"messages": "[]"}, "GenericLlmRequest: expected at least one message"),
        ({"messages": "hi"}, "GenericLlmRequest: messages is not JSON: Expecting value at line 1, column 1"),
        ({"parameters": "[]"}, "GenericLlmRequest: parameters: expected an object, not a list"),
        ({"seed": "x"}, "GenericLlmRequest: seed: expected a whole number, not 'x'"),
        ({"activated_model_id": 3}, "GenericLlmRequest: the model's name must be text, not a number"),
    ]
    with Failures() as failures:
        for inputs, message in rows:
            with failures.row((inputs, message)):
                fields = {"messages": '[{"role": "user", "content": "a"}]', **inputs}
                assert await failure(hosted, "GenericLlmRequest", **fields) == message


# --- without a model ------------------------------------------------------------------------------------------


async def test_without_the_service_the_nodes_say_what_is_missing(tmp_path: Path) -> None:
    async with host_with(tmp_path / "project", {}) as hosted:
        await hosted.host.disable("tavern-llm")
        for type, inputs in (
            ("OpenAI", openai_inputs("a")),
            ("OpenAIChat", {"api_settings": FROM_HOST, "user_input": "a"}),
            ("GenericLlmRequest", {"messages": '[{"role": "user", "content": "a"}]'}),
        ):
            message = await failure(hosted, type, **inputs)
            assert message == (
                f"{type}: there is no language model: no plugin provides the service llm; enable tavern-llm"
            )


def test_answers_are_never_taken_from_a_cache() -> None:
    assert not any(DEFINITIONS[type].traits.cached for type in ("OpenAI", "OpenAIChat", "GenericLlmRequest"))
