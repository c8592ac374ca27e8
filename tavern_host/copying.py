"""Copies values that cross a plugin boundary, so that neither side can change what the other one holds.

Made for wire values (`contracts.wire`); anything else is copied as `copy.deepcopy` does.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pydantic import BaseModel

SHARED = frozenset({type(None), bool, int, float, str, bytes, datetime})
"""Types whose values cannot be changed."""

_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes.__bytes__),
)
"""What makes a plain value of one whose type somebody derived; its own methods are not asked."""


def duplicate(value: Any) -> Any:
    """Return a deep copy of a wire value, however deep it is, with the same parts shared as in the value.

    Values of types derived from dict, list, tuple, str, int, float or bytes become plain ones; a model stays
    of its class and is not validated again. Raises what `copy.deepcopy` raises of a value that is none of these.
    """
    return _duplicate(value, {})


def _duplicate(value: Any, made: dict[int, Any]) -> Any:
    """Copy a value; `made` are the copies so far by the identity of what they are copies of."""
    root = [value]
    waiting: list[Any] = [root]
    while waiting:
        part = waiting.pop()
        for key, item in part.items() if type(part) is dict else enumerate(part):
            if type(item) in SHARED:
                continue
            copied = made.get(id(item))
            if copied is None:
                copied = made[id(item)] = _shallow(item, waiting, made)
            part[key] = copied
    return root[0]


def _shallow(item: Any, waiting: list[Any], made: dict[int, Any]) -> Any:
    """Return a copy of one value; of its parts, those that can hold others go to `waiting`."""
    kind = type(item)
    if kind is dict or kind is list:
        parts: Any = item.copy()
    elif isinstance(item, BaseModel):
        return _model(item, waiting)
    elif isinstance(item, dict):
        parts = {_plain(key): value for key, value in dict.items(item)}
    elif isinstance(item, list):
        parts = list(list.__iter__(item))
    elif isinstance(item, tuple):
        return tuple(_duplicate(value, made) for value in tuple.__iter__(item))
    else:
        return _plain(item)
    waiting.append(parts)
    return parts


def _model(item: BaseModel, waiting: list[Any]) -> BaseModel:
    """Return a copy of a model, as `BaseModel.__copy__` makes it; its own class may say otherwise, and is not asked.

    Which fields were set stays one set for both: nothing in a model changes it.
    """
    copied = object.__new__(type(item))
    held, extra, private = item.__dict__.copy(), item.__pydantic_extra__, item.__pydantic_private__
    waiting.append(held)
    if extra is not None:
        extra = extra.copy()
        if extra:
            waiting.append(extra)
    object.__setattr__(copied, "__dict__", held)
    object.__setattr__(copied, "__pydantic_extra__", extra)
    object.__setattr__(copied, "__pydantic_fields_set__", item.__pydantic_fields_set__)
    object.__setattr__(copied, "__pydantic_private__", private.copy() if private else private)
    return copied


def _plain(value: Any) -> Any:
    if type(value) in SHARED or isinstance(value, enum.Enum):
        return value
    for base, plain in _PLAIN:
        if isinstance(value, base):
            return plain(value)
    return copy.deepcopy(value)
