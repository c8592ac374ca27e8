"""The adapter `openai-responses`: a model of a server that speaks OpenAI's Responses, without anything kept there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from tavern_llm.anthropic_wire import check_parameters
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmRequest, LlmResponse
from tavern_llm.chat_body import Dialect, addresses
from tavern_llm.chat_wire import ServerError, WireError, raise_error
from tavern_llm.part_answers import MOST_PARTS, PartCall, PartsReader
from tavern_llm.plain_schemas import is_strict
from tavern_llm.wires import ChatWire, Reader, left_out

THOUGHTS = "reasoning_items"
"""Where a message keeps its thoughts, encrypted, which the server wants back as they were."""

_SAME = ("temperature", "top_p", "parallel_tool_calls", "service_tier", "metadata", "prompt_cache_key", "reasoning")
_TAKEN = frozenset({*_SAME, "max_tokens", "max_completion_tokens", "reasoning_effort", "verbosity", "response_format"})
_FUNCTION = ("name", "description", "parameters", "strict")
_KEPT = ("type", "id", "summary", "encrypted_content", "content")
_STATUS = {"server_error": 500, "rate_limit_exceeded": 429}


class ResponsesWire(ChatWire):
    """OpenAI's Responses."""

    name = "openai-responses"

    def path(self, model: str, *, stream: bool) -> str:
        return "responses"

    def body(
        self,
        request: LlmRequest,
        model: str,
        parameters: Mapping[str, JsonValue],
        *,
        stream: bool,
        dialect: Dialect,
        images: Mapping[str, str],
    ) -> dict[str, Any]:
        asked: dict[str, Any] = {**parameters, **request.parameters}
        check_parameters(asked)
        body: dict[str, Any] = {"model": model, **{key: asked[key] for key in _SAME if asked.get(key) is not None}}
        if most := asked.get("max_tokens") or asked.get("max_completion_tokens"):
            body["max_output_tokens"] = most
        if effort := asked.get("reasoning_effort"):
            body["reasoning"] = {"effort": effort, **body.get("reasoning", {})}
        text: dict[str, Any] = {"verbosity": asked["verbosity"]} if asked.get("verbosity") else {}
        if (schema := request.response_schema) is not None:
            text["format"] = {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}
        elif asked.get("response_format"):
            text["format"] = {"type": "json_object"}
        body |= {"text": text} if text else {}
        if request.tools:
            body["tools"] = [_tool(tool["function"]) for tool in request.tools]  # type: ignore[arg-type]
            if choice := request.tool_choice:
                is_word = choice in ("auto", "none", "required")
                body["tool_choice"] = choice if is_word else {"type": "function", "name": choice}
        body |= {"store": False, "include": ["reasoning.encrypted_content"], "stream": stream}
        body = {key: value for key, value in body.items() if key not in dialect.omitted}
        body["input"] = [item for message in request.messages for item in _items(message, images)]
        return body

    def learned(self, dialect: Dialect, request: LlmRequest, body: dict[str, Any], said: str) -> Dialect | None:
        for name in ("include", "temperature", "top_p", "parallel_tool_calls", "service_tier"):
            if name in body and (name in said or (name == "include" and "encrypted" in said)):
                return Dialect(dialect.omitted | {name}, dialect.shapes)
        return None

    def notices(self, dialect: Dialect, request: LlmRequest, parameters: Mapping[str, JsonValue]) -> list[str]:
        return left_out({**parameters, **request.parameters}, _TAKEN - dialect.omitted)

    def reader(self, model: str) -> Reader:
        return ResponsesReader(model)


RESPONSES = ResponsesWire()


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: function[key] for key in _FUNCTION if function.get(key) is not None}
    return {"type": "function", "strict": False, "parameters": {"type": "object", "properties": {}}, **known}


def _items(message: ChatMessage, images: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a message's items in the input: itself, its thoughts, its calls, or the result of one."""
    urls = addresses(message, images)
    if message.role == "tool":
        said = [{"type": "input_text", "text": message.content}, *map(_file, urls)]
        output: Any = said if urls else message.content
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output}]
    texts = [{"type": "input_text", "text": message.content}] if message.content else []
    content: Any = [*texts, *map(_file, urls)] if urls else message.content
    thoughts = (message.extra or {}).get(THOUGHTS)
    kept = thoughts if isinstance(thoughts, list) else []
    items: list[dict[str, Any]] = [dict(one) for one in kept if isinstance(one, dict)]
    if content:
        items.append({"role": message.role, "content": content})
    for call in message.tool_calls:
        about = {"type": "function_call", "call_id": call.id}
        items.append({**about, "name": call.name, "arguments": call.arguments or "{}"})
    return items


