"""From the text of an action protocol to typed arguments: parameter names are matched, values converted.

Only what the tool's schema asks for is converted, every conversion is recorded, and text that does not fit
is left as it is for validation to report.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

from pydantic import JsonValue

from tavern_host.contracts.documents import canonical, json_type, object_of
from tavern_tools.api.nearly_json import mended
from tavern_tools.catalog.names import normal_form, quoted
from tavern_tools.catalog.schemas import Schema, is_too_deep

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False, "1": True, "0": False}
_KINDS = ("integer", "number", "boolean", "null", "object", "array")
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


class Coercion:
    """Turns the arguments of an action protocol into what a tool's schema asks for."""

    def __init__(self, schema: Schema, properties: Mapping[str, JsonValue]) -> None:
        self._properties = properties
        self._types = {name: schema.types(part) for name, part in properties.items()}

    def apply(self, arguments: Mapping[str, JsonValue]) -> tuple[dict[str, JsonValue], list[str]]:
        """Return the arguments under the names and with the types that are meant, and a note of each change."""
        values, notes = match_keys(arguments, self._properties)
        for name, value in values.items():
            if name in self._types and isinstance(value, str):
                values[name], note = self._value(name, value)
                if note:
                    notes.append(note)
        return values, notes

    def _value(self, name: str, value: str) -> tuple[JsonValue, str | None]:
        """Return a parameter's value, and a note if it was converted.

        Text becomes an integer, number, boolean, null, object or array where the schema allows that and no
        text; around a choice, spaces are dropped.
        """
        types = self._types[name]
        if "string" in types:
            return _choice(name, self._properties[name], value)
        for text, mends in _readings(value.strip(), types):
            for kind in _KINDS:
                if kind in types:
                    converted = _convert(text, kind)
                    if converted is not _MISSING:
                        how = "".join(f"; {mend}" for mend in mends)
                        return converted, f"{name}: {quoted(value, limit=40)} became {json_type(converted)}{how}"
        return value, None


def _readings(text: str, types: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield a text as it is, and where a list or object is asked for as it is meant, with what was mended in it."""
    yield text, []
    if ("object" in types or "array" in types) and (found := mended(text)) is not None and found[1]:
        yield found


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
    return _json(text, dict if kind == "object" else list)


def _json(text: str, expected: type) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=object_of)
        if isinstance(value, expected) and not is_too_deep(value):
            canonical(value)
            return value
    except (ValueError, RecursionError):
        pass
    return _MISSING


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
