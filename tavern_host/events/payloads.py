"""Copies the payloads of events, and estimates the memory that they take.

A copy is plain JSON, whatever the original was made of, and shares nothing mutable with it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

MAX_NESTED = 200
"""How deeply lists and objects in a payload may be nested."""

_OBJECT_BYTES, _LIST_BYTES, _ITEM_BYTES = 200, 60, 60
"""What an object and a list take beside their items, and an item in one, roughly."""
_SHORT = 200
"""Up to which length a text counts as an item like any other."""
_MAX_BITS = 4096
_LARGE = 2**_MAX_BITS
_PLAIN = frozenset((int, float, bool, type(None)))


def _are_small(value: list[Any] | tuple[Any, ...], kinds: set[type]) -> bool:
    """Return whether plain numbers need no look at each: a stream brings very many of them."""
    numbers = value if type(None) not in kinds else [item for item in value if item is not None]
    if int in kinds and not -_LARGE < min(numbers) <= max(numbers) < _LARGE:
        return False
    return float not in kinds or all(map(math.isfinite, numbers))


def copied_object(value: Mapping[str, Any], depth: int = 0) -> tuple[dict[str, JsonValue], int]:
    """Return a copy of an object that is `depth` deep in another, and its size in bytes.

    Raises `TypeError` or `ValueError` where something in it is no JSON, else what its own methods raise.
    """
    if depth > MAX_NESTED:
        raise ValueError(f"it is nested more than {MAX_NESTED} deep")
    copied: dict[str, JsonValue] = {}
    size = _OBJECT_BYTES
    for key, item in value.items():
        if type(key) is not str:
            if not isinstance(key, str):
                raise TypeError(f"a key is a {type(key).__name__}, not a text")
            key = str.__str__(key)
        size += _ITEM_BYTES if len(key) <= _SHORT else _ITEM_BYTES + sys.getsizeof(key)
        if type(item) is str and len(item) <= _SHORT:
            copied[key] = item
        else:
            copied[key], more = _copied(item, depth)
            size += more
    return copied, size


def _copied(value: Any, depth: int) -> tuple[JsonValue, int]:
    """Return a copy of any value; of a subclass of a JSON type, such as a member of an enum, what it stands for."""
    kind = type(value)
    if kind is bool or value is None:
        return value, 0
    if kind is dict:
        return copied_object(value, depth + 1)
    if isinstance(value, str):
        text = str.__str__(value)
        return text, (sys.getsizeof(text) if len(text) > _SHORT else 0)
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise ValueError(f"a whole number of {value.bit_length()} bits is too large")
        return int.__int__(value), 0
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not finite")
        return float.__float__(value), 0
    if isinstance(value, dict):
        return copied_object(value, depth + 1)
    if isinstance(value, list | tuple):
        if depth >= MAX_NESTED:
            raise ValueError(f"it is nested more than {MAX_NESTED} deep")
        kinds = set(map(type, value))
        if kinds <= _PLAIN and _are_small(value, kinds):
            return list(value), _LIST_BYTES + _ITEM_BYTES * len(value)
        items = [_copied(item, depth + 1) for item in value]
        return [item for item, _ in items], _LIST_BYTES + sum(_ITEM_BYTES + more for _, more in items)
    raise TypeError(f"it has a {type(value).__name__}")
