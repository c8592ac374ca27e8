"""The JSON of OpenAI's chat completions: builds request bodies, reads answers and pieces of answers.

Knows nothing of HTTP. Reads leniently where servers differ, and raises `WireError` where an answer has
no text to find.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.llm import LlmEmbeddings, LlmRequest, LlmResponse, LlmUsage

RESERVED = ("model", "messages", "stream")
"""Fields of the body that parameters may not set."""


class WireError(Exception):
    """The text of an answer is not what the protocol says; `str` is one clause for an error message."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event of a stream adds."""

    text: str
    finish_reason: str | None
    usage: LlmUsage | None


class ServerError(Exception):
    """The server answered with an error object; `str` is its message."""


def request_body(request: LlmRequest, model: str, parameters: dict[str, JsonValue], *, stream: bool) -> dict[str, Any]:
    """Return the body of a request; the request's parameters win over the model's. Raises `InvalidInput`."""
    merged = {**parameters, **request.parameters}
    taken = [name for name in RESERVED if name in merged]
    if taken:
        raise InvalidInput(f"the parameters of an LLM request may not set {', '.join(taken)}; leave them out")
    messages = [message.to_json() for message in request.messages]
    return {**merged, "model": model, "messages": messages, "stream": stream}


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Return a JSON object. Raises `WireError` for anything else, and for an HTML page in so many words."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        start = text.lstrip()[:1]
        what = "an HTML page" if start in (b"<", "<") else "nothing" if not start else "text that is not JSON"
        raise WireError(f"answered with {what} where JSON was expected") from None
    if not isinstance(data, dict):
        raise WireError("answered with JSON that is not an object")
    return data


def read_answer(data: dict[str, Any], model: str) -> LlmResponse:
    """Return the text, finish reason and usage of a whole answer. Raises `WireError`, `ServerError`."""
    _raise_error(data)
    choice = _choice(data)
    message = choice.get("message") if choice else None
    if not isinstance(message, dict):
        raise WireError("answered without choices[0].message")
    return LlmResponse(
        text=_text(message.get("content")),
        model=model,
        finish_reason=_str(choice.get("finish_reason")),
        usage=_usage(data) or LlmUsage(),
    )


def read_piece(data: dict[str, Any]) -> Piece:
    """Return what one event of a stream adds; parts that are absent are empty. Raises `ServerError`."""
    _raise_error(data)
    choice = _choice(data)
    delta = choice.get("delta")
    text = _text(delta.get("content")) if isinstance(delta, dict) else ""
    return Piece(text=text, finish_reason=_str(choice.get("finish_reason")), usage=_usage(data))


def read_embeddings(data: dict[str, Any], model: str, count: int) -> LlmEmbeddings:
    """Return the vectors of an answer, by their index. Raises `WireError`, `ServerError`."""
    _raise_error(data)
    items = data.get("data")
    found = {}
    for position, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict) and isinstance(item.get("embedding"), list):
            found[item.get("index", position)] = item["embedding"]
    try:
        vectors = [[float(number) for number in found[index]] for index in range(count)]
    except (KeyError, TypeError, ValueError):
        raise WireError(f"answered without the vectors of all {count} texts") from None
    return LlmEmbeddings(vectors=vectors, model=model, usage=_usage(data) or LlmUsage())


def read_models(data: dict[str, Any]) -> list[str]:
    """Return the names in a list of models. Raises `WireError`, `ServerError`."""
    _raise_error(data)
    items = data.get("data")
    if not isinstance(items, list):
        raise WireError("answered without a list of models")
    names = (item.get("id") for item in items if isinstance(item, dict))
    return sorted({name for name in names if isinstance(name, str) and name})


def error_message(data: Any) -> str | None:
    """Return the message of an error object in any of its usual shapes, or None."""
    error = data.get("error") if isinstance(data, dict) else None
    if isinstance(error, dict):
        message = error.get("message")
        return message if isinstance(message, str) and message else "an error without a message"
    if isinstance(error, str) and error:
        return error
    for key in ("message", "detail"):
        value = data.get(key) if isinstance(data, dict) else None
        if isinstance(value, str) and value and "choices" not in data:
            return value
    return None


def _raise_error(data: dict[str, Any]) -> None:
    if data.get("error"):
        raise ServerError(error_message(data) or "an error without a message")


def _choice(data: dict[str, Any]) -> dict[str, Any]:
    choices = data.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
            return choice
    return {}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _usage(data: dict[str, Any]) -> LlmUsage | None:
    usage = data.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")]
    prompt, completion = (c if isinstance(c, int) and not isinstance(c, bool) else None for c in counts)
    return LlmUsage(prompt_tokens=prompt, completion_tokens=completion)
