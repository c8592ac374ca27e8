"""Copies values that cross a plugin boundary, so that neither side can change what the other one holds.

Made for wire values (`contracts.wire`); anything else is copied as `copy.deepcopy` does.
"""

from __future__ import annotations

import copy
import enum
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

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
    """Return a deep copy of a wire value, however deep it is, with the same parts shared as in the value, where they
    hold anything.

    Values of types derived from dict, list, tuple, str, int, float or bytes become plain ones; a model stays
    of its class and is not validated again. A frozen model that holds nothing that can be changed is not copied.
    Raises what `copy.deepcopy` raises of a value that is none of these.
    """
    kind = type(value)
    if kind in SHARED:
        return value
    waiting: _Waiting = []
    made: _Made = {}
    copier = kind.__dict__.get(_COPIER)
    if copier is None:
        copied = _shallow(value, waiting, made)
    else:
        made[id(value)] = copied = copier(value, waiting, made)
    if waiting:
        _fill(waiting, made)
    return copied


_Made = dict[int, Any]
"""The copies so far, by the identity of what they are copies of."""
_Waiting = list[tuple[Any, Iterable[Any]]]
"""Dicts and lists that were copied themselves, and the keys or indices in them of what may still have to be."""


def _fill(waiting: _Waiting, made: _Made) -> None:
    """Put copies into everything that waits for them."""
    while waiting:
        part, keys = waiting.pop()
        for key in keys:
            item = part[key]
            if type(item) not in SHARED:
                known = made.get(id(item))
                part[key] = _shallow(item, waiting, made) if known is None else known


def _shallow(item: Any, waiting: _Waiting, made: _Made) -> Any:
    """Return a copy of one value; what it holds that may have to be copied goes to `waiting`."""
    kind = type(item)
    if kind is dict:
        made[id(item)] = copied = item.copy()
        for inner in copied.values():
            if type(inner) not in SHARED:
                waiting.append((copied, copied))
                break
        return copied
    if kind is list:
        made[id(item)] = copied = item.copy()
        for inner in copied:
            if type(inner) not in SHARED:
                waiting.append((copied, range(len(copied))))
                break
        return copied
    copier = kind.__dict__.get(_COPIER)
    if copier is not None:
        copied = copier(item, waiting, made)
    elif isinstance(item, BaseModel):
        copied = _copier(kind)(item, waiting, made)
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
        return tuple(value if type(value) in SHARED else _within_tuple(value, made) for value in tuple.__iter__(item))
    return _plain(item)


def _within_tuple(value: Any, made: _Made) -> Any:
    """Return a whole copy of a part of a tuple, which takes no copies later."""
    known = made.get(id(value))
    if known is None:
        waiting: _Waiting = []
        known = _shallow(value, waiting, made)
        _fill(waiting, made)
    return known


# --- models -------------------------------------------------------------------------------------------

_COPIER = "__tavern_copier__"
"""Where a class of models keeps what copies its models, so that it goes with the class."""


_Copier = Callable[[Any, _Waiting, _Made], Any]


def _copier(kind: type[BaseModel]) -> _Copier:
    """Write what copies the models of a class as `_model` does, at a fraction of its cost: field by field, since code
    that models of all classes go through is slow for each of them.

    What a field holds is looked at, whatever its type says; where the type is one of scalars and the value is none,
    all is left to `_model`.
    """
    fields = kind.model_fields
    scalars = [name for name, field in fields.items() if _is_scalar(field.annotation)]
    others = [name for name in fields if name not in scalars]
    odd = "".join(f" or type(held[{name!r}]) not in SHARED" for name in scalars)
    lines = [
        "held = item.__dict__",
        "extra, private = item.__pydantic_extra__, item.__pydantic_private__",
        f"if len(held) != {len(fields)} or extra is not None or private is not None{odd}:",
        "    return _model(item, waiting)",
    ]
    if kind.model_config.get("frozen"):
        is_unchanging = " and ".join(f"type(held[{name!r}]) in SHARED" for name in others) or "True"
        lines += [f"if {is_unchanging}:", "    return item"]
    lines.append("own = held.copy()")
    for name in others:
        lines += [
            f"value = own[{name!r}]",
            "if type(value) is list or type(value) is dict:",
            "    if not value:",
            f"        own[{name!r}] = value.copy()",
            "    elif (known := made.get(id(value))) is not None:",
            f"        own[{name!r}] = known",
            "    elif type(value) is dict and SHARED.issuperset(map(type, value.values())):",
            f"        own[{name!r}] = made[id(value)] = value.copy()",
            "    else:",
            f"        own[{name!r}] = _shallow(value, waiting, made)",
            "elif type(value) not in SHARED:",
            f"    waiting.append((own, ({name!r},)))",
        ]
    lines += [
        "copied = _new(_kind)",
        "_set_held(copied, own)",
        "_set_fields(copied, item.__pydantic_fields_set__)",
        "_set_extra(copied, None)",
        "_set_private(copied, None)",
        "return copied",
    ]
    names: dict[str, Any] = {**globals(), "_kind": kind}
    exec("def copier(item, waiting, made):\n" + "".join(f"    {line}\n" for line in lines), names)
    copier: _Copier = names["copier"]
    setattr(kind, _COPIER, copier)
    return copier


def _is_scalar(annotation: Any) -> bool:
    """Return whether the values of a type hold no others."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_scalar(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return all(map(_is_scalar, typing.get_args(annotation)))
    return origin is Literal or annotation in SHARED or annotation is None


def _model(item: BaseModel, waiting: _Waiting) -> BaseModel:
    """Return a copy of a model, as `BaseModel.__copy__` makes it; its own class may say otherwise, and is not asked.

    Which fields were set stays one set for both: nothing in a model changes it.
    """
    held, extra, private = item.__dict__.copy(), item.__pydantic_extra__, item.__pydantic_private__
    waiting.append((held, held))
    if extra is not None:
        extra = extra.copy()
        waiting.append((extra, extra))
    copied: BaseModel = _new(type(item))
    _set_held(copied, held)
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
