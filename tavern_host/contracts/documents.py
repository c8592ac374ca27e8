"""Reads JSON documents from files that anybody may have written, and says what their content is.

Bounded, UTF-8, regular files only. What a document means is its reader's business.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from tavern_host.contracts.errors import InvalidInput, NotFound

MAX_DOCUMENT = 16 * 1024 * 1024
"""How many bytes a document may have."""


def read_document_file(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises `NotFound`, and `InvalidInput` naming the file."""
    return read_document(read_document_bytes(path), name=str(path))


def read_document_bytes(path: Path) -> bytes:
    """Return what is in a file, for `read_document`: of one that is too large, a byte too many. Raises `NotFound`, and
    `InvalidInput` naming the file."""
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


def read_document(data: bytes, *, name: str = "the document") -> dict[str, Any]:
    """Return the JSON object that `data` holds. Raises `InvalidInput` beginning with `name`; where the text is no JSON
    at one place, its details are the `line`, the `column` and the `reason`.

    `NaN` and infinities are let through here and refused by `canonical`, so that a check can say where
    they are.
    """
    if len(data) > MAX_DOCUMENT:
        raise InvalidInput(f"{name} is larger than {MAX_DOCUMENT // (1024 * 1024)} MiB")
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        line, column, reason = error.lineno, error.colno, error.msg
        message = f"{name} is not JSON: line {line}, column {column}: {reason}"
        raise InvalidInput(message, line=line, column=column, reason=reason) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"{name} is not JSON that can be read: {reason}") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{name} must hold a JSON object, not {json_type(document)}")
    return document


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
    """Return what people call the JSON type of a value: `text`, `an integer`, `null` …"""
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
