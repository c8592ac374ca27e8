"""Copies the payloads of events, and adds up what memory they take, roughly.

A copy is plain JSON, whatever the original was made of, and shares nothing with it that can be changed. Every event
passes through here: what most values are is looked at in the loops themselves.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue

MAX_NESTED = 200
"""How deeply lists and objects in a payload may be nested."""

_OBJECT_BYTES, _LIST_BYTES, _ITEM_BYTES = 200, 60, 60
"""What an object and a list take beside their items, and an item in one, roughly."""
_SHORT = 200
"""Up to which length a text counts as an item like any other."""
_WORD, _MAX_BITS = 2**63 - 1, 4096


def copied_object(value: Mapping[str, Any], depth: int = 0) -> tuple[dict[str, JsonValue], int]:
    """Return a copy of an object that is `depth` deep in another, and its size.

    Raises `TypeError` or `ValueError` where something in it is no JSON, else what its own methods raise.
    """
    if depth > MAX_NESTED:
        raise ValueError(f"it is nested more than {MAX_NESTED} deep")
    if type(value) is not dict:
        return _odd_object(value, depth)
    copied = value.copy()
    size = _OBJECT_BYTES + _ITEM_BYTES * len(copied)
    for key, item in copied.items():
        if type(key) is not str or len(key) > _SHORT:
            return _odd_object(copied, depth)
        kind = type(item)
        if kind is str:
            if len(item) > _SHORT:
                size += sys.getsizeof(item)
        elif kind is dict:
            copied[key], more = copied_object(item, depth + 1)
            size += more
        elif kind is not bool and (kind is not int or not -_WORD <= item <= _WORD):
            copied[key], more = _copied(item, depth)
            size += more
    return copied, size


def _odd_object(value: Mapping[str, Any], depth: int) -> tuple[dict[str, JsonValue], int]:
    """As `copied_object`, for what is no plain object or has keys that are no plain short texts."""
    copied: dict[str, JsonValue] = {}
    size = _OBJECT_BYTES
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"a key is a {type(key).__name__}, not a text")
        plain = str.__str__(key)
        copied[plain], more = _copied(item, depth)
        size += _ITEM_BYTES + more + (sys.getsizeof(plain) if len(plain) > _SHORT else 0)
    return copied, size


def _copied_list(items: Iterable[Any], depth: int) -> tuple[list[JsonValue], int]:
    if depth > MAX_NESTED:
        raise ValueError(f"it is nested more than {MAX_NESTED} deep")
    copied = list(items)
    size = _LIST_BYTES + _ITEM_BYTES * len(copied)
    for index, item in enumerate(copied):
        kind = type(item)
        if kind is str:
            if len(item) > _SHORT:
                size += sys.getsizeof(item)
        elif kind is not bool and (kind is not int or not -_WORD <= item <= _WORD):
            copied[index], more = _copied(item, depth)
            size += more
    return copied, size


def _copied(value: Any, depth: int) -> tuple[JsonValue, int]:
    """Return a copy of any value; of a subclass of a JSON type, such as a member of an enum, what it stands for."""
    if value is None or isinstance(value, bool):
        return value, 0
    if isinstance(value, dict):
        return copied_object(value, depth + 1)
    if isinstance(value, list | tuple):
        return _copied_list(value, depth + 1)
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
    raise TypeError(f"it has a {type(value).__name__}")
