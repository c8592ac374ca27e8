"""Anthropic's Messages and Gemini's generateContent: what is sent, what is read, and how a server is addressed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.wire_server import WireServer

from tavern_host import LLM, Host
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import PluginFailure
from tavern_llm.api.llm import ChatImage, ChatMessage, LlmCallFragment, LlmRequest, LlmResponse, LlmToolCall, LlmUsage
from tavern_llm.chat_client import ChatClient
from tavern_llm.openai_options import OpenAiOptions
from tests.llm.test_llm_openai import CLOSE, EVENTS, collect, failure, http, refusal

MakeClient = Callable[..., Awaitable[ChatClient]]

PICTURE = ChatImage(blob=Blob(hash="a" * 64, length=6, media_type="image/png"))
PDF = ChatImage(url="data:application/pdf;base64,UERG")
LOOK = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look", "description": "L", "parameters": LOOK}}
]
STRICT = {**LOOK, "additionalProperties": False}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}


def conversation(extra: dict[str, Any], call_extra: dict[str, Any] | None = None) -> list[ChatMessage]:
    calls = (
        LlmToolCall(id="c1", name="look", arguments='{"at": "sky"}', extra=call_extra),
        LlmToolCall(id="c:2", name="look", arguments="{oops"),
    )
    return [
        ChatMessage(role="system", content="Be short."),
        ChatMessage(role="user", content="Look.", images=(PICTURE, PDF)),
        ChatMessage(role="assistant", content="I look.", tool_calls=calls, extra=extra),
        ChatMessage(role="tool", content="blue", tool_call_id="c1"),
        ChatMessage(role="tool", content='{"no": 1}', tool_call_id="c:2"),
        ChatMessage(role="user", content="And?"),
    ]


def events(*said: dict[str, Any]) -> bytes:
    return b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in said)


async def answered(wire_server: WireServer, client: MakeClient, wire: str, *said: dict[str, Any]) -> LlmResponse:
    wire_server.pieces = [EVENTS, events(*said)]
    made = await client(wire_server.base_url, wire=wire)
    answer = (await collect(made, LlmRequest(messages=[ChatMessage(role="user", content="?")])))[-1].response
    assert answer is not None
    return answer


async def test_what_anthropics_messages_are_sent(wire_server: WireServer, client: MakeClient) -> None:
    said = {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": {"input_tokens": 3}}
    wire_server.pieces = [http(json.dumps(said), head=CLOSE)]
    made = await client(wire_server.base_url.removesuffix("/v1"), wire="anthropic", api_key="key-1")
    parameters: dict[str, Any] = {"temperature": 0.5, "stop": "END", "seed": 1, "parallel_tool_calls": False}
    messages = conversation({"thinking_blocks": [THOUGHT]})
    request = LlmRequest(
        messages=messages, tools=TOOLS, tool_choice="look", response_schema=STRICT, parameters=parameters
    )
    answer = await made.complete(request)
    assert answer.notices == ["the server does not take seed"]
    head = wire_server.requests[0].partition(b"\r\n\r\n")[0]
    assert head.startswith(b"POST /v1/messages HTTP/1.1")
    assert b"x-api-key: key-1" in head and b"anthropic-version: 2023-06-01" in head and b"Authorization" not in head
    mark = {"cache_control": {"type": "ephemeral"}}
    body = wire_server.body()
    assert body.pop("messages") == [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "UERG"}},
                {"type": "text", "text": "Look."},
            ],
        },
        {
            "role": "assistant",
            "content": [
                THOUGHT,
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}},
                {"type": "tool_use", "id": "call_73475cb40", "name": "look", "input": {"unreadable": "{oops"}}
                | {"id": body_id(wire_server)},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "blue"}]},
                {
                    "type": "tool_result",
                    "tool_use_id": body_id(wire_server),
                    "content": [{"type": "text", "text": '{"no": 1}'}],
                },
                {"type": "text", "text": "And?", **mark},
            ],
        },
    ]
    assert body == {
        "model": "tiny",
        "temperature": 0.5,
        "max_tokens": 8192,
        "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "Be short.", **mark}],
        "output_config": {"format": {"type": "json_schema", "schema": STRICT}},
        "tools": [{"name": "look", "description": "L", "input_schema": LOOK, **mark}],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "stream": False,
    }


def body_id(server: WireServer) -> str:
    found: str = server.body()["messages"][1]["content"][3]["id"]
    assert found.startswith("call_") and found.isidentifier()
    return found


async def test_anthropics_answers_are_read_block_by_block(wire_server: WireServer, client: MakeClient) -> None:
    used = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 1}
    call = {"type": "tool_use", "name": "look", "input": {}}
    said: tuple[dict[str, Any], ...] = (
        {"type": "message_start", "message": {"id": "m1", "usage": used}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s1"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "x"}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": "I look."}},
        {"type": "content_block_start", "index": 3, "content_block": {**call, "id": "c1"}},
        {"type": "content_block_start", "index": 4, "content_block": {**call, "id": "c2"}},
        {"type": "content_block_delta", "index": 4, "delta": {"type": "input_json_delta", "partial_json": '{"at":'}},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_delta", "index": 4, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": " Now."}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}},
        {"type": "message_stop"},
    )
    answer = await answered(wire_server, client, "anthropic", *said)
    assert (answer.text, answer.reasoning, answer.finish_reason, answer.response_id) == (
        *("I look. Now.", "Hm."),
        *("tool_calls", "m1"),
    )
    assert answer.tool_calls == [
        LlmToolCall(id="c1", name="look", arguments="{}"),
        LlmToolCall(id="c2", name="look", arguments='{"at":1}'),
    ]
    assert answer.extra == {"thinking_blocks": [THOUGHT, {"type": "redacted_thinking", "data": "x"}]}
    assert answer.usage == LlmUsage(prompt_tokens=112, cached_tokens=100, completion_tokens=20)
    wire_server.pieces = [EVENTS, events(*said)]
    made = await client(wire_server.base_url, wire="anthropic")
    chunks = await collect(made, LlmRequest(messages=[ChatMessage(role="user", content="?")]))
    fragments = [chunk.call for chunk in chunks if chunk.call is not None and chunk.call.index == 1]
    assert fragments == [
        LlmCallFragment(index=1, id="c2", name="look"),
        LlmCallFragment(index=1, arguments='{"at":'),
        LlmCallFragment(index=1, arguments="1}"),
    ]
    reasons = {"max_tokens": "length", "refusal": "content_filter", "pause_turn": "stop", "else": "else"}
    for reason, expected in reasons.items():
        ended = {"type": "message_delta", "delta": {"stop_reason": reason}}
        cut = await answered(wire_server, client, "anthropic", *said[:8], ended)
        assert (cut.finish_reason, cut.tool_calls[0].arguments) == (expected, "" if reason == "max_tokens" else "{}")


async def test_what_openais_responses_are_sent(wire_server: WireServer, client: MakeClient) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    wire_server.pieces = [http(json.dumps({"status": "completed", "output": []}), head=CLOSE)]
    made = await client(wire_server.base_url, wire="openai-responses", api_key="key-1")
    parameters: dict[str, Any] = {"max_tokens": 9, "reasoning_effort": "low", "stop": "END"}
    request = LlmRequest(
        messages=conversation({"reasoning_items": [thought]}),
        tools=TOOLS,
        tool_choice="look",
        response_schema=STRICT,
        parameters=parameters,
    )
    assert (await made.complete(request)).notices == ["the server does not take stop"]
    head = wire_server.requests[0].partition(b"\r\n\r\n")[0]
    assert head.startswith(b"POST /v1/responses HTTP/1.1") and b"Authorization: Bearer key-1" in head
    call = {"type": "function_call", "name": "look"}
    assert wire_server.body() == {
        "model": "tiny",
        "max_output_tokens": 9,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": STRICT, "strict": True}},
        "tools": [{"type": "function", "name": "look", "description": "L", "parameters": LOOK, "strict": False}],
        "tool_choice": {"type": "function", "name": "look"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": False,
        "input": [
            {"role": "system", "content": "Be short."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look."},
                    {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0K", "detail": "auto"},
                    {"type": "input_file", "filename": "file.pdf", "file_data": PDF.url},
                ],
            },
            thought,
            {"role": "assistant", "content": "I look."},
            {**call, "call_id": "c1", "arguments": '{"at": "sky"}'},
            {**call, "call_id": "c:2", "arguments": "{oops"},
            {"type": "function_call_output", "call_id": "c1", "output": "blue"},
            {"type": "function_call_output", "call_id": "c:2", "output": '{"no": 1}'},
            {"role": "user", "content": "And?"},
        ],
    }


async def test_openais_responses_are_read_item_by_item(wire_server: WireServer, client: MakeClient) -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    call = {"type": "function_call", "name": "look", "arguments": ""}
    used: dict[str, Any] = {"input_tokens": 9, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 4}}
    used |= {"output_tokens_details": {"reasoning_tokens": 6}}
    said: tuple[dict[str, Any], ...] = (
        {"type": "response.output_item.added", "output_index": 0, "item": thought},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm."},
        {"type": "response.output_item.done", "output_index": 0, "item": {**thought, "encrypted_content": "x"}},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "I look."},
        {"type": "response.output_item.added", "output_index": 2, "item": {**call, "call_id": "c1"}},
        {"type": "response.output_item.added", "output_index": 3, "item": {**call, "call_id": "c2"}},
        {"type": "response.function_call_arguments.delta", "output_index": 3, "delta": '{"at":1}'},
        {"type": "response.output_item.done", "output_index": 2, "item": {**call, "arguments": "{}"}},
        {"type": "response.completed", "response": {"id": "r1", "status": "completed", "usage": used}},
    )
    answer = await answered(wire_server, client, "openai-responses", *said)
    assert (answer.text, answer.reasoning, answer.finish_reason) == ("I look.", "Hm.", "tool_calls")
    assert [(one.id, one.arguments) for one in answer.tool_calls] == [("c1", "{}"), ("c2", '{"at":1}')]
    assert answer.extra == {"reasoning_items": [{**thought, "encrypted_content": "x"}]}
    assert answer.usage == LlmUsage(prompt_tokens=9, cached_tokens=4, completion_tokens=8, reasoning_tokens=6)
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    ended = {"type": "response.incomplete", "response": cut}
    short = await answered(wire_server, client, "openai-responses", *said[:5], ended)
    assert (short.finish_reason, short.tool_calls[0].arguments) == ("length", "")
    failed = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Later."}}
    with pytest.raises(PluginFailure, match="Later") as caught:
        await answered(wire_server, client, "openai-responses", {"type": "response.failed", "response": failed})
    assert caught.value.info.details["status"] == 429


async def test_what_gemini_is_sent(wire_server: WireServer, client: MakeClient) -> None:
    said = {"candidates": [{"content": {"parts": [{"text": "{}"}]}, "finishReason": "STOP"}]}
    wire_server.pieces = [http(json.dumps(said), head=CLOSE)]
    made = await client(wire_server.base_url.removesuffix("/v1"), wire="gemini", api_key="key-1")
    messages = conversation({"thoughtSignature": "s0"}, {"thoughtSignature": "s1"})
    parameters: dict[str, Any] = {"max_tokens": 9, "stop": ["END"], "n": 1, "top_k": 3}
    request = LlmRequest(
        messages=messages, tools=TOOLS, tool_choice="required", response_schema=STRICT, parameters=parameters
    )
    assert (await made.complete(request)).notices == ["the server does not take n"]
    head = wire_server.requests[0].partition(b"\r\n\r\n")[0]
    assert head.startswith(b"POST /v1beta/models/tiny:generateContent HTTP/1.1") and b"x-goog-api-key: key-1" in head
    assert wire_server.body() == {
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "generationConfig": {
            "maxOutputTokens": 9,
            "stopSequences": ["END"],
            "topK": 3,
            "responseMimeType": "application/json",
            "responseJsonSchema": STRICT,
        },
        "tools": [{"functionDeclarations": [{"name": "look", "description": "L", "parametersJsonSchema": LOOK}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}},
                    {"inlineData": {"mimeType": "application/pdf", "data": "UERG"}},
                    {"text": "Look."},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "I look.", "thoughtSignature": "s0"},
                    {"functionCall": {"name": "look", "args": {"at": "sky"}}, "thoughtSignature": "s1"},
                    {"functionCall": {"name": "look", "args": {"unreadable": "{oops"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "look", "response": {"result": "blue"}}},
                    {"functionResponse": {"name": "look", "response": {"no": 1}}},
                    {"text": "And?"},
                ],
            },
        ],
    }


async def test_geminis_answers_are_read_part_by_part(wire_server: WireServer, client: MakeClient) -> None:
    def parts(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"responseId": "r1", "candidates": [{"content": {"parts": [*given]}, **more}]}

    call = {"name": "look", "args": {"at": "sky"}}
    used = {"promptTokenCount": 9, "cachedContentTokenCount": 4, "candidatesTokenCount": 5, "thoughtsTokenCount": 6}
    answer = await answered(
        *(wire_server, client, "gemini"),
        parts({"text": "Hm.", "thought": True}),
        parts({"text": "I look."}, {"functionCall": call, "thoughtSignature": "s1"}, {"functionCall": {"name": "x"}}),
        {**parts({"text": "", "thoughtSignature": "s0"}, finishReason="STOP"), "usageMetadata": used},
    )
    assert (answer.text, answer.reasoning, answer.finish_reason) == ("I look.", "Hm.", "tool_calls")
    first, second = answer.tool_calls
    assert (first.arguments, first.extra, second.arguments) == ('{"at": "sky"}', {"thoughtSignature": "s1"}, "{}")
    assert (answer.extra, first.id != second.id) == ({"thoughtSignature": "s0"}, True)
    assert answer.usage == LlmUsage(prompt_tokens=9, cached_tokens=4, completion_tokens=11, reasoning_tokens=6)
    blocked = await answered(wire_server, client, "gemini", {"promptFeedback": {"blockReason": "SAFETY"}})
    assert (blocked.text, blocked.finish_reason) == ("", "content_filter")
    with pytest.raises(PluginFailure, match="could not read") as caught:
        await answered(wire_server, client, "gemini", parts(finishReason="MALFORMED_FUNCTION_CALL"))
    assert caught.value.info.retryable


async def test_what_a_server_does_not_take_is_sent_otherwise(wire_server: WireServer, client: MakeClient) -> None:
    ask = [ChatMessage(role="user", content="?")]
    request = LlmRequest(messages=ask, tools=TOOLS, response_schema=STRICT, parameters={"temperature": 1})
    rows: list[tuple[str, str, Callable[[dict[str, Any]], Any]]] = [
        ("anthropic", "output_config: unknown field", lambda body: "output_config" in body),
        ("anthropic", "`temperature` is deprecated for this model", lambda body: "temperature" in body),
        ("anthropic", "cache_control is not supported", lambda body: "cache_control" in json.dumps(body)),
        ("gemini", 'Unknown name "parametersJsonSchema"', lambda body: "JsonSchema" in json.dumps(body)),
    ]
    with Failures() as failures:
        for wire, said, has in rows:
            with failures.row(said):
                made = await client(wire_server.base_url, wire=wire)
                wire_server.requests.clear()
                wire_server.pieces = refusal("400 Bad Request", said)
                await failure(made.complete(request))
                assert [has(json.loads(one.partition(b"\r\n\r\n")[2])) for one in wire_server.requests] == [True, False]


async def test_servers_count_tokens_and_say_when_to_come_back(wire_server: WireServer, client: MakeClient) -> None:
    request = LlmRequest(messages=[ChatMessage(role="user", content="?")])
    for wire, field, path in (
        ("anthropic", "input_tokens", b"POST /v1/messages/count_tokens"),
        ("gemini", "totalTokens", b"POST /v1/models/tiny:countTokens"),
    ):
        wire_server.requests.clear()
        wire_server.pieces = [http(json.dumps({field: 12}), head=CLOSE)]
        assert await (await client(wire_server.base_url, wire=wire)).count_tokens(request) == 12
        assert wire_server.requests[0].startswith(path)
    none = await failure((await client(wire_server.base_url)).count_tokens(request))
    assert none.info.details["missing"] == "count_tokens"
    later = {"code": 429, "message": "Quota.", "details": [{"@type": "type", "retryDelay": "34.5s"}]}
    wire_server.pieces = refusal("429 Too Many", later)
    error = await failure((await client(wire_server.base_url, wire="gemini")).complete(request))
    assert (error.info.retryable, error.info.details["retry_after"]) == (True, 34.5)


async def test_own_headers_and_queries_are_sent(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [http("{}", head=CLOSE)]
    own = {"api-key": "a-secret-key", "authorization": "Basic x"}
    more = {"headers": own, "query": {"api-version": "2"}, "organization": "org-1", "project": "p-1"}
    made = await client(wire_server.base_url, api_key="key-1", **more)
    await failure(made.complete(LlmRequest(messages=[ChatMessage(role="user", content="?")])))
    head = wire_server.requests[0].partition(b"\r\n\r\n")[0].decode()
    assert head.startswith("POST /v1/chat/completions?api-version=2 HTTP/1.1")
    for line in (
        "api-key: a-secret-key",
        "OpenAI-Organization: org-1",
        "OpenAI-Project: p-1",
        "authorization: Basic x",
    ):
        assert line in head
    assert "key-1" not in head
    wire_server.pieces = refusal("401 No", "the key a-secret-key is wrong")
    error = await failure(made.complete(LlmRequest(messages=[ChatMessage(role="user", content="?")])))
    assert "the key ******** is wrong" in error.message


async def test_a_model_of_another_wire_is_set_up_like_any(wire_server: WireServer, project: Path) -> None:
    wires = {
        "anthropic": {"content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn", "input_tokens": 7},
        "gemini": {"candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}], "totalTokens": 7},
    }
    models = {name: {"adapter": name, "base_url": wire_server.base_url, "model": "tiny"} for name in wires}
    models["scripted"] = {"adapter": "scripted", "file": "replies.yaml"}
    async with Host(project=project, settings={"extensions.tavern-llm.models": models}) as host:
        llm = host.services.get(LLM)
        for name, said in wires.items():
            request = LlmRequest(model=name, messages=[ChatMessage(role="user", content="?")])
            wire_server.pieces = [http(json.dumps(said), head=CLOSE)]
            assert ((await llm.complete(request)).text, await llm.count_tokens(request)) == ("Hi.", 7)
        none = LlmRequest(model="scripted", messages=[ChatMessage(role="user", content="?")])
        assert await llm.count_tokens(none) is None


def test_addresses_are_mended_where_they_can_be_meant() -> None:
    rows = {
        "api.example.com/v1": "https://api.example.com/v1",
        "localhost:11434": "http://localhost:11434",
        "models:8000/v1": "http://models:8000/v1",
        "https://x.example/v1/chat/completions": "https://x.example/v1",
        "https://x.example/v1/chat/completions?a=b": "https://x.example/v1?a=b",
        "https://x.example/v1/messages/": "https://x.example/v1",
        " https://x.example/v1/ ": "https://x.example/v1/",
    }
    assert {url: OpenAiOptions(base_url=url, model="m").base_url for url in rows} == rows
    for wrong in ({"Host": "x"}, {"a b": "x"}, {"x": "a\r\nb"}):
        with pytest.raises(ValueError, match="header|characters"):
            OpenAiOptions(base_url="https://x.example", model="m", headers=wrong)
