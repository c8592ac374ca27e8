"""What the parts of OpenAI's API have in common: JSON objects, error objects, the list of models.

Knows nothing of HTTP. Reads leniently where servers differ, and raises `WireError` where there is nothing to read.
"""

from __future__ import annotations

import json
import re
from typing import Any

_PASSING = {"overloaded_error": 529, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504}
"""The status that Anthropic's types of errors stand for, of those that may pass."""


class WireError(Exception):
    """The text of an answer is not what the protocol says; `str` is one clause for an error message."""


class TooLong(WireError):
    """An answer is longer than what is read of one."""


class ServerError(Exception):
    """The server answered with an error object; `str` is its message, `status` the HTTP status that it names."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Return a JSON object. Raises `WireError` for anything else, and for an HTML page in so many words."""
    try:
        data = json.loads(text, parse_constant=lambda name: None)  # some send NaN, which is no JSON
    except (ValueError, RecursionError):
        start = text.lstrip()[:1]
        what = "an HTML page" if start in (b"<", "<") else "nothing" if not start else "text that is not JSON"
        raise WireError(f"answered with {what} where JSON was expected") from None
    if isinstance(data, list) and len(data) == 1 and isinstance(data[0], dict) and data[0].get("error"):
        return data[0]
    if not isinstance(data, dict):
        raise WireError("answered with JSON that is not an object")
    return data


def read_models(data: dict[str, Any]) -> list[str]:
    """Return the names in a list of models. Raises `WireError`, `ServerError`."""
    raise_error(data)
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
        if value and "choices" not in data:
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return None


def raise_error(data: dict[str, Any]) -> None:
    """Raise `ServerError` where an answer is an error object."""
    error = data.get("error")
    if not error:
        return
    code = str(error.get("code", error.get("status", ""))) if isinstance(error, dict) else ""
    kind = str(error.get("type", "")) if isinstance(error, dict) else ""
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else _PASSING.get(kind)
    said = error_message(data) or "an error without a message"
    raise ServerError(said if status or not code or code in said else f"{said} ({code})", status)
