"""Type hints: what `type_hint_P` makes of the text of a value. Without a hint a value stays text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from pydantic import JsonValue

from tavern_host.contracts.documents import object_of, read_json
from tavern_host.contracts.errors import InvalidInput

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_SHOWN = 40


def hinted(value: str, hint: str) -> JsonValue:
    """Return the text `value` converted by a hint. Raises `ValueError`, whose text is one clause, where it cannot be,
    or where TAM has no such hint."""
    read = _HINTS.get(hint.casefold())
    if read is None:
        raise ValueError(f"the hint {hint[:_SHOWN]!r} is not known (json, text, integer, number, boolean)")
    return read(value)


def json_of(text: str) -> JsonValue:
    """Return the JSON value of `text`.

    Raises `ValueError`, also for what no wire can carry; see `read_json`.
    """
    try:
        value: JsonValue = read_json(text, "it")
        json.loads(text, object_pairs_hook=object_of)
    except InvalidInput as error:
        raise ValueError(f"{_shown(text)} is not JSON ({error.message.removeprefix('it is not JSON: ')})") from None
    return value


def _text(text: str) -> JsonValue:
    return text


def _integer(text: str) -> JsonValue:
    if not _INTEGER.fullmatch(text.strip()):
        raise ValueError(f"{_shown(text)} is not an integer")
    value = int(text)
    if not _SMALLEST <= value <= _LARGEST:
        raise ValueError(f"{_shown(text)} has more than 64 bits")
    return value


def _number(text: str) -> JsonValue:
    return _integer(text) if _INTEGER.fullmatch(text.strip()) else _float(text)


def _float(text: str) -> JsonValue:
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"{_shown(text)} is not a number")
    return value


def _boolean(text: str) -> JsonValue:
    word = text.strip().casefold()
    if word not in ("true", "false"):
        raise ValueError(f"{_shown(text)} is neither true nor false")
    return word == "true"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


_HINTS: dict[str, Callable[[str], JsonValue]] = {
    "json": json_of,
    "text": _text,
    "string": _text,
    "integer": _integer,
    "int": _integer,
    "number": _number,
    "float": _float,
    "boolean": _boolean,
    "bool": _boolean,
}
