"""From the text of an action protocol to typed arguments: parameter names are matched, values converted.

Only what the tool's schema asks for is converted, every conversion is recorded, and text that does not fit
is left as it is for validation to report.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import JsonValue

from tavern_host.contracts.documents import json_type
from tavern_tools.naming import normal_form, quoted
from tavern_tools.schemas import Schema

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
_INT64 = 2**63
_MISSING: Any = object()


def match_keys(
    arguments: Mapping[str, JsonValue], names: Mapping[str, JsonValue]
) -> tuple[dict[str, JsonValue], list[str]]:
    """Return the arguments under the names of the parameters that are meant, and what was taken as what.

    Names compare without case, underscores, hyphens and spaces; an exact name comes first, and a name that
    could mean two parameters means none.
    """
    meant: dict[str, str | None] = {}
    for name in names:
        form = normal_form(name)
        meant[form] = None if form in meant else name
    matched: dict[str, JsonValue] = {}
    notes = []
    for key, value in arguments.items():
        parameter = None if key in names else meant.get(normal_form(key))
        if parameter is None or parameter in arguments or parameter in matched:
            matched[key] = value
        else:
            matched[parameter] = value
            notes.append(f"{quoted(key)} taken as {quoted(parameter)}")
    return matched, notes


def coerce(schema: Schema, name: str, part: Any, value: JsonValue) -> tuple[JsonValue, str | None]:
    """Return the value of parameter `name`, whose schema is `part` of `schema`, and a note if it was converted.

    Text becomes an integer, number, boolean, null, object or array where the schema allows that and no
    text; around a choice, spaces are dropped.
    """
    if not isinstance(value, str):
        return value, None
    types = schema.types(part)
    if not types:
        return value, None
    if "string" in types:
        return _choice(name, part, value)
    for kind in ("integer", "number", "boolean", "null", "object", "array"):
        if kind in types:
            converted = _convert(value.strip(), kind)
            if converted is not _MISSING:
                return converted, f"{name}: {quoted(value, limit=40)} became {json_type(converted)}"
    return value, None


def _choice(name: str, part: Any, value: str) -> tuple[str, str | None]:
    choices = part.get("enum") if isinstance(part, dict) else None
    bare = value.strip()
    if choices and value not in choices and bare in choices:
        return bare, f"{name}: spaces around {quoted(bare, limit=40)} dropped"
    return value, None


def _convert(text: str, kind: str) -> Any:
    if kind == "integer":
        return _integer(text)
    if kind == "number":
        integer = _integer(text) if _INTEGER.fullmatch(text) else _MISSING
        return _number(text) if integer is _MISSING else integer
    if kind == "boolean":
        return _BOOLEANS.get(text.casefold(), _MISSING)
    if kind == "null":
        return None if text.casefold() == "null" else _MISSING
    expected = dict if kind == "object" else list
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _MISSING
    return value if isinstance(value, expected) else _MISSING


def _integer(text: str) -> Any:
    number = int(text) if _INTEGER.fullmatch(text) else _number(text)
    if number is _MISSING or number != int(number) or not -_INT64 <= number < _INT64:
        return _MISSING
    return int(number)


def _number(text: str) -> Any:
    if not _NUMBER.fullmatch(text):
        return _MISSING
    number = float(text)
    return number if math.isfinite(number) else _MISSING


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
