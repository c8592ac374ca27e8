"""OpenAI's API: agents, workflows and models for its clients, with the host's rights, limits and errors."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.stub_llm import said
from helpers.waiting import until

from tavern_agents.api.agents import AgentRunFilter
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.projects import Folders
from tavern_host.testing.http import TOKEN, HttpClient, served
from tavern_llm.api.llm import ChatMessage, LlmRequest, LlmResponse
from tavern_llm.openai import OpenAiAdapter, ResponsesAdapter
from tests.agents.agent_bench import AgentBench, agent_bench
from tests.openai.conftest import SETTINGS, events, prepare

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"


def asking(model: str, text: str = "Hello?", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


async def ask(web: HttpClient, model: str, text: str = "Hello?", **more: Any) -> dict[str, Any]:
    answer = await web.post(CHAT, json=asking(model, text, **more))
    body: dict[str, Any] = await answer.json()
    assert answer.status == 200, body
    return body


async def streamed(web: HttpClient, model: str, text: str = "Hello?", **more: Any) -> list[Any]:
    answer = await web.post(CHAT, json=asking(model, text, stream=True, **more))
    assert (answer.status, answer.content_type) == (200, "text/event-stream"), await answer.text()
    return events(await answer.text())


def text_of(sent: list[Any]) -> str:
    deltas = [choice["delta"] for one in sent if one != "[DONE]" for choice in one["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


# --- who answers ----------------------------------------------------------------------------------


async def test_what_is_offered_is_listed_and_nothing_else_is_found(bench: AgentBench, web: HttpClient) -> None:
    listed = await (await web.get("/v1/models")).json()
    assert [one["id"] for one in listed["data"]] == [
        "agent/keeper",
        "agent/slow",
        "workflow/counted",
        "workflow/shouted",
        "m",
    ]
    for name in ("m", "agent/keeper", "agent%2Fkeeper"):
        assert (await (await web.get(f"/v1/models/{name}")).json())["object"] == "model", name
    for name in ("agent/hidden", "workflow/think", "n", "agent/nobody", "agent/ghost", "workflow/ghost", "ghost"):
        answer = await web.post(CHAT, json=asking(name))
        error = (await answer.json())["error"]
        assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model"), name
        assert (await web.get(f"/v1/models/{name}")).status == 404


async def test_a_model_answers_with_the_tools_of_the_client(bench: AgentBench, web: HttpClient) -> None:
    model = bench.answers(said("", ("look", {"at": "sky"}), reasoning="Hm."), said("Blue."))
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    named = {"type": "function", "function": {"name": "look"}}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    first = await ask(web, "m", tools=tools, tool_choice=named, response_format=schema, temperature=0.5)
    message = first["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == (None, "Hm.")
    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "sky"}'}
    assert (first["object"], first["model"], first["choices"][0]["finish_reason"]) == (
        *("chat.completion", "m"),
        "tool_calls",
    )
    assert first["usage"].items() >= {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}.items()
    request = model.asked[0]
    assert (request.tools, request.tool_choice, request.response_schema) == (tools, "look", {"type": "object"})
    assert request.parameters == {"temperature": 0.5}

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "blue"}
    user = {"role": "user", "content": [{"type": "text", "text": "And this?"}, picture]}
    messages = [{"role": "developer", "content": "Be short."}, message, result, user]
    answer = await web.post(CHAT, json={"model": "m", "messages": messages})
    assert (await answer.json())["choices"][0]["message"]["content"] == "Blue."
    heard = model.asked[1].messages
    assert [one.role for one in heard] == ["system", "assistant", "tool", "user"]
    assert heard[1].tool_calls[0].id == heard[2].tool_call_id
    assert heard[1].extra == {"reasoning_content": "Hm."}  # which some servers want back
    assert (heard[3].content, heard[3].images[0].url) == ("And this?", "data:image/png;base64,AAAA")


async def test_a_stream_ends_with_its_usage_and_done(bench: AgentBench, web: HttpClient) -> None:
    bench.answers(said("One two three four.", ("look", {"at": "sky"})))
    sent = await streamed(web, "m", stream_options={"include_usage": True})
    assert (text_of(sent), sent[-1]) == ("One two three four.", "[DONE]")
    assert sent[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (sent[-2]["choices"], sent[-2]["usage"]["total_tokens"]) == ([], 15)
    assert {one["id"] for one in sent[:-1]} == {sent[0]["id"]}
    assert sent[-3]["choices"][0]["finish_reason"] == "tool_calls"
    bench.answers(said("Again.")).void = "Void."
    assert text_of(await streamed(web, "m")) == "Void.\n\n[the server broke off]\n\nAgain."


async def test_an_agent_answers_with_its_own_tools(bench: AgentBench, web: HttpClient) -> None:
    def say(request: LlmRequest) -> LlmResponse:
        is_done = any(message.role == "tool" for message in request.messages)
        return said("It said HEY.") if is_done else said("Let me shout. ", ("shout", {"text": "hey"}))

    bench.model(say).pieces = 9
    whole = await ask(web, "agent/keeper", "Shout.")
    assert (whole["choices"][0]["message"]["content"], whole["usage"]["total_tokens"]) == ("It said HEY.", 30)
    run = (await bench.runtime.runs(AgentRunFilter(limit=1)))[0]
    assert (whole["id"], whole["model"]) == (run.id, "agent/keeper")
    for profile in ("keeper", "slow"):  # which says nothing before it has said all
        sent = await streamed(web, f"agent/{profile}", "Shout.")
        assert " ".join(text_of(sent).split()) == "Let me shout. It said HEY."
        assert sent[-1] == "[DONE]"
        assert not any("reasoning_content" in choice["delta"] for one in sent[:-1] for choice in one["choices"])


async def test_the_conversation_of_an_agent_is_the_clients_or_a_named_one(bench: AgentBench, web: HttpClient) -> None:
    model = bench.model(lambda request: said(f"{len(request.messages)} heard."))

    def heard() -> list[str]:
        return [message.content for message in model.asked[-1].messages]

    said_before = [{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello, Ada."}]
    messages = [*said_before, {"role": "user", "content": "Who am I?"}]
    with Failures() as failures:
        for who in ({}, {"user": "ada"}):
            with failures.row(f"the client keeps it: {who}"):
                await web.post(CHAT, json={"model": "agent/keeper", "messages": messages, **who})
                assert heard() == ["I am Ada.", "Hello, Ada.", "Who am I?"]
        for name in ({"metadata": {"conversation": "c1"}}, {"user": "bob"}):
            with failures.row(f"the host keeps it: {name}"):
                await ask(web, "agent/keeper", "I am Bob.", **name)
                await ask(web, "agent/keeper", "Who am I?", **name)
                assert heard() == ["I am Bob.", "1 heard.", "Who am I?"]
        with failures.row("each its own"):
            await ask(web, "agent/keeper", "And I?", user="eve")
            assert heard() == ["And I?"]
    assert (await bench.histories.get_history("c1")).id == "c1"


async def test_an_agent_sees_the_images_of_messages(bench: AgentBench, web: HttpClient) -> None:
    model = bench.model(lambda request: said("A dot."))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}
    shown = [{"type": "text", "text": "What is this?"}, picture]
    messages = [
        *({"role": "user", "content": shown}, {"role": "assistant", "content": "A dot."}),
        {"role": "user", "content": [*shown, {"type": "image_url", "image_url": {"url": "https://x.example/y.png"}}]},
    ]
    answer = await web.post(CHAT, json={"model": "agent/keeper", "messages": messages})
    assert answer.status == 200, await answer.text()
    first, _, last = model.asked[0].messages
    assert [image.blob.media_type for image in first.images if image.blob] == ["image/png"]
    assert (first.images[0], last.images[1].url) == (last.images[0], "https://x.example/y.png")
    for wrong in ("data:image/png;base64,?", "data:application/pdf;base64,AAAA"):
        part = {"type": "file", "file": {"file_data": wrong}} if "pdf" in wrong else {**picture, "image_url": wrong}
        refused = [{"role": "user", "content": [*shown, part]}]
        answer = await web.post(CHAT, json={"model": "agent/keeper", "messages": refused})
        assert (answer.status, (await answer.json())["error"]["param"]) == (400, "messages")


async def test_a_workflow_answers_whole_and_as_it_comes(bench: AgentBench, web: HttpClient) -> None:
    whole = await ask(web, "workflow/shouted", "hey")
    assert whole["choices"][0]["message"]["content"] == "HEY"
    assert text_of(await streamed(web, "workflow/shouted", "hey")) == "HEY"
    assert text_of(await streamed(web, "workflow/counted", "go")) == "one two three"
    counted = await ask(web, "workflow/counted", "go")
    assert counted["choices"][0]["message"]["content"] == "one two three"


async def test_responses_are_the_same_answers_in_another_form(bench: AgentBench, web: HttpClient) -> None:
    model = bench.answers(said("Hi.", ("look", {})), said("Hi again.", ("look", {"at": 1})))
    function = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello?"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sky"},
    ]
    asked = {"model": "m", "input": items, "instructions": "Be short.", "tools": [function], "max_output_tokens": 9}
    whole = await (await web.post("/v1/responses", json=asked)).json()
    message, call = whole["output"]
    assert (whole["status"], message["content"][0]["text"], call["name"]) == ("completed", "Hi.", "look")
    assert whole["usage"]["input_tokens"] == 10
    heard = model.asked[0]
    assert [one.role for one in heard.messages] == ["system", "user", "assistant", "tool"]
    assert heard.parameters == {"max_completion_tokens": 9}
    assert heard.tools[0]["function"] == {"name": "look", "parameters": {"type": "object"}, "strict": True}

    sent = events(await (await web.post("/v1/responses", json={**asked, "stream": True})).text())
    assert [one["sequence_number"] for one in sent] == list(range(len(sent)))
    assert "".join(one["delta"] for one in sent if one["type"] == "response.output_text.delta") == "Hi again."
    assert (sent[0]["type"], sent[-1]["type"]) == ("response.created", "response.completed")
    assert [item["type"] for item in sent[-1]["response"]["output"]] == ["message", "function_call"]
    refused = await web.post("/v1/responses", json={**asked, "previous_response_id": "r"})
    assert ((await refused.json())["error"]["param"], refused.status) == ("previous_response_id", 400)


async def test_a_host_can_be_the_server_of_another(bench: AgentBench, web: HttpClient) -> None:
    url, context = f"http://127.0.0.1:{web.port}/v1", bench.host._manager.active["tavern-llm"].context
    question = LlmRequest(messages=[ChatMessage(role="user", content="Look.")])
    for adapter in (OpenAiAdapter, ResponsesAdapter):
        made = adapter({"base_url": url, "model": "m", "api_key": TOKEN}, context)
        bench.model(lambda request: said("I look.", ("look", {"at": "sky"})))
        *_, last = [chunk async for chunk in made.stream(question)]
        for answer in (last.response, await made.complete(question)):
            assert answer is not None
            assert (answer.text, answer.finish_reason, answer.usage.prompt_tokens) == ("I look.", "tool_calls", 10)
            assert [(one.name, one.arguments) for one in answer.tool_calls] == [("look", '{"at": "sky"}')]


async def test_embeddings_are_those_of_a_model_that_has_them(
    bench: AgentBench, web: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers.stub_llm import ToldAdapter

    from tavern_llm.api.llm import LlmEmbeddings

    none = await web.post("/v1/embeddings", json={"model": "m", "input": "a"})
    assert (none.status, (await none.json())["error"]["message"]) == (400, "the model 'm' gives no embeddings")

    async def embed(self: Any, texts: list[str], call: Any) -> LlmEmbeddings:
        return LlmEmbeddings(vectors=[[0.5, float(len(text))] for text in texts], model="m")

    monkeypatch.setattr(ToldAdapter, "embed", embed, raising=False)
    found = await (await web.post("/v1/embeddings", json={"model": "m", "input": ["a", "bb"]})).json()
    assert [one["embedding"] for one in found["data"]] == [[0.5, 1.0], [0.5, 2.0]]
    packed = await web.post("/v1/embeddings", json={"model": "m", "input": "abc", "encoding_format": "base64"})
    vector = base64.b64decode((await packed.json())["data"][0]["embedding"])
    assert struct.unpack("<2f", vector) == (0.5, 3.0)


# --- rights, limits, failures ---------------------------------------------------------------------


async def test_every_failure_has_the_form_of_the_protocol(bench: AgentBench, web: HttpClient) -> None:
    bench.model(lambda request: said("Hi."))
    tool = {"type": "function", "function": {"name": "look"}}
    tokens = {"Authorization": "Bearer nobody"}
    rows: list[tuple[str, dict[str, Any], int, str]] = [
        (CHAT, {"headers": tokens, "json": asking("m")}, 401, "invalid_api_key"),
        (CHAT, {"data": "{"}, 400, "invalid_input"),
        (CHAT, {"json": {"model": "m"}}, 400, "invalid_input"),
        (CHAT, {"json": asking("m", logprobs=True)}, 400, "invalid_input"),
        (CHAT, {"json": {"model": "m", "messages": [{"role": "owner", "content": ""}]}}, 400, "invalid_input"),
        (CHAT, {"json": asking("m", n=2, stream=True)}, 400, "invalid_input"),
        (CHAT, {"json": asking("agent/keeper", tools=[tool])}, 400, "invalid_input"),
        (CHAT, {"json": asking("m", "x" * (17 << 20))}, 413, "too_large"),
        ("/v1/audio/speech", {"json": {}}, 404, "not_found"),
        ("/projects/nowhere/v1/models", {}, 404, "not_found"),
    ]
    with Failures() as failures:
        for path, options, status, code in rows:
            with failures.row((path, status, list(options))):
                answer = await web.post(path, **options)
                error = (await answer.json())["error"]
                assert (answer.status, error["code"], answer.content_type) == (status, code, "application/json")
                assert error.keys() == {"message", "type", "param", "code"}
                assert answer.headers["x-should-retry"] == "false"
        with failures.row("a method"):
            answer = await web.request("DELETE", CHAT)
            assert (answer.status, answer.headers["Allow"]) == (405, "POST")
            assert "error" in await answer.json()
        with failures.row("elsewhere"):
            assert (await (await web.get("/api/nothing")).json())["code"] == "not_found"


async def test_the_failures_of_models_keep_their_meaning(bench: AgentBench, web: HttpClient) -> None:
    from tavern_host.contracts.errors import PluginFailure

    rows: list[tuple[dict[str, Any], int, str]] = [
        ({"overflow": True}, 400, "context_length_exceeded"),
        ({"status": 429, "retry_after": 2000.0}, 429, "rate_limit_exceeded"),
        ({"status": 401}, 502, "upstream_error"),
        ({}, 500, "plugin_error"),
    ]
    with Failures() as failures:
        for details, status, code in rows:
            with failures.row(details):
                bench.model(lambda request, details=details: PluginFailure("no", **details))  # type: ignore[misc]
                for stream in (False, True):
                    answer = await web.post(CHAT, json=asking("m", stream=stream))
                    assert (answer.status, (await answer.json())["error"]["code"]) == (status, code)
                    assert answer.headers.get("Retry-After") == ("2000" if status == 429 else None)


async def test_users_have_their_rights_and_budgets(bench: AgentBench, web: HttpClient) -> None:
    bench.model(lambda request: said("Hi."))
    accounts = bench.host.services.get(ACCOUNTS)
    rows: list[tuple[str, str, str, int]] = [
        ("ada", "client", CHAT, 200),
        ("ada", "client", "/api/agents/keeper/run", 403),
        ("rob", "reader", CHAT, 403),
        ("thrifty", "client", CHAT, 429),
    ]
    for name, role in {name: role for name, role, *_ in rows}.items():
        await accounts.add_user(name, "good evening", role=role)
    tokens = {name: (await accounts.make_token(name, "test")).token for name, *_ in rows}
    with Failures() as failures:
        for name, _, path, status in rows:
            with failures.row((name, path)):
                headers = {"Authorization": f"Bearer {tokens[name]}"}
                answer = await web.post(path, headers=headers, json=asking("m"))
                assert answer.status == status, await answer.text()
                if status == 429:
                    assert int(answer.headers["Retry-After"]) > 0
                    assert answer.headers["x-should-retry"] == "true"
    run = await ask(web, "agent/keeper")
    assert (await bench.runtime.get_run(run["id"])).status == "reply"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_work_ends_when_the_client_is_gone(bench: AgentBench, web: HttpClient, stream: bool) -> None:
    model = bench.model(lambda request: said("Too late."))
    model.gate = asyncio.Event()
    asked = asyncio.create_task(web.post(CHAT, json=asking("agent/keeper", stream=stream)))
    await until(lambda: model.asked)
    asked.cancel()

    async def status() -> bool:
        return (await bench.runtime.runs(AgentRunFilter(limit=1)))[0].status == "interrupted"

    await until(status)


async def test_a_stream_that_is_left_ends_the_work(bench: AgentBench, web: HttpClient) -> None:
    model = bench.answers(said("One two three four five six.", ("shout", {"text": "hey"})))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    body = asking("agent/keeper", stream=True)
    async with web.client.post(CHAT, json=body, headers=headers) as answer:
        model.gate = asyncio.Event()  # the second deliberation waits for it
        while b"two" not in await answer.content.readline():
            pass
        answer.close()

    async def status() -> bool:
        return (await bench.runtime.runs(AgentRunFilter(limit=1)))[0].status == "interrupted"

    await until(status)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_that_a_stopping_server_cuts_off_is_left_to_the_next(tmp_path: Path, stream: bool) -> None:
    folders = Folders(tmp_path / "config", tmp_path / "state", tmp_path / "data")
    options: dict[str, Any] = {"settings": SETTINGS, "serving": True, "folders": folders}
    async with agent_bench(tmp_path, prepare, **options) as first:
        async with served(first.host) as site:
            model = first.answers(said("Too late."))
            model.gate = asyncio.Event()
            asked = asyncio.create_task(site.post(CHAT, json=asking("agent/keeper", stream=stream)))
            await until(lambda: model.asked)
            first.host.begin_draining()
            asked.cancel()
        run = (await first.runtime.runs(AgentRunFilter(limit=1)))[0]
        assert run.status == "running"
    async with agent_bench(tmp_path, prepare, lambda request: said("Here it is."), **options) as second:
        assert (await second.ended(run.id)).text == "Here it is."


async def test_other_projects_are_reached_by_their_path(bench: AgentBench, web: HttpClient) -> None:
    project = bench.host.project.id
    listed = await web.get(f"/projects/{project}/v1/models")
    assert len((await listed.json())["data"]) == 5


SHAPES: list[tuple[str, dict[str, Any], Callable[[Any], bool]]] = [
    (
        "Open WebUI",
        {
            **asking("agent/keeper", stream=True),
            **{"stream_options": {"include_usage": True}, "temperature": 0.7, "max_tokens": 1000, "stop": ["###"]},
        },
        lambda sent: sent[-2]["usage"]["total_tokens"] == 15,
    ),
    (
        "Open WebUI asks for a title",
        {**asking("m", stream=False), "max_completion_tokens": 1000, "metadata": {"task": "title_generation"}},
        lambda body: body["choices"][0]["message"]["content"] == "Hi.",
    ),
    (
        "LangChain",
        {**asking("m"), "n": 1, "temperature": 0.0, "tools": [], "parallel_tool_calls": None},
        lambda body: body["choices"][0]["finish_reason"] == "stop",
    ),
]


@pytest.mark.parametrize(("name", "body", "is_right"), SHAPES, ids=[name for name, *_ in SHAPES])
async def test_requests_of_common_clients_are_taken(
    bench: AgentBench, web: HttpClient, name: str, body: dict[str, Any], is_right: Callable[[Any], bool]
) -> None:
    bench.model(lambda request: said("Hi."))
    answer = await web.post(CHAT, json=body)
    assert answer.status == 200, await answer.text()
    assert is_right(events(await answer.text()) if body.get("stream") else await answer.json())
