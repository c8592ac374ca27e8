"""Reads JSON that anybody may have written, in files or messages, and says what its content is.

Files: bounded, UTF-8, regular files only. What a document means is its reader's business.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.wire import INT_BITS, MAX_LEVELS, WireError, wire_value, without_surrogates

P = ParamSpec("P")
T = TypeVar("T")

LARGE_TEXT = 2**18
"""From how many bytes on JSON is read or written in a thread."""


async def to_thread_if_large(is_large: bool, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `work`; where it is large it is done in a thread, so that nobody waits for it."""
    return await asyncio.to_thread(work, *args, **kwargs) if is_large else work(*args, **kwargs)


ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_DOCUMENT = 16 * 1024 * 1024
"""How many bytes a document may have."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]|-?\d{1000,}')
"""What is looked for in a text whose nesting or numbers are too much: texts, brackets, long numbers."""

_SHOWN = 200
"""How many characters of a place in a value a message shows."""


def read_document_file(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises `NotFound`, and `InvalidInput` naming the file."""
    return read_document(read_document_bytes(path), name=str(path))


def read_document_bytes(path: Path) -> bytes:
    """Return the bytes of a file, for `read_document`: of one that is too large, a byte too many. Raises `NotFound`,
    and `InvalidInput` naming the file."""
    try:
        # O_NONBLOCK: a FIFO in its place must not hang the host.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput(f"{path} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_DOCUMENT + 1)


_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)


def without_comments(text: str) -> str:
    """Return JSON text with its `// …` and `/* … */` as blanks, so that all else stands where it stood."""
    if "//" not in text and "/*" not in text:
        return text
    return _STRING_OR_COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\r\n]", " ", m[0]), text)


def read_document(data: bytes, *, name: str = "the document") -> dict[str, Any]:
    """Return the JSON object that `data` holds; it may have comments (`// …`, `/* … */`). Raises `InvalidInput`
    beginning with `name`; where the text is no JSON at one place, its details are the `line`, the `column` and the
    `reason`.

    `NaN` and infinities are let through here and refused by `canonical`, so that a check can say where
    they are.
    """
    if len(data) > MAX_DOCUMENT:
        raise InvalidInput(f"{name} is larger than {MAX_DOCUMENT // (1024 * 1024)} MiB")
    document = _parsed(data, name, has_comments=True)
    if not isinstance(document, dict):
        raise InvalidInput(f"{name} must hold a JSON object, not {json_type(document)}")
    return document


def read_json(text: str | bytes, name: str) -> Any:
    """Return the value of a JSON text that came in from outside, as every wire can carry it: see `carried`.

    Raises `InvalidInput` beginning with `name`, with the place of what is no JSON or cannot be carried. Nothing is
    replaced: half of a surrogate pair is refused too.
    """
    value = _parsed(text, name)
    found = wire_json(value, name)
    if found is not value:  # a copy, since something in it was replaced
        place = json_path(*_half(value, ()))[:_SHOWN]
        raise InvalidInput(f"{name}: {place}: the text holds half of a surrogate pair, which is not Unicode")
    return found


def _half(value: Any, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the place of a text that is not Unicode in a value that has one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        if isinstance(key, str) and without_surrogates(key) is not key:
            return (*path, key)
        if wire_value(item) is not item:
            return _half(item, (*path, key))
    return path


def read_json_object(text: str | bytes, name: str) -> dict[str, Any]:
    """Return a JSON object; raises `InvalidInput` as `read_json` does, and for another value."""
    value = read_json(text, name)
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} must be a JSON object, not {json_type(value)}")
    return value


def wire_json(value: Any, name: str) -> Any:
    """Return a value as `carried` does. Raises `InvalidInput` that says what of `name` cannot be carried."""
    try:
        return wire_value(value)
    except WireError as error:
        raise InvalidInput(f"{name}: {json_path(*error.path)[:_SHOWN]}: {error.reason}") from None


def read_model(model: type[ModelT], value: Any, name: str) -> ModelT:
    """Return a value as a model. Raises `InvalidInput` that begins with `name`: all mistakes and their places, which
    its details have as `problems`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = [f"{json_path(*place)[:_SHOWN]}: {text}" for place, text in mistakes(error)]
        raise InvalidInput(f"{name}: {'; '.join(found)}", problems=found) from None


def mistakes(error: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the place and the text of each mistake, without names of classes."""
    return [
        (found["loc"], "Input should be an object" if "class_name" in found.get("ctx", ()) else found["msg"])
        for found in error.errors(include_url=False, include_input=False)
    ]


def _parsed(data: str | bytes, name: str, *, has_comments: bool = False) -> Any:
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig", "surrogatepass")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 text (byte {error.start})") from None
    text = without_comments(text) if has_comments else text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _not_json(name, text, error.pos, error.msg) from None
    except RecursionError:
        raise _not_json(name, text, _too_deep(text), f"it is nested more than {MAX_LEVELS} levels deep") from None
    except ValueError:  # a number with more digits than Python reads
        long = next(match for match in _TOKEN.finditer(text) if match[0][0] not in '"[]{}')
        raise _not_json(name, text, long.start(), f"an int must have at most {INT_BITS} bits") from None


def _not_json(name: str, text: str, position: int, reason: str) -> InvalidInput:
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    message = f"{name} is not JSON: line {line}, column {column}: {reason}"
    return InvalidInput(message, line=line, column=column, reason=reason)


def _too_deep(text: str) -> int:
    """Return where a JSON text is nested too deeply."""
    depth = 0
    for match in _TOKEN.finditer(text):
        depth += (match[0] in "[{") - (match[0] in "]}")
        if depth > MAX_LEVELS:
            return match.start()
    return 0


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object from its members, as `object_pairs_hook` of `json.loads`. Raises `ValueError` for a key that
    is given twice, with different values: readers of JSON differ about which of them counts."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise ValueError(f"{key[:_SHOWN]!r} is given twice, with different values")
    return found


def merged(value: JsonValue, patch: JsonValue) -> JsonValue:
    """Return a value with a JSON merge patch applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), part)
    return found


def canonical(document: Any) -> bytes:
    """Return JSON that is the same for the same content, whatever the order of its keys.

    Raises `ValueError` where the content has no JSON form: NaN, infinities, lone surrogates, other objects.
    """
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return text.encode()
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def revision_of(document: Any) -> str:
    """Return a short hash of a document's content. Raises `ValueError` as `canonical` does."""
    return hashlib.sha256(canonical(document)).hexdigest()[:16]


def json_path(*parts: str | int) -> str:
    """Return the JSON path of a place in a document: `$.nodes[3].type`, `$.inputs["a b"]`."""
    text = "$"
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{json.dumps(part, ensure_ascii=False)}]"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_type(value: Any) -> str:
    """Return the common name of a value's JSON type: `text`, `an integer`, `null` …"""
    if value is None:
        return "null"
    names = (
        (bool, "a boolean"),
        (int, "an integer"),
        (float, "a number"),
        (str, "text"),
        (list, "an array"),
        (dict, "an object"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), type(value).__name__)
