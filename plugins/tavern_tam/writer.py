"""Writes calls as a TAM block that `TamParser` reads back as the same calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tavern_host.contracts.tools import ToolCallRequest
from tavern_tam.keys import key_of, normalise, without_number
from tavern_tam.lexing import BLOCK_MARKER, END_MARKER, REQUEST_MARKER

_NONCES = re.compile("「末ESCAPE:([0-9]+)」", re.IGNORECASE)


def write_tam(calls: Sequence[ToolCallRequest]) -> str:
    """Return one block with `calls` as its numbered steps; the number is a call's `index`.

    A value that holds the markers is written in the escape form, one that is not a string as JSON with a
    type hint. Read back without knowledge of the tools' parameters, the block gives the same calls, with
    `protocol` `tam`. Raises `ValueError` for what TAM cannot say: no calls, an index twice or negative,
    request ids that differ, a tool or request id with blanks around it, argument names that are a
    word of the protocol, contain its punctuation, or differ only in case, underscores, hyphens and spaces.
    """
    if not calls:
        raise ValueError("a TAM block needs at least one call")
    if len({call.index for call in calls}) < len(calls) or not all(0 <= call.index < 10**9 for call in calls):
        raise ValueError(f"the calls of a TAM block need indexes of their own, not {[call.index for call in calls]}")
    if len({call.request_id for call in calls}) > 1:
        raise ValueError("the calls of a TAM block share one request id")
    lines = [REQUEST_MARKER]
    if calls[0].request_id is not None:
        lines.append(_pair("request_id", _trimmed(calls[0].request_id, "request id")))
    for call in calls:
        lines += _step(call)
    return "\n".join([*lines, END_MARKER])


def _step(call: ToolCallRequest) -> list[str]:
    lines = [_pair(f"command_{call.index}", _trimmed(call.tool_id, "tool id"))]
    if call.on_error == "continue":
        lines.append(_pair(f"on_error_{call.index}", "continue"))
    seen: dict[str, str] = {}
    for name, value in call.arguments.items():
        key = _key(call, name)
        other = seen.setdefault(normalise(name), name)
        if other != name:
            raise ValueError(f"{call.tool_id}: TAM cannot tell the arguments {other!r} and {name!r} apart")
        if isinstance(value, str):
            lines.append(_pair(key, value))
        else:
            lines.append(_pair(key, json.dumps(value, ensure_ascii=False, allow_nan=False)))
            lines.append(_pair(_key(call, f"type_hint_{name}", "type_hint"), "json"))
    return lines


def _key(call: ToolCallRequest, name: str, word: str = "") -> str:
    written = f"{name}_{call.index}"
    key = key_of(written)
    digits = len(str(call.index))
    exact = key is not None and key.word == word and key.written == written
    if not exact or not normalise(name) or without_number(written, digits) != name:
        raise ValueError(f"{call.tool_id}: an argument {name!r} cannot be written in TAM")
    return written


def _trimmed(text: str, what: str) -> str:
    if not text or text != text.strip():
        raise ValueError(f"a {what} in TAM is neither empty nor has blanks around it, not {text!r}")
    return text


def _pair(key: str, value: str) -> str:
    if "「始" in value or "「末" in value or BLOCK_MARKER.search(value):
        taken = {int(nonce) for nonce in _NONCES.findall(value)}
        nonce = next(n for n in range(1, len(taken) + 2) if n not in taken)
        return f"{key}:「始ESCAPE:{nonce}」{value}「末ESCAPE:{nonce}」"
    return f"{key}:「始」{value}「末」"
