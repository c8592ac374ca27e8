"""Copies values that cross a plugin boundary, so that neither side can change what the other one holds.

Made for wire values (`contracts.wire`); anything else is copied as `copy.deepcopy` does.
"""

from __future__ import annotations

import asyncio
import copy
import enum
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from tavern_host.contracts.wire import SCALARS

SHARED = frozenset(SCALARS)
"""Types whose values cannot be changed."""

PARTS = 1000
"""How many dicts, lists and models are copied before others get their turn."""

_Made = dict[int, Any]
"""The copies so far, by the identity of what they are copies of."""
_Waiting = list[tuple[Any, Iterable[Any]]]
"""Copied dicts and lists, with the keys or indices of what has to be copied in them."""


def duplicate(value: Any) -> Any:
    """Return a deep copy of a wire value, of any depth; parts that the value shares, its copy shares.

    Values of types derived from dict, list, tuple, str, int, float or bytes become plain ones; a model stays
    of its class and is not validated again. A frozen model in which nothing can be changed is not copied.
    Raises what `copy.deepcopy` raises of a value that is none of these.
    """
    if type(value) in SHARED:
        return value
    return _whole(value, {})


def _whole(value: Any, made: _Made) -> Any:
    """Return a copy of a value with all that it holds."""
    waiting: _Waiting = []
    copied = _shallow(value, waiting, made)
    _advance(waiting, made, None)
    return copied


def _advance(waiting: _Waiting, made: _Made, most: int | None) -> None:
    """Copy what waits, or about `most` dicts, lists and models of it."""
    left = -1 if most is None else most
    while waiting and left:
        part, keys = waiting.pop()
        keys = iter(keys)
        for key in keys:
            item = part[key]
            if type(item) not in SHARED:
                part[key] = made[id(item)] if id(item) in made else _shallow(item, waiting, made)
                left -= 1
                if not left:
                    waiting.append((part, keys))
                    break


class Unfinished:
    """The copy of a large value, which is made a part at a time. `refusal` says what its failure becomes."""

    __slots__ = ("_copied", "_made", "_waiting", "refusal")

    def __init__(self, copied: Any, waiting: _Waiting, made: _Made) -> None:
        self._copied = copied
        self._waiting = waiting
        self._made = made
        self.refusal: Callable[[Exception], Exception] | None = None

    async def whole(self) -> Any:
        """Return the copy when it is made; others get their turn meanwhile."""
        try:
            while self._waiting:
                await asyncio.sleep(0)
                _advance(self._waiting, self._made, PARTS)
        except Exception as error:
            raise error if self.refusal is None else self.refusal(error) from None
        return self._copied


def duplicate_or_begin(value: Any) -> Any:
    """Return what `duplicate` does, or of a large value an `Unfinished` copy."""
    if type(value) in SHARED:
        return value
    made: _Made = {}
    waiting: _Waiting = []
    copied = _shallow(value, waiting, made)
    _advance(waiting, made, PARTS)
    return Unfinished(copied, waiting, made) if waiting else copied


def _shallow(item: Any, waiting: _Waiting, made: _Made) -> Any:
    """Return a copy of one value; the dicts and lists whose items have to be copied go to `waiting`."""
    copied: Any
    kind = type(item)
    if kind is dict:
        copied = item.copy()
        if not SHARED.issuperset(map(type, copied.values())):
            waiting.append((copied, copied))
    elif isinstance(item, BaseModel):
        if _is_fixed(item, 3):
            return item
        copied = _model(item, waiting)
    elif isinstance(item, dict):
        copied = {_plain(key): inner for key, inner in dict.items(item)}
        waiting.append((copied, copied))
    elif isinstance(item, list):
        copied = list(list.__iter__(item))
        if not SHARED.issuperset(map(type, copied)):
            waiting.append((copied, range(len(copied))))
    elif isinstance(item, tuple):  # its items cannot be set later
        copied = tuple(made[id(i)] if id(i) in made else _whole(i, made) for i in tuple.__iter__(item))
    else:
        copied = _plain(item)
    made[id(item)] = copied
    made[~id(item)] = item  # as long as it is there, no other has its identity
    return copied


def _model(item: BaseModel, waiting: _Waiting) -> BaseModel:
    """Return a copy of a model, whatever its class says of copies."""
    extra = item.__pydantic_extra__
    copied = object.__new__(type(item))
    values = item.__dict__.copy()
    private = item.__pydantic_private__
    object.__setattr__(copied, "__dict__", values)
    object.__setattr__(copied, "__pydantic_fields_set__", item.__pydantic_fields_set__)  # nothing in a model changes it
    object.__setattr__(copied, "__pydantic_extra__", extra if extra is None else extra.copy())
    object.__setattr__(copied, "__pydantic_private__", private if private is None else copy.copy(private))
    waiting.append((values, values))
    if copied.__pydantic_extra__:
        waiting.append((copied.__pydantic_extra__, copied.__pydantic_extra__))
    return copied


def _is_fixed(value: Any, levels: int) -> bool:
    """Return whether nothing in a value can be changed, as far as that many levels show."""
    kind = type(value)
    if kind is tuple:
        parts = value
    elif hasattr(kind, "__pydantic_fields__") and value.model_config.get("frozen"):  # quicker than isinstance
        if value.__pydantic_extra__ is not None or value.__pydantic_private__:
            return False
        parts = value.__dict__.values()
    else:
        return isinstance(value, enum.Enum)
    return all(type(part) in SHARED or (levels and _is_fixed(part, levels - 1)) for part in parts)


def _plain(value: Any) -> Any:
    """Return a plain value for one of a derived type, whose own methods are not called."""
    if type(value) in SHARED or isinstance(value, enum.Enum):
        return value
    for base in (str, int, float, bytes):
        if isinstance(value, base):
            return getattr(base, f"__{base.__name__}__")(value)
    return copy.deepcopy(value)
