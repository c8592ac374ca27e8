"""The client of OpenAI-compatible servers: a real server, and one that misbehaves in every usual way."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.repetition import Failures, refused
from helpers.wire_server import WireServer
from pydantic import ValidationError

import tavern_llm.chat_client
from tavern_host.contracts.errors import InvalidInput, Misconfigured, PluginFailure
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmRequest, LlmResponse, LlmUsage
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
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
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


# --- what is sent ---------------------------------------------------------------------------------


async def test_the_request_is_what_the_protocol_says(
    wire_server: WireServer, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_LLM_KEY", KEY)
    wire_server.pieces = [http(ANSWER, head=CLOSE)]
    url = wire_server.base_url + "/?api-version=2"
    made = await client(url, api_key=KEY, parameters={"temperature": 0, "seed": 1, "top_k": 2})
    messages = [ChatMessage(role="system", content="s"), ChatMessage(role="user", content="u", name="bob")]
    await made.complete(LlmRequest(messages=messages, parameters={"temperature": 0.5, "n": 1.0}))
    head = wire_server.requests[0].partition(b"\r\n\r\n")[0]
    assert head.startswith(b"POST /v1/chat/completions?api-version=2 HTTP/1.1")
    assert b"Authorization: Bearer sk-very-secret" in head
    assert wire_server.body() == {
        **{"temperature": 0.5, "seed": 1, "top_k": 2, "n": 1.0, "model": "tiny", "stream": False},
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u", "name": "bob"}],
    }
    await (await client(wire_server.base_url)).complete(ask())
    assert b"authorization" not in wire_server.requests[1].lower()
    await (await client(wire_server.base_url, api_key_env="TEST_LLM_KEY")).complete(ask())
    assert b"Bearer sk-very-secret" in wire_server.requests[2]


async def test_parameters_are_checked_before_they_are_sent(wire_server: WireServer, client: MakeClient) -> None:
    made = await client(wire_server.base_url)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"model": "dear", "stream": True}, "may not set model, stream"),
        ({"temperature": "hot"}, "temperature: must be a number"),
        ({"top_p": True}, "top_p: must be a number"),
        ({"temperature": math.nan}, "temperature: must be a number"),
        ({"max_tokens": 1.5}, "max_tokens: must be a whole number"),
        ({"seed": math.inf}, "seed: must be a whole number"),
        ({"n": "2"}, "n: must be a whole number"),
    ]
    await refused([(made.complete(ask(**parameters)), InvalidInput, told) for parameters, told in rows])
    assert wire_server.requests == []


async def test_numbers_of_servers_that_are_none_do_no_harm(wire_server: WireServer, client: MakeClient) -> None:
    made = await client(wire_server.base_url)
    cached = LlmUsage(prompt_tokens=3, cached_tokens=2)
    rows: list[tuple[str, LlmUsage]] = [
        ('{"prompt_tokens": 1e3, "completion_tokens": -4}', LlmUsage()),
        (f'{{"prompt_tokens": {10**40}, "completion_tokens": true}}', LlmUsage()),
        ('{"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}', cached),
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


async def test_answers_are_read_in_every_shape(wire_server: WireServer, client: MakeClient) -> None:
    made = await client(wire_server.base_url)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for content, text in (("hi", "hi"), (None, ""), (parts, "ab")):
        wire_server.pieces = [http(json.dumps({"choices": [{"message": {"content": content}}]}), head=CLOSE)]
        assert (await made.complete(ask())).text == text

    stream = b": hello\n\n" + event("一 ") + event("two") + event(finish_reason="length")
    stream += b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\r\n\r\ndata: [DONE]\r\n\r\n'
    cut = {"finish_reason": "length", "usage": LlmUsage(prompt_tokens=3, completion_tokens=4)}
    whole = {"finish_reason": "stop"}
    rows: list[tuple[list[bytes], list[str], dict[str, Any]]] = [
        ([EVENTS, *(stream[i : i + 7] for i in range(0, len(stream), 7))], ["一 ", "two"], cut),
        ([EVENTS, event("a"), event(finish_reason="stop")], ["a"], whole),
        ([http(ANSWER, head=CLOSE)], ["hi"], whole),  # a server that does not stream
    ]
    with Failures() as failures:
        for pieces, texts, more in rows:
            with failures.row(texts):
                wire_server.pieces = [*pieces]
                response = LlmResponse(text="".join(texts), model="tiny", **more)
                expected = [*(LlmChunk(text=text) for text in texts), LlmChunk(response=response)]
                assert await collect(made, ask()) == expected
                assert wire_server.body()["stream"] is True


# --- failures -------------------------------------------------------------------------------------


def refusal(status: str, error: Any = "no such\n parameter", head: str = "") -> list[bytes | None]:
    said = error if isinstance(error, dict) else {"message": error}
    return [http(json.dumps({"error": said}), status=status, head=CLOSE + head)]


BOTH, WHOLE, STREAMED = (False, True), (False,), (True,)
HTML = "an HTML page where JSON was expected; is the address right (most end in /v1)?"
ENDED = "ended the stream before the answer was finished"
QUOTA = {"message": "You exceeded your quota.", "code": "insufficient_quota"}
AWAY = "Location: http://127.0.0.1:9/stolen\r\n"
CUT = EVENTS.replace(b"Connection: close", b"Content-Length: 9999")


def page(body: str, kind: str = "application/json") -> list[bytes | None]:
    return [http(body, kind=kind, head=CLOSE)]


@dataclass(frozen=True)
class Form:
    """How a wire says things: a whole answer, a piece of text in a stream, and what is said of one that is none."""

    answer: str
    begins: bytes
    piece: Callable[[str], bytes]
    ends: bytes
    none: str
    wrong: str


def _said(**data: Any) -> bytes:
    return f"event: {data.get('type', 'message')}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _block(text: str) -> bytes:
    return _said(type="content_block_delta", index=0, delta={"type": "text_delta", "text": text})


def _part(text: str, **more: Any) -> bytes:
    return _said(candidates=[{"content": {"parts": [{"text": text}]}, **more}])


_STARTED = {"id": "m1", "usage": {"input_tokens": 3, "output_tokens": 1}}
_BLOCK = {"type": "text", "text": ""}
FORMS = {
    "openai": Form(ANSWER, b"", event, event(finish_reason="stop"), "choices[0].message", '{"choices": "none"}'),
    "openai-responses": Form(
        json.dumps({"status": "completed", "output": [{"type": "message", "content": [{"text": "hi"}]}]}),
        _said(type="response.created", response={"status": "in_progress"}),
        lambda text: _said(type="response.output_text.delta", output_index=0, delta=text),
        _said(type="response.news") + _said(type="response.completed", response={"status": "completed"}),
        "output",
        '{"output": "none"}',
    ),
    "anthropic": Form(
        json.dumps({"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}),
        _said(type="message_start", message=_STARTED)
        + _said(type="ping")
        + _said(type="content_block_start", index=0, content_block=_BLOCK),
        _block,
        _said(type="content_block_stop", index=0)
        + _said(type="news", of="tomorrow")
        + _said(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 4})
        + _said(type="message_stop"),
        "content",
        '{"content": "none"}',
    ),
    "gemini": Form(
        json.dumps({"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}),
        b"",
        _part,
        _part("", finishReason="STOP"),
        "candidates",
        '{"candidates": "none"}',
    ),
}

Row = tuple[list[bytes | None], tuple[bool, ...], str, bool]


def failures_of(form: Form) -> list[Row]:
    """Return what is sent, whether the answer is asked for whole or as a stream, what is said of it, and whether it may
    be retried."""
    a = form.begins + form.piece("a")
    return [
        (refusal("400 Bad Request"), WHOLE, "refuses the request (400): no such parameter", False),
        (refusal("404 Not Found"), WHOLE, "no such model or address; check the address and the model's name", False),
        (refusal("402 Payment Required"), WHOLE, "has no credit left (402)", False),
        (refusal("500 Oops"), WHOLE, "has failed (500)", True),
        (refusal("529 Overloaded", {"type": "overloaded_error", "message": "Overloaded"}), BOTH, "failed (529)", True),
        ([http("{}", status="503 Unavailable", head=CLOSE)], WHOLE, "has failed (503)", True),
        (
            [http('{"detail": ["odd"]}', status="422 Odd", head=CLOSE)],
            WHOLE,
            'refuses the request (422): ["odd"]',
            False,
        ),
        (refusal("401 No", f"bad key {KEY}!"), WHOLE, "refuses the API key (401): bad key ********!", False),
        (refusal("429 Too Many", QUOTA, "Retry-After: 17\r\n"), WHOLE, "has no quota left (429)", False),
        (
            refusal("307 Temporary Redirect", head=AWAY),
            WHOLE,
            "redirects elsewhere (307), which is not followed",
            False,
        ),
        (page("<!DOCTYPE html><html>Welcome", "text/html"), BOTH, HTML, False),
        (page('{"choices": ['), BOTH, "text that is not JSON", False),
        (page(""), BOTH, "nothing where JSON was expected; is the address right", False),
        (page("[1]"), BOTH, "JSON that is not an object", False),
        (page("{}"), BOTH, f"without {form.none}", False),
        (page(form.wrong), BOTH, f"without {form.none}", False),
        (page("[" * 100_000), BOTH, "text that is not JSON", False),
        (page('{"error": {"message": "model is loading"}}'), BOTH, "an error: model is loading", False),
        (page('{"error": "overloaded"}'), BOTH, "an error: overloaded", True),
        ([EVENTS, a, b'data: {"error": {"message": "no memory"}}\n\n'], STREAMED, "an error: no memory", False),
        (
            [EVENTS, a, _said(type="error", error={"type": "overloaded_error", "message": "Full"})],
            STREAMED,
            "Full",
            True,
        ),
        ([EVENTS, a, b"event: error\ndata: gone\n\n"], STREAMED, "an error: gone", False),
        ([EVENTS, a, b"data: {oops\n\n"], STREAMED, "text that is not JSON", False),
        ([EVENTS, a], STREAMED, ENDED, True),
        ([EVENTS, b""], STREAMED, ENDED, True),
        ([CUT, a], STREAMED, "broke the connection in the middle of its answer", True),
        ([], WHOLE, "broke the connection before it answered", True),
        ([EVENTS, a, None], STREAMED, "stayed silent for 0.2 s", True),
        ([EVENTS, b"x" * (2 << 20), None], STREAMED, "sent more than 1 MiB; the answer was cut off", False),
        ([JSON, b"x" * (2 << 20), None], WHOLE, "sent more than 1 MiB; the answer was cut off", False),
        (
            [EVENTS, form.begins, *[form.piece("a" * (1 << 19))] * 5, None],
            *(STREAMED, "sent more than 2 MiB; the answer was cut off", False),
        ),
    ]


MANY: list[Row] = [
    ([EVENTS, *[event("a", index=n) for n in range(130)], None], STREAMED, "sent more than 128 choices", False)
]


@pytest.mark.parametrize("wire", FORMS)
async def test_failures_say_what_is_wrong(
    wire_server: WireServer, client: MakeClient, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    monkeypatch.setattr(tavern_llm.chat_client, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(tavern_llm.chat_client, "MAX_STREAM_BYTES", 2 << 20)
    with Failures() as failures:
        for pieces, ways, part, retryable in [*failures_of(FORMS[wire]), *(MANY if wire == "openai" else [])]:
            for is_streamed in ways:
                with failures.row((part, is_streamed)):
                    wire_server.pieces = pieces
                    limit = {"timeout": 0.2} if "silent" in part else {}
                    made = await client(wire_server.base_url, api_key=KEY, wire=wire, **limit)
                    error = await failure(collect(made, ask()) if is_streamed else made.complete(ask()))
                    assert (part in error.message, error.info.retryable) == (True, retryable), error.message
        with failures.row("nobody listens"):
            error = await failure((await client("http://127.0.0.1:9/v1", wire=wire)).complete(ask()))
            told = "the model 'tiny' at http://127.0.0.1:9 cannot be reached: Connection refused; does it run there?"
            assert (error.message, error.info.retryable) == (told, True)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("wire", FORMS)
async def test_a_stream_is_read_wherever_it_is_split(
    wire_server: WireServer, client: MakeClient, wire: str, size: int
) -> None:
    form = FORMS[wire]
    stream = b": hello\n\n" + form.begins + form.piece("一 ") + form.piece("two") + form.ends
    wire_server.pieces = [EVENTS, *(stream[at : at + size] for at in range(0, len(stream), size))]
    chunks = await collect(await client(wire_server.base_url, wire=wire), ask())
    answer = chunks[-1].response
    assert answer is not None
    assert ([chunk.text for chunk in chunks[:-1]], answer.text) == (["一 ", "two"], "一 two")
    assert answer.finish_reason == "stop"
    wire_server.pieces = [http(form.answer, head=CLOSE)]
    whole = await (await client(wire_server.base_url, wire=wire)).complete(ask())
    assert (whole.text, whole.finish_reason) == ("hi", "stop")


async def test_a_short_key_masks_no_letters_of_a_message(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = refusal("429 Too Many", "not with the key 'k', key=k")
    error = await failure((await client(wire_server.base_url, api_key="k")).complete(ask()))
    assert "is asked too often" in error.message
    assert "not with the key '********', key=********" in error.message


async def test_a_fast_stream_leaves_others_their_turn(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [EVENTS, event("a" * 60) * 2000, event(finish_reason="stop")]
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(others())
    chunks = Counter([turn async for _ in (await client(wire_server.base_url)).stream(ask())])
    waiting.cancel()
    assert chunks.total() > 2000
    assert max(chunks.values()) < 200


# --- leaving early --------------------------------------------------------------------------------


async def test_leaving_early_closes_the_connection(wire_server: WireServer, client: MakeClient) -> None:
    wire_server.pieces = [EVENTS, event("a"), None]
    made = await client(wire_server.base_url)
    task = asyncio.create_task(collect(made, ask()))
    async with asyncio.timeout(60):
        await wire_server.asked.wait()
        task.cancel()
        await wire_server.closed.wait()
    assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    wire_server.closed.clear()
    async with aclosing(made.stream(ask())) as chunks:  # type: ignore[type-var]
        assert (await anext(chunks)).text == "a"
    async with asyncio.timeout(60):
        await wire_server.closed.wait()


# --- options --------------------------------------------------------------------------------------


def test_wrong_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_LLM_KEY", raising=False)
    right = {"base_url": "http://x/v1", "model": "m"}
    urls = ("ftp://x", "x/v1", "/v1", "http://user:pass@x/v1", "http://x:99999/v1")
    more: list[dict[str, Any]] = [{"model": ""}, {"api_key": "a", "api_key_env": "B"}, {"timeout": 0}, {"modle": "x"}]
    for wrong in [*({"base_url": url} for url in urls), *more]:
        with pytest.raises(ValidationError):
            OpenAiOptions.model_validate({**right, **wrong})
    unset = "the environment variable TEST_LLM_KEY, named by api_key_env, is not set"
    keys = {"api_key_env": ("TEST_LLM_KEY", unset), "api_key": ("a\r\nX-Evil: 1", "characters that cannot be sent")}
    for name, (value, told) in keys.items():
        with pytest.raises(Misconfigured, match=told):
            OpenAiOptions.model_validate({**right, name: value}).key()
