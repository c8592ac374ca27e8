"""The client of OpenAI-compatible servers: a real server, and one that misbehaves in every usual way."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from helpers.openai_server import OpenAiServer
from helpers.repetition import Failures
from helpers.wire_server import WireServer
from pydantic import ValidationError

import tavern_llm.chat_client
from tavern_host.contracts.errors import InvalidInput, Misconfigured, PluginFailure
from tavern_host.contracts.llm import ChatMessage, LlmChunk, LlmRequest, LlmResponse, LlmUsage
from tavern_llm.chat_client import ChatClient
from tavern_llm.openai_options import OpenAiOptions

MakeClient = Callable[..., Awaitable[ChatClient]]

KEY = "sk-very-secret"


def ask(text: str = "hello", **parameters: Any) -> LlmRequest:
    return LlmRequest(messages=[ChatMessage(role="user", content=text)], parameters=parameters)


def http(body: bytes | str, *, status: str = "200 OK", kind: str = "application/json", head: str = "") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{head}\r\n"
    return lines.encode() + data


CLOSE = "Connection: close\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"


def event(text: str = "", **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, **more}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


ANSWER = json.dumps({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})


async def collect(client: ChatClient, request: LlmRequest) -> list[LlmChunk]:
    return [chunk async for chunk in client.stream(request)]


async def failure(awaitable: Awaitable[Any]) -> PluginFailure:
    with pytest.raises(PluginFailure) as caught:
        await awaitable
    assert "\n" not in caught.value.message
    return caught.value


# --- a real server --------------------------------------------------------------------------------


async def test_a_whole_answer_of_a_real_server(chat_server: OpenAiServer, client: MakeClient) -> None:
    response = await (await client(chat_server.base_url)).complete(ask("Good morning!"))
    assert (response.text, response.model, response.finish_reason) == ("Good morning to you, too.", "tiny", "stop")
    assert response.usage == LlmUsage(prompt_tokens=10, completion_tokens=20)


async def test_a_streamed_answer_of_a_real_server(chat_server: OpenAiServer, client: MakeClient) -> None:
    chunks = await collect(await client(chat_server.base_url), ask("你好"))
    assert "".join(chunk.text for chunk in chunks) == "你好，旅人。要喝点什么？"
    assert len(chunks) > 2
    assert chunks[-1].response is not None
    assert (chunks[-1].response.text, chunks[-1].response.finish_reason) == ("你好，旅人。要喝点什么？", "stop")


# --- what is sent ---------------------------------------------------------------------------------


async def test_the_request_is_what_the_protocol_says(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [http(ANSWER)]
    made = await client(wire_server.base_url + "/?api-version=2", api_key=KEY, parameters={"temperature": 0, "seed": 1})
    messages = [ChatMessage(role="system", content="s"), ChatMessage(role="user", content="u", name="bob")]
    await made.complete(LlmRequest(messages=messages, parameters={"temperature": 0.5}))
    head = wire_server.requests[0].partition(b"\r\n\r\n")[0]
    assert head.startswith(b"POST /v1/chat/completions?api-version=2 HTTP/1.1")
    assert b"Authorization: Bearer sk-very-secret" in head
    assert wire_server.body() == {
        "temperature": 0.5,
        "seed": 1,
        "model": "tiny",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u", "name": "bob"}],
        "stream": False,
    }


async def test_without_a_key_none_is_sent(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [http(ANSWER)]
    await (await client(wire_server.base_url)).complete(ask())
    assert b"authorization" not in wire_server.requests[0].lower()


async def test_the_key_may_come_from_the_environment(
    wire_server: WireServer, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_LLM_KEY", KEY)
    wire_server.pieces = [http(ANSWER)]
    await (await client(wire_server.base_url, api_key_env="TEST_LLM_KEY")).complete(ask())
    assert b"Bearer sk-very-secret" in wire_server.requests[0]


async def test_parameters_may_not_change_who_is_asked_what(wire_server: WireServer, client: MakeClient) -> None:
    made = await client(wire_server.base_url)
    with pytest.raises(InvalidInput, match="may not set model, stream"):
        await made.complete(ask(model="dear", stream=True))
    assert wire_server.requests == []


async def test_parameters_that_must_be_numbers_are_checked(wire_server: WireServer, client: MakeClient) -> None:
    made = await client(wire_server.base_url, parameters={"top_k": 2})
    rows: list[tuple[dict[str, Any], str]] = [
        ({"temperature": "hot"}, "temperature: must be a number"),
        ({"top_p": True}, "top_p: must be a number"),
        ({"presence_penalty": [1]}, "presence_penalty: must be a number"),
        ({"temperature": math.nan}, "temperature: must be a number"),
        ({"max_tokens": 1.5}, "max_tokens: must be a whole number"),
        ({"seed": math.inf}, "seed: must be a whole number"),
        ({"n": "2"}, "n: must be a whole number"),
    ]
    with Failures() as failures:
        for parameters, told in rows:
            with failures.row(parameters), pytest.raises(InvalidInput, match=f"an LLM request: {told}$"):
                await made.complete(ask(**parameters))
    assert wire_server.requests == []
    wire_server.pieces = [
        http('{"error": "temperature must be between 0 and 2, got 3"}', status="400 Bad Request", head=CLOSE)
    ]
    error = await failure(made.complete(ask(temperature=3, max_tokens=-1, top_p=None, n=1.0)))
    assert "refuses the request (400): temperature must be between 0 and 2, got 3" in error.message
    wire_server.pieces = [http(ANSWER, head=CLOSE)]
    await made.complete(ask(temperature=0.5))
    assert b'"temperature": 0.5' in wire_server.requests[-1]


async def test_numbers_of_servers_that_are_none_do_no_harm(wire_server: WireServer, client: MakeClient) -> None:
    made = await client(wire_server.base_url)
    rows: list[tuple[str, LlmUsage]] = [
        ('{"prompt_tokens": 1e3, "completion_tokens": -4}', LlmUsage()),
        (f'{{"prompt_tokens": {10**40}, "completion_tokens": true}}', LlmUsage()),
        (
            '{"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}',
            LlmUsage(prompt_tokens=3, cached_tokens=2),
        ),
        ('{"prompt_cache_hit_tokens": 2, "completion_tokens_details": 5}', LlmUsage(cached_tokens=2)),
    ]
    with Failures() as failures:
        for usage, read in rows:
            with failures.row(usage):
                wire_server.pieces = [http(ANSWER.replace('{"choices"', f'{{"usage": {usage}, "choices"'), head=CLOSE)]
                assert (await made.complete(ask())).usage == read
        with failures.row("NaN"):
            wire_server.pieces = [http(ANSWER.replace('"hi"', '"hi", "mood": NaN'), head=CLOSE)]
            assert (await made.complete(ask())).extra == {}
        vectors = ("[NaN]", "[1e999]", f"[{'9' * 400}]", '["x"]', "[[1]]", '[1], "index": []', '[1], "index": 1')
        for vector in vectors:
            with failures.row(vector):
                wire_server.pieces = [http(f'{{"data": [{{"embedding": {vector}}}]}}', head=CLOSE)]
                assert "without the vectors of all 1 texts" in (await failure(made.embed(["a"]))).message


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [("hi", "hi"), (None, ""), ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab")],
)
async def test_content_comes_in_several_shapes(
    wire_server: WireServer, client: MakeClient, content: Any, text: str
) -> None:
    wire_server.pieces = [http(json.dumps({"choices": [{"message": {"content": content}}]}))]
    assert (await (await client(wire_server.base_url)).complete(ask())).text == text


async def test_a_stream_is_read_however_it_is_cut(wire_server: WireServer, client: MakeClient) -> None:
    stream = b": hello\n\n" + event("一 ") + event("two") + event(finish_reason="length")
    stream += b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\r\n\r\ndata: [DONE]\r\n\r\n'
    wire_server.pieces = [EVENTS, *(stream[i : i + 7] for i in range(0, len(stream), 7))]
    chunks = await collect(await client(wire_server.base_url), ask())
    assert chunks == [
        LlmChunk(text="一 "),
        LlmChunk(text="two"),
        LlmChunk(
            response=LlmResponse(
                text="一 two",
                model="tiny",
                finish_reason="length",
                usage=LlmUsage(prompt_tokens=3, completion_tokens=4),
            )
        ),
    ]
    assert wire_server.body()["stream"] is True


async def test_a_stream_that_stops_after_its_finish_reason_is_whole(
    wire_server: WireServer, client: MakeClient
) -> None:
    wire_server.pieces = [EVENTS, event("a"), event(finish_reason="stop")]
    response = (await collect(await client(wire_server.base_url), ask()))[-1].response
    assert response is not None
    assert (response.text, response.finish_reason) == ("a", "stop")


async def test_a_server_that_does_not_stream_is_understood(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [http(ANSWER)]
    chunks = await collect(await client(wire_server.base_url), ask())
    assert chunks == [
        LlmChunk(text="hi"),
        LlmChunk(response=LlmResponse(text="hi", model="tiny", finish_reason="stop")),
    ]


# --- failures -------------------------------------------------------------------------------------


async def test_nobody_listens(client: MakeClient) -> None:
    error = await failure((await client("http://127.0.0.1:9/v1")).complete(ask()))
    assert (
        error.message
        == "the model 'tiny' at http://127.0.0.1:9 cannot be reached: Connection refused; does it run there?"
    )
    assert error.info.retryable


@pytest.mark.parametrize(
    ("status", "retryable", "part"),
    [
        ("400 Bad Request", False, "refuses the request (400): no such parameter"),
        ("404 Not Found", False, "knows no such model or address; check the address and the model's name (404)"),
        ("402 Payment Required", False, "has no credit left (402)"),
        ("500 Oops", True, "has failed (500)"),
        ("503 Unavailable", True, "has failed (503)"),
    ],
)
async def test_statuses(wire_server: WireServer, client: MakeClient, status: str, retryable: bool, part: str) -> None:
    wire_server.pieces = [http(json.dumps({"error": {"message": "no such\n parameter"}}), status=status)]
    error = await failure((await client(wire_server.base_url)).complete(ask()))
    assert part in error.message
    assert error.info.retryable is retryable


async def test_how_long_to_wait_is_passed_on(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [http("{}", status="429 Too Many", head="Retry-After: 17\r\n")]
    assert (await failure((await client(wire_server.base_url)).complete(ask()))).info.details["retry_after"] == 17


async def test_a_quota_that_is_used_up_stays_so(wire_server: WireServer, client: MakeClient) -> None:
    body = json.dumps({"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}})
    wire_server.pieces = [http(body, status="429 Too Many", head="Retry-After: 17\r\n")]
    error = await failure((await client(wire_server.base_url)).complete(ask()))
    assert "has no quota left (429)" in error.message
    assert not error.info.retryable


async def test_a_key_that_the_server_quotes_is_masked(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [http(json.dumps({"error": {"message": f"bad key {KEY}!"}}), status="401 No")]
    error = await failure((await client(wire_server.base_url, api_key=KEY)).complete(ask()))
    assert error.message.endswith("refuses the API key (401): bad key ***!")


async def test_a_redirect_is_not_followed(wire_server: WireServer, client: MakeClient) -> None:
    head = "Location: http://127.0.0.1:9/stolen\r\n"
    wire_server.pieces = [http("", status="307 Temporary Redirect", head=head)]
    error = await failure((await client(wire_server.base_url, api_key=KEY)).complete(ask()))
    assert "redirects elsewhere (307), which is not followed" in error.message


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (
            "<!DOCTYPE html><html>Welcome",
            "an HTML page where JSON was expected; is the address right (most end in /v1)?",
        ),
        ('{"choices": [', "text that is not JSON"),
        ("", "nothing where JSON was expected; is the address right"),
        ("[1]", "JSON that is not an object"),
        ("{}", "without choices[0].message"),
        ('{"choices": "none"}', "without choices[0].message"),
        ("[" * 100_000, "text that is not JSON"),
        ('{"error": {"message": "model is loading"}}', "an error: model is loading"),
        ('{"error": "overloaded"}', "an error: overloaded"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_answers_that_are_none(
    wire_server: WireServer, client: MakeClient, body: str, part: str, stream: bool
) -> None:
    wire_server.pieces = [http(body, kind="text/html" if body.startswith("<") else "application/json")]
    made = await client(wire_server.base_url)
    error = await failure(collect(made, ask()) if stream else made.complete(ask()))
    assert part in error.message


@pytest.mark.parametrize(
    ("pieces", "part", "retryable"),
    [
        ([event("a"), b'data: {"error": {"message": "out of memory"}}\n\n'], "an error: out of memory", False),
        ([event("a"), b"event: error\ndata: gone\n\n"], "an error: gone", False),
        ([event("a"), b"data: {oops\n\n"], "text that is not JSON", False),
        ([event("a")], "ended the stream before the answer was finished", True),
        ([b""], "ended the stream before the answer was finished", True),
    ],
)
async def test_streams_that_break(
    wire_server: WireServer, client: MakeClient, pieces: list[bytes], part: str, retryable: bool
) -> None:
    wire_server.pieces = [EVENTS, *pieces]
    error = await failure(collect(await client(wire_server.base_url), ask()))
    assert part in error.message
    assert error.info.retryable is retryable


async def test_a_connection_that_breaks_in_the_middle(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [EVENTS.replace(b"Connection: close", b"Content-Length: 9999"), event("a")]
    error = await failure(collect(await client(wire_server.base_url), ask()))
    assert error.message.endswith("broke the connection in the middle of its answer")
    assert error.info.retryable


async def test_a_connection_that_closes_without_an_answer(wire_server: WireServer, client: MakeClient) -> None:
    error = await failure((await client(wire_server.base_url)).complete(ask()))
    assert error.message.endswith("broke the connection before it answered")


async def test_a_server_that_falls_silent(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [EVENTS, event("a"), None]
    error = await failure(collect(await client(wire_server.base_url, timeout=0.2), ask()))
    assert error.message.endswith("stayed silent for 0.2 s")
    assert error.info.retryable


@pytest.mark.parametrize("stream", [False, True])
async def test_an_endless_answer_is_cut_off(
    wire_server: WireServer, client: MakeClient, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(tavern_llm.chat_client, "MAX_BYTES", 1 << 20)
    kind = "text/event-stream" if stream else "application/json"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode()
    wire_server.pieces = [head, b"x" * (2 << 20), None]
    made = await client(wire_server.base_url)
    error = await failure(collect(made, ask()) if stream else made.complete(ask()))
    assert error.message.endswith("sent more than 1 MiB; the answer was cut off")


# --- leaving early --------------------------------------------------------------------------------


async def test_cancelling_closes_the_connection(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [EVENTS, event("a"), None]
    task = asyncio.create_task(collect(await client(wire_server.base_url), ask()))
    await wire_server.asked.wait()
    task.cancel()
    async with asyncio.timeout(60):
        await wire_server.closed.wait()
    assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_closing_a_stream_early_closes_the_connection(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [EVENTS, event("a"), None]
    made = await client(wire_server.base_url)
    async with aclosing(made.stream(ask())) as chunks:  # type: ignore[type-var]
        assert (await anext(chunks)).text == "a"
    async with asyncio.timeout(60):
        await wire_server.closed.wait()


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "ftp://x"},
        {"base_url": "x/v1"},
        {"base_url": "http://user:pass@x/v1"},
        {"base_url": "http://x:99999/v1"},
        {"model": ""},
        {"api_key": "a", "api_key_env": "B"},
        {"timeout": 0},
        {"modle": "x"},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenAiOptions.model_validate({"base_url": "http://x/v1", "model": "m", **wrong})


def test_a_variable_that_is_not_set_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_LLM_KEY", raising=False)
    options = OpenAiOptions(base_url="http://x/v1", model="m", api_key_env="TEST_LLM_KEY")
    with pytest.raises(Misconfigured, match="the environment variable TEST_LLM_KEY, named by api_key_env, is not set"):
        options.key()


def test_a_key_cannot_smuggle_in_a_header() -> None:
    with pytest.raises(Misconfigured, match="characters that cannot be sent"):
        OpenAiOptions(base_url="http://x/v1", model="m", api_key="a\r\nX-Evil: 1").key()
