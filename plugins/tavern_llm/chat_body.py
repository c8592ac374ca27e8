"""Writes the bodies of chat completions, in the shape that a server takes (`Dialect`).

Requests of one conversation have the same bytes up to where they differ: what stays stands first, messages last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_llm.api.llm import ChatMessage, LlmRequest
from tavern_llm.options import parameters_problem
from tavern_llm.plain_schemas import is_strict, plain_schema, plain_tool

RESERVED = ("model", "messages", "stream")
"""Fields of the body that parameters may not set."""

LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The two names of the greatest length of an answer, each with the other."""

SCHEMA_TEXT = "Answer with JSON only, without any other text, that follows this JSON Schema:\n"

_OWN = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})


@dataclass(frozen=True)
class Dialect:
    """What a server does not take: `omitted` are fields of the body, `shapes` names of what is written otherwise
    (`dialects.py` says when)."""

    omitted: frozenset[str] = frozenset()
    shapes: frozenset[str] = frozenset()

    def notices(self, request: LlmRequest, parameters: Mapping[str, JsonValue]) -> list[str]:
        """Return sentences on the differences from what was asked for, as far as they may change the answer."""
        found = []
        if "text_tools" in self.shapes and request.tools:
            found.append("the server takes no tools: the model read about them in the system message")
        if "schema_in_prompt" in self.shapes and request.response_schema is not None:
            found.append("the server takes no response schema here: the model read it in the system message")
        asked = {*parameters, *request.parameters, *(["tool_choice"] if request.tools and request.tool_choice else [])}
        if left_out := sorted(self.omitted & asked - {"stream_options"}):
            found.append(f"the server does not take {', '.join(left_out)}")
        return found


