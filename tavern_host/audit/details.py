"""Copies what of an action's details goes into the audit log: bounded JSON, with secrets masked.

Secrets are known by their names alone: one in the middle of a text, or under a harmless name, is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import date
from math import isfinite
from pathlib import PurePath
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from tavern_host import clock
from tavern_host.common.redaction import is_hidden, names_secret, secrecy
from tavern_host.contracts.settings import MASK

MAX_TEXT = 1000
"""How many characters of one text are kept."""
MAX_TEXTS = 20_000
"""How many characters of all texts of one entry are kept."""
MAX_VALUES = 500
"""How many values of one entry are kept."""
MAX_NESTED = 8
"""How deeply lists and objects may be nested."""

_NESTED = (dict, list, tuple, set, frozenset, Mapping)
_SHORT = 100
_WORD = 2**63 - 1


def encoded(fields: dict[str, str], details: Mapping[str, Any] | None, secrets: Collection[str] = ()) -> bytes:
    """Return an object in JSON: `fields`, texts that are cut where they are too long, and `details`.

    Takes details of any kind and any size, and never raises for them. What stands under a name among `secrets` is
    masked at any depth, whatever the name.
    """
    entry: dict[str, Any] = {
        key: value if type(value) is str and len(value) <= MAX_TEXT else _field(value) for key, value in fields.items()
    }
    entry["details"] = _copied(details, secrets)
    try:
        return to_json(entry)
    except PydanticSerializationError:  # half a surrogate pair
        return json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace")


def now() -> str:
    """Return the time as entries have it."""
    return clock.now().isoformat(timespec="microseconds")


def _field(value: object) -> str:
    return _cut(str.__str__(value), MAX_TEXT) if isinstance(value, str) else _described(value)


def _copied(details: Mapping[str, Any] | None, secrets: Collection[str]) -> dict[str, Any]:
    try:
        return _Details(secrets).object(details, 0) if details else {}
    except Exception as error:  # objects of plugins may do anything when they are read
        return {"unreadable": f"{_described(details)}: {type(error).__name__}"}


class _Details:
    """Copies the details of one entry, within its limits."""

    __slots__ = ("_characters", "_secrets", "_values")

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets = secrets
        self._values = MAX_VALUES
        self._characters = MAX_TEXTS

    def object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        """Return an object without its secrets."""
        copied: dict[str, Any] = {}
        named = "value" in value and names_secret(value)
        secrets = self._secrets
        for key, item in value.items():
            if self._values <= 0:
                copied["…"] = f"{len(value) - len(copied)} more"
                break
            self._values -= 1
            name = key if type(key) is str and len(key) <= _SHORT else _name(key)
            is_marked = name in secrets or (named and name == "value")
            shown_as = "secret" if is_marked else name
            is_secret = secrecy(shown_as) > 0 and is_hidden(shown_as, item)  # most names hide nothing
            copied[name] = MASK if is_secret else self._value(item, depth + 1)
        return copied

    def _list(self, items: Collection[Any], depth: int) -> list[Any]:
        copied: list[Any] = []
        for item in items:
            if self._values <= 0:
                copied.append(f"… {len(items) - len(copied)} more")
                break
            self._values -= 1
            copied.append(self._value(item, depth))
        return copied

    def _value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str and len(value) <= _SHORT <= self._characters:
            self._characters -= len(value)
            return value
        if isinstance(value, str):
            return self._text(value if kind is str else str.__str__(value))
        if value is None or kind is bool:
            return value
        if isinstance(value, int):
            return int.__int__(value) if -_WORD <= value <= _WORD else f"<whole number of {value.bit_length()} bits>"
        if isinstance(value, float):
            return float.__float__(value) if isfinite(value) else f"<{float.__float__(value)}>"
        if isinstance(value, _NESTED):
            if depth > MAX_NESTED:
                return f"{_described(value)} nested too deeply"
            return self.object(value, depth) if isinstance(value, Mapping) else self._list(value, depth + 1)
        if isinstance(value, PurePath):
            return self._text(str(value))
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, bytes | bytearray):
            return f"<{len(value)} bytes>"
        return _described(value)

    def _text(self, text: str) -> str:
        length = len(text)
        if length > MAX_TEXT or length > self._characters:
            text = _cut(text, min(MAX_TEXT, self._characters))
            length = len(text)
        self._characters = max(0, self._characters - length)
        return text


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"


def _described(value: object) -> str:
    return f"<{type(value).__name__[:_SHORT]}>"


def _name(key: Any) -> str:
    if isinstance(key, str):
        return _cut(str.__str__(key), _SHORT)
    return str(key) if isinstance(key, int) and abs(key) <= _WORD else _described(key)
