"""The adapter `anthropic`: a model of a server that speaks Anthropic's Messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmEmbeddings, LlmRequest, LlmResponse
from tavern_llm.chat_body import RESERVED, SCHEMA_TEXT, Dialect, short_id
from tavern_llm.chat_wire import TooLong, WireError, raise_error, read_models
from tavern_llm.options import parameters_problem
from tavern_llm.part_answers import MOST_PARTS, PartCall, PartsReader, counted
from tavern_llm.plain_schemas import is_strict
from tavern_llm.wires import Reader, files_of, left_out

THOUGHTS = "thinking_blocks"
"""Where a message keeps its thoughts with their signatures, which the server wants back as they were."""

MOST_TOKENS = 8192
"""How long an answer may be where nobody says: the wire has to be told."""

_OPTIONAL = ("temperature", "top_p", "top_k")
_SAME = (*_OPTIONAL, "thinking", "metadata", "service_tier", "output_config")
_TAKEN = frozenset({*_SAME, "max_tokens", "max_completion_tokens", "stop", "parallel_tool_calls", "response_format"})
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_OF_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK = {"type": "ephemeral"}
_BEGINS = "(The conversation begins.)"


class AnthropicWire:
    """Anthropic's Messages (version 2023-06-01)."""

    name = "anthropic"
    host = "https://api.anthropic.com"
    version = "v1"

    def headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}

    def path(self, model: str, *, stream: bool) -> str:
        return "messages"

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
        asked = {key: value for key, value in asked.items() if key not in dialect.omitted}
        body: dict[str, Any] = {"model": model, **{key: asked[key] for key in _SAME if asked.get(key) is not None}}
        body["max_tokens"] = asked.get("max_tokens") or asked.get("max_completion_tokens") or MOST_TOKENS
        if stop := asked.get("stop"):
            body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        system = [message.content for message in _leading(request.messages)]
        schema = request.response_schema
        if schema is not None and is_strict(schema) and "schema_in_prompt" not in dialect.shapes:
            body["output_config"] = {
                **body.get("output_config", {}),
                "format": {"type": "json_schema", "schema": schema},
            }
        elif schema is not None:
            system.append(SCHEMA_TEXT + json.dumps(schema, ensure_ascii=False))
        elif asked.get("response_format"):
            system.append("Answer with one JSON object and nothing else.")
        if blocks := [_text(text) for text in system if text]:
            body["system"] = blocks
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            if choice := _choice(request.tool_choice, asked.get("parallel_tool_calls")):
                body["tool_choice"] = choice
        body["stream"] = stream
        body["messages"] = _messages(list(request.messages)[len(_leading(request.messages)) :], images)
        if "no_marks" not in dialect.shapes:
            _mark(body)
        return body

    def learned(self, dialect: Dialect, request: LlmRequest, body: dict[str, Any], said: str) -> Dialect | None:
        rows = (
            ("schema_in_prompt", "output_config" in body, r"output.?(config|format)|json.?schema|structured"),
            ("no_marks", True, r"cache.?control"),
        )
        for shape, applies, pattern in rows:
            if applies and shape not in dialect.shapes and re.search(pattern, said, re.IGNORECASE):
                return Dialect(dialect.omitted, dialect.shapes | {shape})
        for name in _OPTIONAL:  # which newer models refuse
            if name in body and re.search(rf"\b{name}\b", said):
                return Dialect(dialect.omitted | {name}, dialect.shapes)
        return None

    def notices(self, dialect: Dialect, request: LlmRequest, parameters: Mapping[str, JsonValue]) -> list[str]:
        schema = request.response_schema
        in_prompt = schema is not None and (not is_strict(schema) or "schema_in_prompt" in dialect.shapes)
        found = ["the model read the response schema in the system message"] if in_prompt else []
        return found + left_out({**parameters, **request.parameters}, _TAKEN - dialect.omitted)

    def reader(self, model: str) -> Reader:
        return AnthropicReader(model)

    def models_path(self) -> str:
        return "models?limit=1000"

    def read_models(self, data: dict[str, Any]) -> list[str]:
        return read_models(data)

    def embeddings(self, model: str, texts: list[str]) -> tuple[str, dict[str, Any]] | None:
        return None

    def read_embeddings(self, data: dict[str, Any], model: str, count: int) -> LlmEmbeddings:
        raise WireError("has no vectors")

    def counting(self, model: str, body: dict[str, Any]) -> tuple[str, dict[str, Any], str] | None:
        counted_parts = ("model", "system", "messages", "tools", "tool_choice", "thinking")
        return "messages/count_tokens", {key: body[key] for key in counted_parts if key in body}, "input_tokens"


