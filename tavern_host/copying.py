"""Copies values that cross a plugin boundary, so that neither side can change what the other one holds.

Made for wire values (`contracts.wire`); anything else is copied as `copy.deepcopy` does.
"""

from __future__ import annotations

import copy
import enum
import types
import typing
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

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

_new, _set = object.__new__, object.__setattr__  # models are frozen
# What a model keeps beside its fields. `object.__setattr__` would look each of them up by name every time.
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


_Part = tuple[Any, Iterable[Any]]
"""A dict or list that was copied itself, and the keys or indices in it of what may still have to be."""


def _duplicate(value: Any, made: dict[int, Any]) -> Any:
    """Copy a value; `made` are the copies so far by the identity of what they are copies of."""
    waiting: list[_Part] = []
    copied = _shallow(value, waiting, made)
    while waiting:
        part, keys = waiting.pop()
        for key in keys:
            item = part[key]
            if type(item) not in SHARED:
                part[key] = made.get(id(item)) or _shallow(item, waiting, made)
    return copied


def _shallow(item: Any, waiting: list[_Part], made: dict[int, Any]) -> Any:
    """Return a copy of one value; what it holds that may have to be copied goes to `waiting`."""
    kind = type(item)
    if kind is dict:
        copied = item.copy()
        for value in copied.values():
            if type(value) not in SHARED:
                waiting.append((copied, copied))
                break
    elif kind is list:
        copied = item.copy()
        for value in copied:
            if type(value) not in SHARED:
                waiting.append((copied, range(len(copied))))
                break
    elif isinstance(item, BaseModel):
        copied = _model(item, waiting)
    else:
        copied = _other(item, waiting, made)
    made[id(item)] = copied
    return copied


def _other(item: Any, waiting: list[_Part], made: dict[int, Any]) -> Any:
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
        return tuple(_duplicate(value, made) for value in tuple.__iter__(item))
    return _plain(item)


# --- models -------------------------------------------------------------------------------------------

_FORM = "__tavern_form__"
"""Where a class of models keeps its `_Form`, so that it goes with it."""


class _Form(NamedTuple):
    """What copying the models of one class asks: which of its fields may hold something that can be changed, how many
    fields there are, and whether the model itself cannot be changed."""

    kind: type[BaseModel]
    changeable: tuple[str, ...]
    count: int
    is_frozen: bool


def _form(kind: type[BaseModel]) -> _Form:
    fields = kind.model_fields
    changeable = tuple(name for name, field in fields.items() if not _is_scalar(field.annotation))
    form = _Form(kind, changeable, len(fields), is_frozen=kind.model_config.get("frozen") is True)
    setattr(kind, _FORM, form)
    return form


def _is_scalar(annotation: Any) -> bool:
    """Return whether the values of a type hold no others."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_scalar(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return all(map(_is_scalar, typing.get_args(annotation)))
    is_enum = isinstance(annotation, type) and issubclass(annotation, enum.Enum)
    return is_enum or origin is Literal or annotation in SCALARS or annotation is None


def _model(item: BaseModel, waiting: list[_Part]) -> BaseModel:
    """Return a copy of a model, as `BaseModel.__copy__` makes it; its own class may say otherwise, and is not asked.

    Which fields were set stays one set for both: nothing in a model changes it.
    """
    kind = type(item)
    form: _Form | None = getattr(kind, _FORM, None)
    if form is None or form.kind is not kind:
        form = _form(kind)
    _, names, count, is_frozen = form
    held, extra, private = item.__dict__, item.__pydantic_extra__, item.__pydantic_private__
    changeable = [name for name in (names if len(held) == count else held) if type(held[name]) not in SHARED]
    if not changeable and is_frozen and not extra and not private:
        return item
    held = held.copy()
    if changeable:
        waiting.append((held, changeable))
    if extra is not None:
        extra = extra.copy()
        waiting.append((extra, extra))
    copied: BaseModel = _new(kind)
    _set(copied, "__dict__", held)
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
