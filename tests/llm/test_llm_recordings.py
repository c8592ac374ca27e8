"""What servers really send, played by a real server: `recordings.yaml` says what is to be made of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.repetition import Failures
from helpers.wire_server import WireServer

from tavern_host.contracts.errors import PluginFailure
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmRequest, LlmResponse, LlmUsage
from tavern_llm.chat_client import ChatClient

MakeClient = Callable[..., Awaitable[ChatClient]]

RECORDINGS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("recordings.yaml").read_text(encoding="utf-8")
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON_HEAD = "Connection: close\r\nContent-Type: application/json\r\nContent-Length: "
ASKED = LlmRequest(messages=[ChatMessage(role="user", content="hello")])


def stream_of(row: dict[str, Any]) -> list[bytes | None]:
    """Return the pieces of the connection."""
    if "raw" in row:
        return [HEAD, *(piece.encode() for piece in row["raw"])]
    if "raw_hex" in row:
        return [HEAD, *(bytes.fromhex(str(piece)) for piece in row["raw_hex"])]
    events = [{"id": "r1", "choices": [{"index": 0, **choice}]} for choice in row["choices"]]
    events += [row["last"]] if "last" in row else []
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return [HEAD, "".join([*lines, "data: [DONE]\n\n"]).encode()]


def put_together(chunks: list[LlmChunk]) -> tuple[str, str, list[list[str]]]:
    """Return the text, thoughts and calls that the chunks before the last one say."""
    text, thoughts, calls = "", "", list[list[str]]()
    for chunk in chunks[:-1]:
        assert chunk.response is None
        if chunk.restarted is not None:
            text, thoughts, calls = "", "", []
        text, thoughts = text + chunk.text, thoughts + chunk.reasoning
        if chunk.call is not None:
            if chunk.call.id is not None:
                assert (chunk.call.index, bool(chunk.call.id)) == (len(calls), True)
                calls.append([chunk.call.id, chunk.call.name or "", ""])
            calls[chunk.call.index][2] += chunk.call.arguments
    return text, thoughts, calls


def check_answer(row: dict[str, Any], answer: LlmResponse) -> None:
    assert answer.text == row.get("text", "")
    assert answer.reasoning == row.get("reasoning")
    assert [[call.name, call.arguments] for call in answer.tool_calls] == row.get("calls", [])
    assert len({call.id for call in answer.tool_calls}) == len(answer.tool_calls)
    found = {"ids": [call.id for call in answer.tool_calls], "finish": answer.finish_reason, "extra": answer.extra}
    found["call_extra"] = answer.tool_calls[0].extra if answer.tool_calls else None
    assert {key: value for key, value in found.items() if key in row} == {key: row[key] for key in found if key in row}
    assert answer.usage == LlmUsage.model_validate(row.get("usage", {}))


async def check_stream(row: dict[str, Any], client: ChatClient) -> None:
    chunks: list[LlmChunk] = []
    if "error" in row:
        with pytest.raises(PluginFailure) as caught:
            async for chunk in client.stream(ASKED):
                chunks.append(chunk)
        info = caught.value.info
        assert info.message.endswith(row["error"])
        assert (info.retryable, info.details.get("overflow")) == (row.get("retryable", False), row.get("overflow"))
        assert info.details.get("partial_text") == row.get("partial")
        assert all(chunk.response is None for chunk in chunks)
        return
    async for chunk in client.stream(ASKED):
        chunks.append(chunk)
    answer = chunks[-1].response
    assert answer is not None
    check_answer(row, answer)
    text, thoughts, calls = put_together(chunks)
    assert (text, thoughts.strip()) == (answer.text, answer.reasoning or "")
    found = [[call.id, call.name, "" if call.arguments == "{}" else call.arguments] for call in answer.tool_calls]
    assert [[*call[:2], "" if call[2] == "{}" else call[2]] for call in calls] == found
    assert any(chunk.restarted for chunk in chunks) is row.get("restarted", False)


async def test_streams_are_read_as_they_are_sent(wire_server: WireServer, client: MakeClient) -> None:
    with Failures() as failures:
        for row in RECORDINGS:
            wire_server.pieces = stream_of(row)
            with failures.row(row["name"]):
                await check_stream(row, await client(wire_server.base_url))


async def test_whole_answers_are_read_like_streams(wire_server: WireServer, client: MakeClient) -> None:
    rows = [row for row in RECORDINGS if len(row.get("choices", [])) == 1 and "last" not in row]
    with Failures() as failures:
        for row in rows:  # a stream in one piece is what a whole answer is
            choice = dict(row["choices"][0])
            body = json.dumps({"id": "r1", "choices": [{"message": choice.pop("delta"), **choice}]}).encode()
            wire_server.pieces = [f"HTTP/1.1 200 OK\r\n{JSON_HEAD}{len(body)}\r\n\r\n".encode() + body]
            with failures.row(row["name"]):
                made = await client(wire_server.base_url)
                check_answer(row, answer := await made.complete(ASKED))
                assert answer.response_id == "r1"
                chunks = [chunk async for chunk in made.stream(ASKED)]
                assert chunks[-1].response is not None
                check_answer(row, chunks[-1].response)
                assert put_together(chunks)[:2] == (answer.text, answer.reasoning or "")


async def test_megabytes_in_small_pieces_are_read(wire_server: WireServer, client: MakeClient) -> None:
    def events(delta: dict[str, Any], count: int) -> bytes:
        return f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n".encode() * count

    call = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"a": "'}}]}
    part = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}" * 100}}]}
    pieces = [HEAD, events({"content": "</thin" * 600}, 100), events(call, 1), events(part, 500)]
    wire_server.pieces = [*pieces, b"data: [DONE]\n\n"]
    made = await client(wire_server.base_url)
    async with asyncio.timeout(60):
        chunks = [chunk async for chunk in made.stream(ASKED)]
    answer = chunks[-1].response
    assert answer is not None
    assert (len(answer.text), len(answer.tool_calls[0].arguments)) == (360_000, 100_007)
    assert put_together(chunks)[2][0][2] == answer.tool_calls[0].arguments


async def test_further_choices_are_kept(wire_server: WireServer, client: MakeClient) -> None:
    choices = [{"index": n, "message": {"content": f"answer {n}"}, "finish_reason": "stop"} for n in range(3)]
    body = json.dumps({"choices": choices}).encode()
    wire_server.pieces = [f"HTTP/1.1 200 OK\r\n{JSON_HEAD}{len(body)}\r\n\r\n".encode() + body]
    answer = await (await client(wire_server.base_url)).complete(ASKED.model_copy(update={"parameters": {"n": 3}}))
    assert [answer.text, *(choice.content for choice in answer.choices)] == ["answer 0", "answer 1", "answer 2"]
