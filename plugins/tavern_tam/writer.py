"""Writes calls as TAM blocks that `TamParser` reads back as the same calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import count, groupby

from pydantic import JsonValue

from tavern_tam.hints import json_of
from tavern_tam.keys import key_of, normalise, without_number
from tavern_tam.lexing import BLOCK_MARKER, END_MARKER, REQUEST_MARKER
from tavern_tam.steps import MOST_COMMON
from tavern_tools.api.toolcalls import ToolCallRequest

_ESCAPES = re.compile("「[始末]ESCAPE(?::([0-9A-Za-z_-]{1,32}))?」", re.IGNORECASE)


def write_tam(calls: Sequence[ToolCallRequest]) -> str:
    """Return the calls as blocks, one for those in turn that have the same `block`; `index` is the number of a step.

    A value that holds the markers is written in the escape form, with a nonce where it holds those of that form too;
    one that is not a string as JSON with a type hint. Read back without knowledge of the tools' parameters, the text
    gives the same calls: steps in the order of their numbers, blocks counted from 0, `protocol` `tam`.

    Raises `ValueError` for what TAM cannot say: no calls; in a block, an index twice or negative, or request ids or
    variables that differ; a tool or request id with blanks around it; argument names that
    contain its punctuation or differ only in case, underscores, hyphens and spaces; JSON that is nested too deeply
    or has integers of more than 64 bits; variables that are not those of `common_P` for an argument `P` of each step.
    """
    if not calls:
        raise ValueError("a TAM block needs at least one call")
    return "\n".join(_block(list(block)) for _, block in groupby(calls, key=lambda call: call.block))


def _block(calls: list[ToolCallRequest]) -> str:
    if len({call.index for call in calls}) < len(calls) or not all(0 <= call.index < 10**9 for call in calls):
        raise ValueError(f"the calls of a TAM block need indexes of their own, not {[call.index for call in calls]}")
    if any(call.request_id != calls[0].request_id for call in calls):
        raise ValueError("the calls of a TAM block share one request id")
    lines = [REQUEST_MARKER]
    if calls[0].request_id is not None:
        lines.append(_pair("request_id", _trimmed(calls[0].request_id, "request id")))
    lines += _common(calls)
    for call in calls:
        lines += _step(call)
    return "\n".join([*lines, END_MARKER])


def _common(calls: list[ToolCallRequest]) -> list[str]:
    """Return the lines of the variables that all calls of a block share, each as `P` and as `common_P`."""
    lines, expected = [], dict[str, JsonValue]()
    for name, value in calls[0].variables.items():
        key = key_of(f"common_{name}")
        if f"common_{name}" not in calls[0].variables or key is None or key.inner is None:
            continue
        everywhere = all(any(normalise(name) == normalise(other) for other in call.arguments) for call in calls)
        if isinstance(value, str) and key.inner.written == name and everywhere:
            expected |= {name: value, f"common_{name}": value}
            lines.append(_pair(f"common_{name}", value))
    names = {normalise(name) for name in expected}
    if len(names) < len(expected) or len(lines) > MOST_COMMON or any(call.variables != expected for call in calls):
        raise ValueError(
            "the variables of the calls in a TAM block are the same texts, each under P and common_P, at most "
            f"{MOST_COMMON}, and each call has an argument P"
        )
    return lines


def _step(call: ToolCallRequest) -> list[str]:
    lines = [_pair(f"command_{call.index}", _trimmed(call.tool_id, "tool id"))]
    if call.on_error == "continue":
        lines.append(_pair(f"on_error_{call.index}", "continue"))
    if call.retry:
        lines.append(_pair(f"retry_{call.index}", str(call.retry)))
    seen: dict[str, str] = {}
    for name, value in call.arguments.items():
        key = _key(call, name)
        other = seen.setdefault(normalise(name), name)
        if other != name:
            raise ValueError(f"{call.tool_id}: TAM cannot distinguish the arguments {other!r} and {name!r}")
        if isinstance(value, str):
            lines.append(_pair(key, value))
        else:
            lines.append(_pair(key, _json(call, name, value)))
            lines.append(_pair(_key(call, name, "type_hint_"), "json"))
    return lines


def _json(call: ToolCallRequest, name: str, value: JsonValue) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        json_of(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{call.tool_id}: the argument {name!r} cannot be written in TAM: {error}") from None
    return text


def _key(call: ToolCallRequest, name: str, word: str = "") -> str:
    """Return the key of an argument, or with a `word` before it that of what is said about the argument."""
    numbered = f"{name}_{call.index}"
    key = key_of(numbered)
    if key is not None:
        written = f"{word}argument_{numbered}" if key.word else f"{word}{numbered}"
        exact = key.written == numbered and without_number(numbered, len(str(call.index))) == name
        if exact and normalise(name) and key_of(written) is not None:
            return written
    raise ValueError(f"{call.tool_id}: an argument {name!r} cannot be written in TAM")


def _trimmed(text: str, what: str) -> str:
    if not text or text != text.strip():
        raise ValueError(f"a {what} in TAM is neither empty nor has blanks around it, not {text!r}")
    return text


def _pair(key: str, value: str) -> str:
    if not ("「始" in value or "「末" in value or BLOCK_MARKER.search(value)):
        return f"{key}:「始」{value}「末」"
    taken = {nonce.lstrip("0") for nonce in _ESCAPES.findall(value)}
    nonce = "" if "" not in taken else next(f":{n}" for n in count(1) if str(n) not in taken)
    return f"{key}:「始ESCAPE{nonce}」{value}「末ESCAPE{nonce}」"