ANTHROPIC = AnthropicWire()


def check_parameters(asked: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for parameters that nobody may set, and for numbers that are none."""
    if taken := [name for name in RESERVED if name in asked]:
        raise InvalidInput(f"the parameters of an LLM request may not set {', '.join(taken)}; leave them out")
    if problem := parameters_problem(asked):
        raise InvalidInput(f"the parameters of an LLM request: {problem}")


def _leading(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Return the system messages that a conversation begins with; later ones stay where they are, as the user's."""
    place = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    return list(messages[:place])


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") else {}
    return {
        "name": function["name"],
        **described,
        "input_schema": {"type": "object", **(function.get("parameters") or {})},
    }


def _choice(choice: str | None, is_parallel: Any) -> dict[str, Any] | None:
    words = {"auto": "auto", "none": "none", "required": "any"}
    alone = {"disable_parallel_tool_use": True} if is_parallel is False and choice != "none" else {}
    if not choice:
        return {"type": "auto", **alone} if alone else None
    return {"type": words[choice], **alone} if choice in words else {"type": "tool", "name": choice, **alone}


def _messages(messages: list[ChatMessage], images: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the messages, those of one side joined: results of calls are the user's."""
    found: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, images)
        if not blocks:
            continue
        if found and found[-1]["role"] == role:
            found[-1]["content"] += blocks
        else:
            found.append({"role": role, "content": blocks})
    if not found or found[0]["role"] != "user":
        found.insert(0, {"role": "user", "content": [_text(_BEGINS)]})
    last = found[-1]["content"][-1]
    if found[-1]["role"] == "assistant" and last["type"] == "text":
        last["text"] = last["text"].rstrip() or "…"  # which the server asks for at the end of what it continues
    return found


def _blocks(message: ChatMessage, images: Mapping[str, str]) -> list[dict[str, Any]]:
    texts = [_text(message.content)] if message.content.strip() else []
    if message.role == "assistant":
        thoughts = (message.extra or {}).get(THOUGHTS)
        kept = [dict(one) for one in thoughts if isinstance(one, dict)] if isinstance(thoughts, list) else []
        calls = [
            {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": arguments_of(call.arguments)}
            for call in message.tool_calls
        ]
        return kept + texts + calls
    files = [_file(*one) for one in files_of(message, images)]
    if message.role == "tool":
        content = [*texts, *files] or [_text("(no result)")]
        return [{"type": "tool_result", "tool_use_id": _id(message.tool_call_id or ""), "content": content}]
    return files + texts  # as the server recommends


def _file(kind: str, data: str, url: str) -> dict[str, Any]:
    source = {"type": "url", "url": url} if url else {"type": "base64", "media_type": kind, "data": data}
    return {"type": "document" if kind == "application/pdf" else "image", "source": source}


def _id(identity: str) -> str:
    return identity if _ID.fullmatch(identity) else f"call_{short_id(identity)}"


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a call as the object that a wire wants; what the model wrote that is none is quoted."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"unreadable": text}


def _mark(body: dict[str, Any]) -> None:
    """Mark up to where the server keeps the prompt for the next request of the conversation: behind the tools, the
    system message, and the last message."""
    last = body["messages"][-1]["content"]
    for blocks in (body.get("tools"), body.get("system"), last):
        if blocks and blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
            blocks[-1] = {**blocks[-1], "cache_control": _MARK}


class AnthropicReader(PartsReader):
    """Reads one answer: blocks by their index, which may come interleaved."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._of_calls: dict[int, PartCall] = {}
        self._counts: dict[str, Any] = {}

    def whole(self, data: dict[str, Any], notices: list[str]) -> LlmResponse:
        """Return an answer that came in one piece. Raises `WireError`, `ServerError`."""
        raise_error(data)
        if not isinstance(data.get("content"), list):
            raise WireError("answered without content")
        self._begin(data)
        for index, block in enumerate(data["content"]):
            self._start(index, block)
        self._stop(data.get("stop_reason"))
        self._close()
        return self.response(notices)

    def add(self, data: dict[str, Any]) -> list[LlmChunk]:
        """Take an event; those of an unknown kind say nothing. Raises `ServerError`, `TooLong`."""
        raise_error(data)
        kind = data.get("type")
        if kind == "message_start" and isinstance(data.get("message"), dict):
            self._begin(data["message"])
        elif kind == "content_block_start":
            return self._start(data.get("index"), data.get("content_block"))
        elif kind == "content_block_delta":
            return self._more(data.get("index"), data.get("delta"))
        elif kind == "message_delta":
            self._count(data.get("usage"))
            delta = data.get("delta")
            self._stop(delta.get("stop_reason") if isinstance(delta, dict) else None)
        elif kind == "message_stop":
            self._close()
            self.is_over = True
        return []

    def end(self) -> list[LlmChunk]:
        """Keep the thoughts."""
        self._close()
        return []

    def _begin(self, message: dict[str, Any]) -> None:
        identity = message.get("id")
        self._id = identity if isinstance(identity, str) and identity else None
        self._count(message.get("usage"))

    def _start(self, index: Any, block: Any) -> list[LlmChunk]:
        if not isinstance(block, dict) or not isinstance(index, int):
            return []
        if len(self._blocks) >= MOST_PARTS:
            raise TooLong(f"sent more than {MOST_PARTS} blocks")
        kind = block.get("type")
        self._blocks[index] = dict(block)
        if kind == "text":
            return self.say(block.get("text"))
        if kind == "thinking":
            return self.think(block.get("thinking"))
        if kind == "tool_use":
            self._of_calls[index], chunks = self.begin_call(block.get("id"), block.get("name"), block.get("input"))
            return chunks
        return []

    def _more(self, index: Any, delta: Any) -> list[LlmChunk]:
        if not isinstance(delta, dict) or not isinstance(index, int):
            return []
        kind = delta.get("type")
        if index not in self._blocks and kind in _OF_DELTAS:  # some servers do not say that a block begins
            self._start(index, {"type": _OF_DELTAS[kind]})
        if (block := self._blocks.get(index)) is None:
            return []
        if kind == "text_delta":
            return self.say(delta.get("text"))
        if kind == "thinking_delta" and isinstance(piece := delta.get("thinking"), str):
            block["thinking"] = str(block.get("thinking", "")) + piece
            return self.think(piece)
        if kind == "signature_delta" and isinstance(piece := delta.get("signature"), str):
            block["signature"] = str(block.get("signature", "")) + piece
        if kind == "input_json_delta" and isinstance(piece := delta.get("partial_json"), str) and piece:
            call = self._of_calls.get(index)
            if call is not None:
                call.pieces.append(piece)
                return [LlmChunk(call=call.fragment(piece))]
        return []

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts |= {key: value for key, value in usage.items() if value is not None}
            read, made = (self._counts.get(f"cache_{how}_input_tokens") for how in ("read", "creation"))
            prompt = counted(self._counts.get("input_tokens"), read, made)
            self.use(prompt_tokens=prompt, completion_tokens=self._counts.get("output_tokens"), cached_tokens=read)

    def _stop(self, reason: Any) -> None:
        if isinstance(reason, str) and reason:
            self._reason = _REASONS.get(reason, reason)

    def _close(self) -> None:
        thoughts = [
            block for _, block in sorted(self._blocks.items()) if block.get("type") in ("thinking", "redacted_thinking")
        ]
        if thoughts:
            self._extra[THOUGHTS] = thoughts
