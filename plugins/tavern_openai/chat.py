"""Answers as OpenAI's chat completions have them, whole or as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from tavern_host import clock
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import PluginFailure, TavernError
from tavern_host.contracts.http import ServerEvent
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmResponse, LlmToolCall, LlmUsage
from tavern_openai.errors import failed

_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter"})


def chat_answer(answer: LlmResponse, model: str) -> dict[str, Any]:
    """Return a whole chat completion."""
    messages = [answer.message(), *answer.choices]
    choices = [
        {"index": index, "message": _message(one), "logprobs": None, "finish_reason": reason(answer, one)}
        for index, one in enumerate(messages)
    ]
    return {**_about(answer.response_id, model, "chat.completion"), "choices": choices, "usage": usage(answer.usage)}


async def chat_events(
    chunks: AsyncIterator[LlmChunk | None], model: str, *, include_usage: bool
) -> AsyncIterator[ServerEvent]:
    """Yield an answer as a client of a stream gets it; None among the chunks is a sign of life. What fails is its last
    event, as an error."""
    about = _about(None, model, "chat.completion.chunk")
    calls = 0

    def event(delta: dict[str, Any], finish: str | None = None) -> ServerEvent:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**about, "choices": [choice], **({"usage": None} if include_usage else {})})

    yield event({"role": "assistant", "content": ""})
    try:
        async for chunk in chunks:
            if chunk is None:
                yield ServerEvent()
                continue
            if chunk.restarted:
                yield event({"content": restarted(chunk.restarted, calls)})
            if chunk.reasoning:
                yield event({"reasoning_content": chunk.reasoning})
            if chunk.text:
                yield event({"content": chunk.text})
            if chunk.call is not None:
                calls = max(calls, chunk.call.index + 1)
                begins = {"id": chunk.call.id, "type": "function"} if chunk.call.name else {}
                function = {"name": chunk.call.name} if chunk.call.name else {}
                function |= {"arguments": chunk.call.arguments}
                yield event({"tool_calls": [{"index": chunk.call.index, **begins, "function": function}]})
            if chunk.response is not None:
                yield event(dict(chunk.response.extra), reason(chunk.response, chunk.response.message()))
                if include_usage:
                    yield _event({**about, "choices": [], "usage": usage(chunk.response.usage)})
    except TavernError as error:
        yield _event(failed(error))
        return
    yield ServerEvent(text="[DONE]")


def restarted(why: str, calls: int) -> str:
    """Return how a stream says that its answer restarts: what was sent cannot be taken back. Raises `PluginFailure`
    where that has calls of functions."""
    if calls:
        raise PluginFailure(f"{why} What came of calls is void: ask again.", status=502)
    return f"\n\n[{why}]\n\n"


def reason(answer: LlmResponse, message: ChatMessage) -> str:
    """Return why an answer ended, in OpenAI's words."""
    if message.tool_calls and answer.finish_reason not in ("length", "content_filter"):
        return "tool_calls"
    return answer.finish_reason if answer.finish_reason in _REASONS and answer.finish_reason != "tool_calls" else "stop"


def usage(used: LlmUsage) -> dict[str, Any]:
    """Return the tokens that were used; 0 where nobody says."""
    prompt, completion = used.prompt_tokens or 0, used.completion_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens or 0},
    }


def call_of(call: LlmToolCall) -> dict[str, Any]:
    """Return a call of a function."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **(call.extra or {})}


def _message(message: ChatMessage) -> dict[str, Any]:
    has_calls = bool(message.tool_calls)
    made: dict[str, Any] = {
        "role": "assistant",
        "content": message.content if message.content or not has_calls else None,
        "refusal": None,
    }
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if has_calls:
        made["tool_calls"] = [call_of(call) for call in message.tool_calls]
    return {**(message.extra or {}), **made}


def _about(identity: str | None, model: str, kind: str) -> dict[str, Any]:
    return {"id": identity or new_id("chatcmpl"), "object": kind, "created": int(clock.seconds()), "model": model}


def _event(data: Any) -> ServerEvent:
    return ServerEvent(text=json.dumps(data))
