"""Copies values that cross a plugin boundary, so that neither side can change what the other one holds.

Made for wire values (`contracts.wire`); anything else is copied as `copy.deepcopy` does.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from tavern_host.contracts.wire import SCALARS

SHARED = frozenset(SCALARS)
"""Types whose values cannot be changed."""

_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes.__bytes__),
)
"""What makes a plain value of one whose type somebody derived; its own methods are not asked."""

_new = object.__new__
# What a model keeps beside its fields. `object.__setattr__` would look each of them up by name every time.
_set_held = vars(BaseModel)["__dict__"].__set__
_set_fields = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private = vars(BaseModel)["__pydantic_private__"].__set__


def duplicate(value: Any) -> Any:
    """Return a deep copy of a wire value, however deep it is, with the same parts shared as in the value.

    Values of types derived from dict, list, tuple, str, int, float or bytes become plain ones; a model stays
    of its class and is not validated again. A frozen model that holds nothing that can be changed is not copied.
    Raises what `copy.deepcopy` raises of a value that is none of these.
    """
    return value if type(value) in SHARED else _duplicate(value, {})


_Made = dict[int, Any]
"""The copies so far, by the identity of what they are copies of."""
_Waiting = list[tuple[Any, Iterable[Any]]]
"""Dicts and lists that were copied themselves, and the keys or indices in them of what may still have to be."""


def _duplicate(value: Any, made: _Made) -> Any:
    waiting: _Waiting = []
    copied = _shallow(value, waiting, made)
    while waiting:
        part, keys = waiting.pop()
        for key in keys:
            item = part[key]
            if type(item) not in SHARED:
                known = made.get(id(item))
                part[key] = _shallow(item, waiting, made) if known is None else known
    return copied


def _shallow(item: Any, waiting: _Waiting, made: _Made) -> Any:
    """Return a copy of one value; what it holds that may have to be copied goes to `waiting`."""
    kind = type(item)
    if kind is dict or kind is list:
        copied = item.copy()
        for inner in copied.values() if kind is dict else copied:
            if type(inner) not in SHARED:
                waiting.append((copied, copied if kind is dict else range(len(copied))))
                break
    elif isinstance(item, BaseModel):
        copied = _model(item, waiting, made)
    else:
        copied = _other(item, waiting, made)
    made[id(item)] = copied
    return copied


def _other(item: Any, waiting: _Waiting, made: _Made) -> Any:
    """Return a plain copy of what is neither a model nor a plain dict or list."""
    if isinstance(item, dict):
        named = {_plain(key): value for key, value in dict.items(item)}
        waiting.append((named, named))
        return named
    if isinstance(item, list):
        parts = list(list.__iter__(item))
        waiting.append((parts, range(len(parts))))
        return parts
    if isinstance(item, tuple):
        return tuple(
            value if type(value) in SHARED else made.get(id(value)) or _duplicate(value, made)
            for value in tuple.__iter__(item)
        )
    return _plain(item)


def _model(item: BaseModel, waiting: _Waiting, made: _Made) -> BaseModel:
    """Return a copy of a model, as `BaseModel.__copy__` makes it; its own class may say otherwise, and is not asked.

    What a field holds is looked at, whatever its type says. Which fields were set stays one set for both: nothing in
    a model changes it.
    """
    held, extra, private = item.__dict__, item.__pydantic_extra__, item.__pydantic_private__
    own: dict[str, Any] | None = None
    for name, value in held.items():
        kind = type(value)
        if kind in SHARED:
            continue
        if own is None:
            own = held.copy()
        if kind is not dict and kind is not list:
            waiting.append((own, (name,)))
        elif value:
            known = made.get(id(value))
            own[name] = _shallow(value, waiting, made) if known is None else known
        else:
            own[name] = kind()
    if own is None:
        if extra is None and private is None and item.model_config.get("frozen"):
            return item
        own = held.copy()
    if extra is not None:
        extra = extra.copy()
        if extra:
            waiting.append((extra, extra))
    copied: BaseModel = _new(type(item))
    _set_held(copied, own)
    _set_fields(copied, item.__pydantic_fields_set__)
    _set_extra(copied, extra)
    _set_private(copied, private.copy() if private else private)
    return copied


def _plain(value: Any) -> Any:
    if type(value) in SHARED or isinstance(value, enum.Enum):
        return value
    for base, plain in _PLAIN:
        if isinstance(value, base):
            return plain(value)
    return copy.deepcopy(value)