def _file(url: str) -> dict[str, Any]:
    if url.startswith("data:application/pdf"):
        return {"type": "input_file", "filename": "file.pdf", "file_data": url}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


class ResponsesReader(PartsReader):
    """Reads one answer: items by their index."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._of_items: dict[int, PartCall] = {}

    def whole(self, data: dict[str, Any], notices: list[str]) -> LlmResponse:
        """Return an answer that came in one piece. Raises `WireError`, `ServerError`."""
        raise_error(data)
        if not isinstance(data.get("output"), list):
            raise WireError("answered without output")
        for item in data["output"]:
            for part in _parts(item, "message", "content"):
                self.say(part.get("text", part.get("refusal")))
            for part in _parts(item, "reasoning", "summary"):
                self.think(part.get("text"))
            self._item(None, item)
        self._end(data)
        return self.response(notices)

    def add(self, data: dict[str, Any]) -> list[LlmChunk]:
        """Take an event; those of an unknown kind say nothing. Raises `ServerError`, `TooLong`."""
        raise_error(data)
        kind, index = data.get("type"), data.get("output_index")
        if kind == "error":
            raise _failure(data)
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            return self.say(data.get("delta"))
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            return self.think(data.get("delta"))
        if kind in ("response.output_item.added", "response.output_item.done"):
            return self._item(index, data.get("item"), is_done=kind.endswith("done"))
        call = self._of_items.get(index) if isinstance(index, int) else None
        if kind == "response.function_call_arguments.delta" and call is not None:
            piece = data.get("delta")
            if isinstance(piece, str) and piece:
                call.pieces.append(piece)
                return [LlmChunk(call=call.fragment(piece))]
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._end(data.get("response"))
            self.is_over = True
        return []

    def _item(self, index: Any, item: Any, *, is_done: bool = True) -> list[LlmChunk]:
        """Take an item as it begins, or whole."""
        if not isinstance(item, dict):
            return []
        if item.get("type") == "reasoning" and is_done:
            thoughts = self._extra.setdefault(THOUGHTS, [])
            if len(thoughts) < MOST_PARTS:
                thoughts.append({key: item[key] for key in _KEPT if item.get(key) is not None})
            return []
        if item.get("type") != "function_call":
            return []
        chunks: list[LlmChunk] = []
        call = self._of_items.get(index) if isinstance(index, int) else None
        if call is None:
            call, chunks = self.begin_call(item.get("call_id"), item.get("name"))
            if isinstance(index, int):
                self._of_items[index] = call
        arguments = item.get("arguments")
        if not call.pieces and isinstance(arguments, str) and arguments:
            call.pieces.append(arguments)
            chunks.append(LlmChunk(call=call.fragment(arguments)))
        return chunks

    def _end(self, response: Any) -> None:
        """Take what a response says of itself in the end. Raises `ServerError` for one that failed."""
        response = response if isinstance(response, dict) else {}
        identity, status, error = response.get("id"), response.get("status"), response.get("error")
        if status == "failed":
            raise _failure(error if isinstance(error, dict) else {})
        self._id = identity if isinstance(identity, str) else None
        used = response.get("usage")
        if isinstance(used, dict):
            read, thought = (_of(used, f"{one}_tokens_details") for one in ("input", "output"))
            self.use(
                prompt_tokens=used.get("input_tokens"),
                completion_tokens=used.get("output_tokens"),
                cached_tokens=read.get("cached_tokens"),
                reasoning_tokens=thought.get("reasoning_tokens"),
            )
        why = _of(response, "incomplete_details").get("reason")
        cut = "content_filter" if why == "content_filter" else "length"
        self._reason = cut if status == "incomplete" else "tool_calls" if self._calls else "stop"


def _failure(error: Mapping[str, Any]) -> ServerError:
    said = error.get("message")
    text = said if isinstance(said, str) and said else "the model could not answer"
    return ServerError(text, _STATUS.get(str(error.get("code"))))


def _of(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _parts(item: Any, kind: str, key: str) -> list[dict[str, Any]]:
    content = item.get(key) if isinstance(item, dict) and item.get("type") == kind else None
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