def request_body(
    request: LlmRequest,
    model: str,
    parameters: Mapping[str, JsonValue],
    *,
    stream: bool,
    dialect: Dialect | None = None,
    images: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the body of a request; its own parameters win over the model's. `images` are data URLs by the hash of
    their Blob. Raises `InvalidInput`."""
    dialect = dialect or Dialect()
    merged: dict[str, Any] = {**parameters, **request.parameters}
    taken = [name for name in RESERVED if name in merged]
    if taken:
        raise InvalidInput(f"the parameters of an LLM request may not set {', '.join(taken)}; leave them out")
    if problem := parameters_problem(merged):
        raise InvalidInput(f"the parameters of an LLM request: {problem}")
    body: dict[str, Any] = {"model": model, **dict(sorted(merged.items()))}
    if request.tools and "text_tools" not in dialect.shapes:
        is_plain = "plain_schemas" in dialect.shapes
        body["tools"] = [plain_tool(tool) for tool in request.tools] if is_plain else request.tools
        if request.tool_choice:
            is_word = request.tool_choice in ("auto", "none", "required")
            named = {"type": "function", "function": {"name": request.tool_choice}}
            body["tool_choice"] = request.tool_choice if is_word else named
    if request.response_schema is not None and "schema_in_prompt" not in dialect.shapes:
        body["response_format"] = _response_format(request.response_schema, dialect)
    body["stream"] = stream
    if stream:
        body.setdefault("stream_options", {"include_usage": True})
    if "other_limit" in dialect.shapes:
        body = {LIMITS.get(key, key): value for key, value in body.items()}
    body = {key: value for key, value in body.items() if key not in dialect.omitted}
    body["messages"] = _messages(request, dialect, images or {})
    return body


def _response_format(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    if "plain_schemas" in dialect.shapes:
        schema = plain_schema(schema)
    strict = {"strict": True} if is_strict(schema) else {}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **strict}}


def _messages(request: LlmRequest, dialect: Dialect, images: Mapping[str, str]) -> list[dict[str, Any]]:
    messages = list(request.messages)
    parts = [request.tools_text or ""] if "text_tools" in dialect.shapes and request.tools else []
    if "schema_in_prompt" in dialect.shapes and request.response_schema is not None:
        parts.append(SCHEMA_TEXT + json.dumps(request.response_schema, ensure_ascii=False))
    if parts:
        system = [messages.pop(0).content] if messages and messages[0].role == "system" else []
        messages.insert(0, ChatMessage(role="system", content="\n\n".join([*system, *parts])))
    if "text_tools" in dialect.shapes:
        messages = _calls_as_text(messages)
    written: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []  # images of results, which only a user's message may have
    for message in messages:
        if message.role != "tool" and results:
            written.append({"role": "user", "content": results})
            results = []
        parts_of_images = [_part_of(url) for url in addresses(message, images)]
        if message.role == "tool":
            results += parts_of_images
            parts_of_images = []
        written.append(_message(message, parts_of_images, dialect))
    if results:
        written.append({"role": "user", "content": results})
    return _in_turns(written, dialect)


def _part_of(url: str) -> dict[str, Any]:
    if url.startswith("data:application/pdf"):
        return {"type": "file", "file": {"filename": "file.pdf", "file_data": url}}
    return {"type": "image_url", "image_url": {"url": url}}


def addresses(message: ChatMessage, images: Mapping[str, str]) -> list[str]:
    """Return the addresses of a message's images and files, those that are kept here as data URLs."""
    return [url for image in message.images if (url := images[image.blob.hash] if image.blob else image.url)]


def _message(message: ChatMessage, images: list[dict[str, Any]], dialect: Dialect) -> dict[str, Any]:
    content: Any = message.content
    if message.tool_calls and not content and "empty_content" not in dialect.shapes:
        content = None
    if images:
        content = [*([{"type": "text", "text": content}] if content else []), *images]
    out: dict[str, Any] = {"role": message.role, "content": content}
    short = "short_ids" in dialect.shapes
    if message.name:
        out["name"] = message.name
    if message.tool_calls:
        out["tool_calls"] = [
            {
                "id": short_id(call.id) if short else call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
                **({} if "plain_messages" in dialect.shapes else call.extra or {}),
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        out["tool_call_id"] = short_id(message.tool_call_id) if short else message.tool_call_id
    if "plain_messages" not in dialect.shapes:
        out |= {key: value for key, value in (message.extra or {}).items() if key not in _OWN}
    return out


def short_id(identity: str) -> str:
    """Return nine letters and digits that stand for an id, the same each time."""
    is_short = len(identity) == 9 and identity.isalnum() and identity.isascii()
    return identity if is_short else hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:9]


def _calls_as_text(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Return the messages without native calls: what was called, and what came of it, stands in their text."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    found = []
    for message in messages:
        if message.tool_calls:
            calls = [f"I called {call.name} with {call.arguments}" for call in message.tool_calls]
            text = "\n\n".join(part for part in [message.content, *calls] if part)
            message = message.model_copy(update={"content": text, "tool_calls": (), "extra": None})
        elif message.role == "tool":
            name = names.get(message.tool_call_id or "", message.name or "a tool")
            text = f"The result of {name}:\n{message.content}"
            message = ChatMessage(role="user", content=text, images=message.images)
        found.append(message)
    return found


def _in_turns(messages: list[dict[str, Any]], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the messages with the roles that a server takes where it takes them: system messages at the beginning or
    none, user and assistant in turn."""
    alternates, no_system = "alternate" in dialect.shapes, "no_system" in dialect.shapes
    if not (alternates or no_system):
        return messages
    found: list[dict[str, Any]] = []
    for place, message in enumerate(messages):
        if message["role"] == "system" and (no_system or place):
            message = {**message, "role": "user"}
        last = found[-1] if found else {}
        plain = not (message.get("tool_calls") or last.get("tool_calls")) and message["role"] != "tool"
        if plain and last.get("role") == message["role"]:
            found[-1] = {**last, **message, "content": _joined(last["content"], message["content"])}
        else:
            found.append(message)
    start = 1 if found and found[0]["role"] == "system" else 0
    if alternates and len(found) > start and found[start]["role"] == "assistant":
        found.insert(start, {"role": "user", "content": "(The conversation begins.)"})
    return found


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(part for part in (first, second) if part)
    parts = [[{"type": "text", "text": part}] if isinstance(part, str) else part or [] for part in (first, second)]
    return parts[0] + parts[1]
