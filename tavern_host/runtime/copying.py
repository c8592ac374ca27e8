"""Copies values that cross a plugin boundary, so that neither side can change what the other one holds.

Made for wire values (`contracts.wire`); anything else is copied as `copy.deepcopy` does.
"""

from __future__ import annotations

import asyncio
import copy
import enum
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from tavern_host.contracts.errors import TavernError, describe
from tavern_host.contracts.wire import SCALARS, ImmutableJson

SHARED = frozenset(SCALARS)
"""Types whose values cannot be changed."""

PARTS = 1000
"""How many dicts, lists and models are copied before others get their turn."""

_Made = dict[int, Any]
"""The copies so far, by the identity of what they are copies of; `kept` are those, so that no other gets theirs."""
_Waiting = list[tuple[Any, Iterator[tuple[Any, Any]]]]
"""Copied dicts and lists, with their items by key or index: those that are not looked at yet."""


def duplicate(value: Any) -> Any:
    """Return a deep copy of a wire value, of any depth; parts that the value shares, its copy shares.

    Values of types derived from dict, list, tuple, str, int, float or bytes become plain ones; a model stays
    of its class and is not validated again. A frozen model in which nothing can be changed is not copied, nor is
    `ImmutableJson`.
    Raises what `copy.deepcopy` raises of a value that is none of these.
    """
    return value if type(value) in SHARED else _whole(value, {}, [])


def _whole(value: Any, made: _Made, kept: list[Any]) -> Any:
    """Return a copy of a value with all that it holds."""
    copied = [value]
    _advance([(copied, enumerate(copied))], made, kept, -1)
    return copied[0]


def _advance(waiting: _Waiting, made: _Made, kept: list[Any], most: int) -> None:
    """Copy what waits, or about `most` dicts, lists and models of it; below 0, all."""
    while waiting and most:
        part, items = waiting.pop()
        for key, item in items:
            kind = type(item)
            if kind in SHARED:
                continue
            copied = made.get(id(item))
            if copied is None:
                if kind is dict or kind is list:  # most values
                    copied = item.copy()
                    for inner in copied.values() if kind is dict else copied:
                        if type(inner) not in SHARED:
                            waiting.append((copied, iter(copied.items()) if kind is dict else enumerate(copied)))
                            break
                else:
                    copied = _shallow(item, waiting, made, kept)
                made[id(item)] = copied
                kept.append(item)
            part[key] = copied
            most -= 1
            if not most:
                waiting.append((part, items))
                break


class Unfinished:
    """The copy of a large value, which is made a part at a time. `refusal` says what its failure becomes."""

    __slots__ = ("_copied", "_kept", "_made", "_waiting", "refusal")

    def __init__(self, copied: list[Any], waiting: _Waiting, made: _Made, kept: list[Any]) -> None:
        self._copied = copied
        self._waiting = waiting
        self._made = made
        self._kept = kept
        self.refusal: Callable[[Exception], Exception] | None = None

    async def whole(self) -> Any:
        """Return the copy when it is made; others get their turn meanwhile."""
        try:
            while self._waiting:
                await asyncio.sleep(0)
                _advance(self._waiting, self._made, self._kept, PARTS)
        except Exception as error:
            raise error if self.refusal is None else self.refusal(error) from None
        return self._copied[0]


def duplicate_or_begin(value: Any) -> Any:
    """Return the copy that `duplicate` makes, or of a large value an `Unfinished` one."""
    if type(value) in SHARED:
        return value
    copied = [value]
    made: _Made = {}
    kept: list[Any] = []
    waiting: _Waiting = [(copied, enumerate(copied))]
    _advance(waiting, made, kept, PARTS)
    return Unfinished(copied, waiting, made, kept) if waiting else copied[0]


def _shallow(item: Any, waiting: _Waiting, made: _Made, kept: list[Any]) -> Any:
    """Return a copy of one value that is no plain dict or list; dicts and lists whose items have to be copied go to
    `waiting`."""
    copied: Any
    if isinstance(item, BaseModel):
        return item if _is_fixed(item, 3) else _model(item, waiting)
    if isinstance(item, ImmutableJson):
        return item
    if isinstance(item, dict):
        copied = {_plain(key): inner for key, inner in dict.items(item)}
        waiting.append((copied, iter(copied.items())))
    elif isinstance(item, list):
        copied = list(list.__iter__(item))
        waiting.append((copied, enumerate(copied)))
    elif isinstance(item, tuple):  # its items cannot be set later
        copied = tuple(_whole(inner, made, kept) for inner in tuple.__iter__(item))
    else:
        copied = _plain(item)
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
    waiting.append((values, iter(values.items())))
    if extra:
        more = copied.__pydantic_extra__ or {}
        waiting.append((more, iter(more.items())))
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
    others = [part for part in parts if type(part) not in SHARED]
    return not others or (levels > 0 and all(_is_fixed(part, levels - 1) for part in others))


def _plain(value: Any) -> Any:
    """Return a plain value for one of a derived type, whose own methods are not called."""
    if type(value) in SHARED or isinstance(value, enum.Enum):
        return value
    for base in (str, int, float, bytes):
        if isinstance(value, base):
            return getattr(base, f"__{base.__name__}__")(value)
    return copy.deepcopy(value)


def as_it_is(value: Any) -> Any:
    """Return a value that need not be copied."""
    return value


def copier(kind: type[TavernError], what: str, *, whole: bool) -> Callable[[Any], Any]:
    """Return a function that copies a value; where it need not be `whole`, a large one's copy is `Unfinished`."""
    begin = duplicate if whole else duplicate_or_begin

    def refusal(error: Exception) -> Exception:
        return kind(f"{what} cannot be copied: {describe(error)}")

    def copied(value: Any) -> Any:
        try:
            made = begin(value)
        except Exception as error:
            raise refusal(error) from None
        if type(made) is Unfinished:
            made.refusal = refusal
        return made

    return copied
