"""OpenAI's Responses API, without anything kept: requests in the terms of chat completions, answers as its objects and
events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from typing import Any

from tavern_host import clock
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.http import ServerEvent
from tavern_llm.api.llm import LlmChunk, LlmResponse
from tavern_openai.api.requests import ChatBody, ResponsesBody
from tavern_openai.chat import restarted, usage
from tavern_openai.errors import failed, wrong
from tavern_openai.reading import Asked, read_chat

_KEPT = ("previous_response_id", "conversation", "prompt")
_FUNCTION = ("name", "description", "parameters", "strict")


def read_responses(body: ResponsesBody) -> Asked:
    """Return the request in a body. Raises `InvalidInput` whose details name the `param` that is wrong."""
    further = body.further()
    for name in _KEPT:
        if name in further:
            raise wrong(f"{name}: nothing is kept here; send the whole conversation as input", name)
    messages: list[dict[str, Any]] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    items: list[dict[str, Any]] = (
        [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    )
    for index, item in enumerate(items):
        _take(item, messages, f"input[{index}]")
    more: dict[str, Any] = {}
    if isinstance(form := (body.text or {}).get("format"), dict):
        more["response_format"] = form
    if effort := (body.reasoning or {}).get("effort"):
        more["reasoning_effort"] = effort
    if body.max_output_tokens is not None:
        more["max_completion_tokens"] = body.max_output_tokens
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools or [])]
    chat = {
        **further,
        **more,
        "model": body.model,
        "messages": messages,
        "tools": tools or None,
        "tool_choice": body.tool_choice,
        "user": body.user,
        "metadata": body.metadata,
    }
    if not messages:
        raise wrong("input: expected a text or at least one message", "input")
    return read_chat(ChatBody.model_validate(chat))


def _take(item: Mapping[str, Any], messages: list[dict[str, Any]], where: str) -> None:
    """Add an item of the input to the messages."""
    kind = item.get("type", "message")
    if kind == "message":
        messages.append({"role": item.get("role"), "content": item.get("content")})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        last = messages[-1] if messages else {}
        if last.get("role") == "assistant":
            last["tool_calls"] = [*last.get("tool_calls", ()), call]
        else:
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    elif kind == "function_call_output":
        output = item.get("output")
        text = output if isinstance(output, str | list) else json.dumps(output, ensure_ascii=False)
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
    elif kind != "reasoning":  # those of another server are of no use here
        raise wrong(f"{where}: items of the type {kind!r:.40} are not supported", where)


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise wrong(f"{where}: only functions are supported", where)
    return {"type": "function", "function": {key: tool[key] for key in _FUNCTION if tool.get(key) is not None}}


def response_answer(answer: LlmResponse, body: ResponsesBody) -> dict[str, Any]:
    """Return a whole response."""
    return _response(_Written(answer.response_id or new_id("resp")), body, answer)


class _Written:
    """The items of a response as far as they are written, and the numbers of its events."""

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.created = int(clock.seconds())
        self.items: list[dict[str, Any]] = []
        self.text: dict[str, Any] | None = None
        self.calls: dict[int, dict[str, Any]] = {}
        self._numbers = count()

    def event(self, kind: str, **data: Any) -> ServerEvent:
        said = {"type": kind, "sequence_number": next(self._numbers), **data}
        return ServerEvent(event=kind, text=json.dumps(said))

    def add(self, item: dict[str, Any]) -> ServerEvent:
        self.items.append(item)
        return self.event("response.output_item.added", output_index=len(self.items) - 1, item=item)

    def at(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": self.items.index(item)}

    def say(self, text: str) -> Iterator[ServerEvent]:
        """Yield the events of a piece of text."""
        if self.text is None:
            self.text = _message("in_progress", [])
            yield self.add(self.text)
            part = {"type": "output_text", "text": "", "annotations": []}
            self.text["content"].append(part)
            yield self.event("response.content_part.added", **self.at(self.text), content_index=0, part=part)
        self.text["content"][0]["text"] += text
        yield self.event("response.output_text.delta", **self.at(self.text), content_index=0, delta=text, logprobs=[])

    def call(self, chunk: LlmChunk) -> Iterator[ServerEvent]:
        """Yield the events of a piece of a call."""
        assert chunk.call is not None
        piece = chunk.call
        if piece.index not in self.calls:
            self.calls[piece.index] = item = _function_call("in_progress", piece.id or "", piece.name or "", "")
            yield self.add(item)
        item = self.calls[piece.index]
        item["arguments"] += piece.arguments
        if piece.arguments:
            yield self.event("response.function_call_arguments.delta", **self.at(item), delta=piece.arguments)

    def end(self) -> Iterator[ServerEvent]:
        """Yield the events that end the items."""
        for item in self.items:
            item["status"] = "completed"
            where = self.at(item)
            if item is self.text:
                part = item["content"][0]
                end = {**where, "content_index": 0}
                yield self.event("response.output_text.done", **end, text=part["text"], logprobs=[])
                yield self.event("response.content_part.done", **end, part=part)
            else:
                said = {"name": item["name"], "arguments": item["arguments"]}
                yield self.event("response.function_call_arguments.done", **where, **said)
            yield self.event("response.output_item.done", output_index=where["output_index"], item=item)


async def response_events(chunks: AsyncIterator[LlmChunk | None], body: ResponsesBody) -> AsyncIterator[ServerEvent]:
    """Yield a response as a client of a stream gets it; None among the chunks is a sign of life."""
    written = _Written(new_id("resp"))
    yield written.event("response.created", response=_response(written, body))
    yield written.event("response.in_progress", response=_response(written, body))
    try:
        async for chunk in chunks:
            if chunk is None:
                yield ServerEvent()
                continue
            text = (restarted(chunk.restarted, len(written.calls)) if chunk.restarted else "") + chunk.text
            for event in written.say(text) if text else ():
                yield event
            for event in written.call(chunk) if chunk.call is not None else ():
                yield event
            if chunk.response is not None:
                for event in written.end():
                    yield event
                whole = _response(written, body, chunk.response)
                yield written.event(f"response.{whole['status']}", response=whole)
    except TavernError as error:
        said = failed(error)["error"]
        broken = _response(written, body) | {"status": "failed"}
        broken["error"] = {"code": said["code"], "message": said["message"]}
        yield written.event("response.failed", response=broken)


def _response(written: _Written, body: ResponsesBody, answer: LlmResponse | None = None) -> dict[str, Any]:
    """Return a response as it stands; with an answer, as it is in the end."""
    items, status, used = written.items, "in_progress", None
    if answer is not None:
        is_cut = answer.finish_reason in ("length", "content_filter")
        status = "incomplete" if is_cut else "completed"
        used = usage(answer.usage)
        if not items:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            items = [_message("completed", content)] if answer.text or not answer.tool_calls else []
            items += [_function_call("completed", one.id, one.name, one.arguments) for one in answer.tool_calls]
    reason = "max_output_tokens" if answer is None or answer.finish_reason == "length" else "content_filter"
    return {
        "id": written.id,
        "object": "response",
        "created_at": written.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": body.model,
        "output": items,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": (body.model_extra or {}).get("temperature"),
        "text": body.text or {"format": {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": (body.model_extra or {}).get("top_p"),
        "usage": None
        if used is None
        else {
            "input_tokens": used["prompt_tokens"],
            "input_tokens_details": used["prompt_tokens_details"],
            "output_tokens": used["completion_tokens"],
            "output_tokens_details": used["completion_tokens_details"],
            "total_tokens": used["total_tokens"],
        },
    }


def _message(status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "id": new_id("msg"), "status": status, "role": "assistant", "content": content}


def _function_call(status: str, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    about = {"type": "function_call", "id": new_id("fc"), "call_id": call_id, "status": status}
    return {**about, "name": name, "arguments": arguments}
