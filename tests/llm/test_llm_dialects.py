"""What is sent to OpenAI-compatible servers, and what becomes of it where one does not take it."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web
from helpers.model_server import model_server, says
from helpers.repetition import Failures
from helpers.wire_server import WireServer

from tavern_host import LLM
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import InvalidInput, PluginFailure
from tavern_host.testing import MakeHost
from tavern_llm.api.llm import ChatImage, ChatMessage, LlmRequest, LlmToolCall
from tavern_llm.chat_client import ChatClient

MakeClient = Callable[..., Awaitable[ChatClient]]
Body = dict[str, Any]

KINDS = {"at": {"$ref": "#/$defs/place"}, "how": {"const": "far"}, "why": {"type": ["string", "null"]}}
PLACES = {"place": {"oneOf": [{"type": "string", "minLength": 1, "description": "A place."}]}}
PARAMETERS = {"type": "object", "properties": KINDS, "required": ["at"], "additionalProperties": False, "$defs": PLACES}
AT = {"anyOf": [{"type": "string", "description": "A place."}]}
PLAIN = {
    **{"type": "object", "required": ["at"]},
    "properties": {"at": AT, "how": {"enum": ["far"]}, "why": {"type": "string"}},
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": PARAMETERS}}
]
A = {"a": {"type": "string"}}
SCHEMA: Any = {"type": "object", "properties": A, "required": ["a"], "additionalProperties": False}
LONG_ID = "call_0123456789abcdef0123456789abcdef"
TALK = [
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="user", content="The sky?"),
    ChatMessage(
        role="assistant",
        tool_calls=[LlmToolCall(id=LONG_ID, name="look", arguments='{"at": "sky"}', extra={"signature": "c2ln"})],
        extra={"reasoning_content": "Look."},
    ),
    ChatMessage(role="tool", content="Blue.", tool_call_id=LONG_ID),
]
TURNS = [
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="assistant", content="Welcome."),
    ChatMessage(role="user", content="One."),
    ChatMessage(role="user", content="Two.", images=[ChatImage(url="https://example.com/x.png")]),
    ChatMessage(role="system", content="It is noon."),
    ChatMessage(role="assistant", content="Hm."),
]


def asked(*messages: ChatMessage, **more: Any) -> LlmRequest:
    return LlmRequest(messages=list(messages) or [ChatMessage(role="user", content="hello")], **more)


def answers(data: Any, status: int, **headers: str) -> Any:
    """Return a plan to answer with an error."""

    async def plan(request: web.Request, body: Body) -> web.StreamResponse:
        return web.json_response(data, status=status, headers=headers)

    return plan


def refuses_until(taken: Callable[[Body], bool], said: str, status: int) -> Any:
    """Return a plan to answer once a request has the right form."""

    async def plan(request: web.Request, body: Body) -> web.StreamResponse:
        if taken(body):
            return await says("Good.")(request, body)
        return web.json_response({"error": {"message": said, "type": "invalid_request_error"}}, status=status)

    return plan


def roles(body: Body) -> str:
    return "".join(message["role"][0] for message in body["messages"])


WITH_TOOLS = asked(*TALK, tools=TOOLS, tools_text="Write CALL look.", tool_choice="required")
WITH_BOTH = asked(tools=TOOLS, response_schema=SCHEMA)

# What is refused; the request; which form is taken; the status and what the server says; a part of the notice, if any.
REFUSALS: list[tuple[str, LlmRequest, Callable[[Body], bool], int, str, str]] = [
    ("stream_options", asked(), lambda b: "stream_options" not in b, 400, "Unrecognized request argument supplied: stream_options", ""),
    ("stream_options, in pydantic's words", asked(), lambda b: "stream_options" not in b, 422, "body.stream_options: Extra inputs are not permitted", ""),
    ("parallel_tool_calls", asked(tools=TOOLS, parameters={"parallel_tool_calls": True}), lambda b: "parallel_tool_calls" not in b, 400, "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", "does not take parallel_tool_calls"),
    ("temperature", asked(parameters={"temperature": 0.5}), lambda b: "temperature" not in b, 400, "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.", "does not take temperature"),
    ("max_tokens", asked(parameters={"max_tokens": 9}), lambda b: b.get("max_completion_tokens") == 9 and "max_tokens" not in b, 400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", ""),
    ("max_completion_tokens", asked(parameters={"max_completion_tokens": 9}), lambda b: b.get("max_tokens") == 9 and "max_completion_tokens" not in b, 422, "max_completion_tokens: Extra inputs are not permitted", ""),
    ("tools with a schema", WITH_BOTH, lambda b: "response_format" not in b and "JSON Schema" in b["messages"][0]["content"], 400, "Function calling with a response mime type: 'application/json' is unsupported", "takes no response schema here"),
    ("tools with a grammar", WITH_BOTH, lambda b: "response_format" not in b and "tools" in b, 500, "Cannot use custom grammar constraints with tools.", "takes no response schema here"),
    ("a schema", asked(response_schema=SCHEMA), lambda b: "response_format" not in b, 400, "This response_format type is unavailable now", "takes no response schema here"),
    ("null content", asked(*TALK), lambda b: b["messages"][2]["content"] == "", 400, "messages.2.content: Input should be a valid string, got null", ""),
    ("no turns", asked(*TURNS), lambda b: roles(b) == "suaua", 500, "Conversation roles must alternate user/assistant/user/assistant/...", ""),
    ("system messages later", asked(*TURNS), lambda b: roles(b) == "suaua", 400, "System message must be at the beginning.", ""),
    ("system messages", asked(*TURNS[2:], TURNS[0]), lambda b: "s" not in roles(b), 400, "System role not supported", ""),
    ("long ids", asked(*TALK), lambda b: len(i := b["messages"][2]["tool_calls"][0]["id"]) == 9 and b["messages"][3]["tool_call_id"] == i, 400, "Tool call id was call_012 but must be a-z, A-Z, 0-9, with a length of 9.", ""),
    ("schema keywords", asked(tools=TOOLS), lambda b: b["tools"][0]["function"]["parameters"] == PLAIN, 400, 'Invalid JSON payload received. Unknown name "additionalProperties" at \'tools[0].function_declarations[0].parameters\': Cannot find field.', ""),
    ("extras of messages", asked(*TALK), lambda b: not {"reasoning_content"} & b["messages"][2].keys() and "signature" not in b["messages"][2]["tool_calls"][0], 400, "property 'messages.2.reasoning_content' is unsupported", ""),
    ("tools, says Ollama", WITH_TOOLS, lambda b: "tools" not in b and "tool_choice" not in b and roles(b) == "suau", 400, "registry.ollama.ai/library/gemma:2b does not support tools", "takes no tools"),
    ("tools, says vLLM", WITH_TOOLS, lambda b: "tools" not in b, 400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "takes no tools"),
    ("tools, says llama.cpp", WITH_TOOLS, lambda b: "tools" not in b, 500, "tools param requires --jinja flag", "takes no tools"),
    ("tools, says a router", WITH_TOOLS, lambda b: "tools" not in b, 404, "No endpoints found that support tool use.", "takes no tools"),
    ("a choice of tools", WITH_TOOLS, lambda b: "tool_choice" not in b and "tools" in b, 400, "tool_choice 'required' is not supported", "does not take tool_choice"),
    ("several things", asked(*TALK, parameters={"max_tokens": 9, "seed": 1}), lambda b: not {"seed", "max_tokens"} & b.keys() and b["messages"][2]["content"] == "", 400, "unsupported: 'seed'; use max_completion_tokens; content may not be null", "does not take seed"),
]  # fmt: skip


async def test_refused_forms_are_left_out_and_remembered(client: MakeClient) -> None:
    with Failures() as failures:
        async with model_server() as server:
            for name, request, taken, status, said, notice in REFUSALS:
                server.default = refuses_until(taken, said, status)
                with failures.row(name):
                    made = await client(server.base_url)
                    server.bodies.clear()
                    chunks = [chunk async for chunk in made.stream(request)]
                    assert len(server.bodies) == (4 if name == "several things" else 2)
                    response = chunks[-1].response
                    assert response is not None and response.text.strip() == "Good."
                    assert len(response.notices) == bool(notice) and notice in "".join(response.notices)
                    again = [chunk async for chunk in made.stream(request)][-1].response
                    assert again is not None and again.notices == response.notices
                    assert taken(server.bodies[-1]) and server.bodies[-1] == server.bodies[-2]


async def test_tools_as_text_keep_the_conversation(client: MakeClient) -> None:
    async with model_server() as server:
        made = await client(server.base_url, takes_tools=False)
        answer = await made.complete(WITH_TOOLS)
        assert [message["content"] for message in server.bodies[0]["messages"]] == [
            "Be brief.\n\nWrite CALL look.",
            "The sky?",
            'I called look with {"at": "sky"}',
            "The result of look:\nBlue.",
        ]
        assert answer.notices == ["the server takes no tools: the model read about them in the system message"]
        server.default = refuses_until(lambda body: "tools" not in body, "tools are not supported", 400)
        with pytest.raises(PluginFailure, match="tools are not supported"):
            await (await client(server.base_url)).complete(asked(tools=TOOLS))
        assert len(server.bodies) == 2, "without a text about the tools there is no other form"


NO_REFUSALS = [
    (asked(parameters={"temperature": 3}), "Invalid value for temperature: it must be between 0 and 2"),
    (asked(parameters={"user": "bob", "stop": "."}), "An unknown error stopped us; ask your user to stop"),
    (WITH_TOOLS, "tool_choice names a function that is not among the tools"),
    (asked(*TALK), "The request failed. Alternatively, write to us."),
    (asked(response_schema=SCHEMA), "The prompt was flagged by our policy"),
]


async def test_other_errors_are_not_tried_again(client: MakeClient) -> None:
    async with model_server() as server:
        for request, said in NO_REFUSALS:
            server.bodies.clear()
            server.default = refuses_until(lambda body: False, said, 400)
            with pytest.raises(PluginFailure, match="refuses the request"):
                await (await client(server.base_url)).complete(request)
            assert len(server.bodies) == 1, said
        server.bodies.clear()
        server.default = refuses_until(lambda body: False, "'stream_options' is not supported", 400)
        made = await client(server.base_url)
        with pytest.raises(PluginFailure, match="refuses the request"):
            _ = [chunk async for chunk in made.stream(asked())]
        server.default = says("Good.")
        _ = [chunk async for chunk in made.stream(asked())]
        told = ["stream_options" in body for body in server.bodies]
        assert told == [True, False, True], "what was learned needs a success"


OVERFLOWS = [
    (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please reduce the length of the messages."),
    (400, "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only 1024 tokens"),
    (400, "Input length (265330) exceeds model's maximum context length (262144)."),
    (500, "the request exceeds the available context size. try increasing the context size or enable context shift"),
    (400, "request (124071 tokens) exceeds the available context size (123904 tokens), try increasing it"),
    (500, "context shift is disabled"),
    (400, "Requested tokens (5354) exceed context window of 4096"),
    (400, "prompt is too long: 213462 tokens > 200000 maximum"),
    (400, "Input is too long for requested model."),
    (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."),
    (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
    (400, "too many tokens: total number of tokens in the prompt cannot exceed 4081"),
    (400, "prompt token count of 140000 exceeds the limit of 128000"),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    (400, "Please reduce the length of the messages or completion."),
    (400, "context/cache: Job requires 1027 pages (only 1024 available) and cannot be enqueued."),
    (400, '{"error": {"code": "context_length_exceeded", "message": "No."}}'),
    (413, "Payload Too Large"),
    (200, "the request exceeds the available context size"),
]  # fmt: skip
NO_OVERFLOWS = [
    (429, "Rate limit reached: maximum context length of requests per minute"),
    (413, "Request too large for model: tokens per minute (TPM): Limit 6000, Requested 8000"),
    (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
    (400, "Invalid type for 'messages[0].content'"),
    (401, "Wrong key; see our notes on context length exceeded"),
]


async def test_overflow_is_recognised_across_servers(client: MakeClient) -> None:
    rows = [(*row, True) for row in OVERFLOWS] + [(*row, None) for row in NO_OVERFLOWS]
    async with model_server() as server:
        made = await client(server.base_url)
        with Failures() as failures:
            for status, said, overflow in rows:
                with failures.row(said):
                    server.default = answers(
                        json.loads(said) if said[0] == "{" else {"error": {"message": said}}, status
                    )
                    with pytest.raises(PluginFailure) as caught:
                        await made.complete(asked(parameters={"max_tokens": 5}))
                    assert caught.value.info.details.get("overflow") is overflow
                    assert not (overflow and caught.value.info.retryable)


async def test_a_small_count_of_the_prompt_is_a_notice_and_no_failure(client: MakeClient) -> None:
    words, signs = ChatMessage(role="user", content="word " * 6000), ChatMessage(role="user", content="天地" * 6000)
    rows = [(words, 4096, True), (words, 6100, False), (words, 0, False), (signs, 2048, True), (signs, 6000, False)]
    for message, counted, is_cut in rows:
        async with model_server(default=says("Good.", prompt=counted)) as server:
            made = await client(server.base_url)
            streamed = [chunk async for chunk in made.stream(asked(message))][-1].response
            for answer in (await made.complete(asked(message)), streamed):
                assert answer is not None
                assert answer.text.strip() == "Good."
                assert any("it has cut the prompt, or counts only" in one for one in answer.notices) is is_cut


async def test_consecutive_requests_share_their_bytes(wire_server: WireServer, client: MakeClient) -> None:
    answer = b'{"choices": [{"message": {"content": "hi"}}]}'
    wire_server.pieces = [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n" + answer]
    more = {"tools": TOOLS, "response_schema": SCHEMA}
    for shapes in ({}, {"takes_tools": False}):
        wire_server.requests.clear()
        made = await client(wire_server.base_url, **shapes)
        for until in (2, 3, 4):
            order = ["top_p", "seed"] if until == 3 else ["seed", "top_p"]
            parameters = dict.fromkeys(order, 1)
            await made.complete(asked(*TALK[:until], tools_text="CALL", parameters=parameters, **more))
        bodies = [request.partition(b"\r\n\r\n")[2] for request in wire_server.requests]
        assert all(body.endswith(b"]}") for body in bodies)
        assert bodies[1].startswith(bodies[0][:-2]) and bodies[2].startswith(bodies[1][:-2])


async def test_schema_images_and_echo_are_sent(client: MakeClient) -> None:
    image = b"\x89PNG\r\n"
    blob = Blob(hash=hashlib.sha256(image).hexdigest(), media_type="image/png", length=len(image))
    pictures = [ChatImage(blob=blob), ChatImage(url="https://example.com/x.png")]
    shown = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(image).decode()}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}},
    ]
    result = TALK[3].model_copy(update={"images": pictures})
    async with model_server() as server:
        made = await client(server.base_url)
        loose = {"type": "object", "properties": {"a": {"type": "string"}}}
        question = ChatMessage(role="user", content="What is it?", images=pictures)
        await made.complete(
            asked(question, *TALK[1:3], result, TALK[1], tools=TOOLS, tool_choice="look", response_schema=SCHEMA)
        )
        body = server.bodies[-1]
        assert body["tools"] == TOOLS and body["tool_choice"] == {"type": "function", "function": {"name": "look"}}
        assert body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        }
        assert body["messages"][0]["content"] == [{"type": "text", "text": "What is it?"}, *shown]
        function = {"name": "look", "arguments": '{"at": "sky"}'}
        call = {"id": LONG_ID, "type": "function", "function": function, "signature": "c2ln"}
        assert body["messages"][2:] == [
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Look."},
            {"role": "tool", "content": "Blue.", "tool_call_id": LONG_ID},
            {"role": "user", "content": shown},
            {"role": "user", "content": "The sky?"},
        ]
        await made.complete(asked(response_schema=loose, tool_choice="auto"))
        assert "strict" not in server.bodies[-1]["response_format"]["json_schema"]
        assert "tool_choice" not in server.bodies[-1], "there are no tools"
        with pytest.raises(InvalidInput, match="an image of 64 MiB is too large"):
            huge = ChatImage(blob=blob.model_copy(update={"length": 64 << 20}))
            await made.complete(asked(ChatMessage(role="user", images=[huge])))
        blind, count = await client(server.base_url, takes_images=False), len(server.bodies)
        with pytest.raises(InvalidInput, match="sees no pictures"):
            await blind.complete(asked(question))
        assert len(server.bodies) == count


async def test_images_are_read_where_the_host_keeps_them(make_host: MakeHost) -> None:
    async with model_server() as server:
        settings = {"adapter": "openai", "base_url": server.base_url, "model": "tiny"}
        async with make_host(settings={"extensions.tavern-llm.models": {"eye": settings}}) as host:
            blob = await host.blobs.put(b"GIF89a", "image/gif")
            message = ChatMessage(role="user", content="What is it?", images=[ChatImage(blob=blob)])
            await host.services.get(LLM).complete(LlmRequest(messages=[message]))
        url = f"data:image/gif;base64,{base64.b64encode(b'GIF89a').decode()}"
        assert server.bodies[0]["messages"][0]["content"][1] == {"type": "image_url", "image_url": {"url": url}}


async def test_each_time_limit_is_its_own(wire_server: WireServer, client: MakeClient) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    empty, token = b'data: {"choices": [{"delta": {}}]}\n\n', b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    rows: list[tuple[list[bytes | None], dict[str, float], str]] = [
        ([None], {"first_token_timeout": 0.2}, "stayed silent for 0.2 s"),
        ([head, *[b": wait\n\n", empty] * 40, None], {"first_token_timeout": 0.3}, "stayed silent for 0.3 s"),
        ([head, token, *[b": wait\n\n"] * 60, None], {"timeout": 0.25, "first_token_timeout": 9}, "for 0.25 s"),
    ]
    for pieces, limits, said in rows:
        wire_server.pieces = pieces
        made = await client(wire_server.base_url, **limits)
        with pytest.raises(PluginFailure, match=said) as caught:
            _ = [chunk async for chunk in made.stream(asked())]
        assert caught.value.info.retryable
    with socket.create_server(("127.0.0.1", 0), backlog=1) as full, ExitStack() as waiting:
        address = full.getsockname()
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        made = await client(f"http://127.0.0.1:{address[1]}/v1", connect_timeout=0.2)
        with pytest.raises(PluginFailure, match="nobody took the connection"):
            await made.complete(asked())


async def test_waiting_times_come_in_two_forms(client: MakeClient) -> None:
    rows = [("17", 17), ("1.5", 1.5), ("Mon, 01 Jan 1990 00:00:00 GMT", 0), ("soon", None), ("nan", None)]
    async with model_server() as server:
        for header, expected in rows:
            server.default = answers({"error": "Not now."}, 429, **{"Retry-After": header})
            with pytest.raises(PluginFailure) as caught:
                await (await client(server.base_url)).complete(asked())
            assert caught.value.info.details.get("retry_after") == expected
