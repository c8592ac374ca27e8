"""Which values may cross a plugin boundary, and the frozen model that all contracts are made of.

`carried` checks values, `wire_problem` annotations: a test asks it about every hook and service method.
"""

from __future__ import annotations

import enum
import math
import re
import types
import typing
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

_SURROGATE = re.compile("[\ud800-\udfff]")

SCALARS = (type(None), bool, int, float, str, bytes, datetime)

INT_BITS = 64
"""A whole number on the wire has this many bits, one of them for its sign."""

LIMIT = 1 << (INT_BITS - 1)

_PLAIN = frozenset((type(None), bool, bytes))

MAX_LEVELS = 100
"""How deeply lists and objects may be nested in one value."""

Path = tuple[str | int, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)


class ImmutableJson:
    """JSON that nobody can change, which crosses boundaries within this process as it is.

    Anywhere else it is what `plain` returns: where it is encoded or kept, for third parties, and for nodes whose traits
    do not name the input (`NodeTraits.takes_immutable`).
    """

    __slots__ = ()

    def plain(self) -> Any:
        """Return it as lists and objects that are the caller's own."""
        raise NotImplementedError


class WireError(ValueError):
    """A value may not cross a plugin boundary, or not as what it is declared to be.

    `path` says where in the value, `reason` what was expected there and what came.
    """

    def __init__(self, reason: str, path: Path = ()) -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason, path)

    def __str__(self) -> str:  # made when somebody reads it: unions of the codec raise and drop thousands
        return f"{self.place}: {self.reason}" if self.path else self.reason

    @property
    def place(self) -> str:
        """The place in the value: `.inputs['tone'][2]`; nothing for the value itself."""
        return "".join(f".{p}" if isinstance(p, str) and p.isidentifier() else f"[{p!r}]" for p in self.path)


def without_surrogates(text: str) -> str:
    """Return `text` with lone surrogates, which no wire value may hold, as U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-32-le")  # the quickest look at every character
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def wire_value(value: Any) -> Any:
    """Return a value that every wire can carry: this one, or a copy where it has lone surrogates (now U+FFFD), or where
    some of it is `ImmutableJson` (now plain).

    Raises `WireError` with the place of anything else: an int beyond 64 bits, a number that is not finite, a datetime
    without its time zone, more than `MAX_LEVELS` levels, a key that is no str, an object of no wire type.
    """
    return value if _is_plain(value) else _wire_value(value, ())


def _is_plain(value: Any) -> bool:
    """Return whether a value can be carried as it is. Quick, level by level; False for what needs a closer look."""
    level: Iterable[Any] = ((value,),)
    for _ in range(MAX_LEVELS + 1):
        deeper: dict[int, Any] = {}  # by identity: what is shared is looked at once in each level
        for items in level:
            for item in items.values() if type(items) is dict else items:
                kind = type(item)
                if kind is str:
                    if not item.isascii() and without_surrogates(item) is not item:
                        return False
                elif kind is int:
                    if not -LIMIT <= item < LIMIT:
                        return False
                elif kind is float:
                    if not math.isfinite(item):
                        return False
                elif kind is dict:
                    try:
                        keys = "".join(item)
                    except TypeError:  # they are no texts
                        return False
                    if not keys.isascii() and without_surrogates(keys) is not keys:
                        return False
                    deeper[id(item)] = item
                elif kind is list or kind is tuple:
                    deeper[id(item)] = item
                elif kind not in _PLAIN:
                    return False
        if not deeper:
            return True
        level = deeper.values()
    return False


def _wire_value(value: Any, path: Path) -> Any:
    if value is None or isinstance(value, bool | bytes | enum.Enum):
        return value
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, int):
        if not -LIMIT <= value < LIMIT:
            raise WireError(f"an int must have at most {INT_BITS} bits", path)
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise WireError(f"a number must be finite, this one is {float(value)}", path)
        return value
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise WireError("a datetime must say its time zone, this one does not", path)
        return value
    if isinstance(value, ImmutableJson):
        value = value.plain()
    if len(path) >= MAX_LEVELS and isinstance(value, dict | list | tuple | BaseModel):
        raise WireError(f"it is nested more than {MAX_LEVELS} levels deep", path)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise WireError(f"keys must be str, one is {kind_of(key)}", path)
        return {without_surrogates(key): _wire_value(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_wire_value(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, BaseModel) and value.model_config.get("frozen"):
        for name, item in [*vars(value).items(), *(value.model_extra or {}).items()]:
            _wire_value(item, (*path, name))
        return value
    raise WireError(f"{kind_of(value)} is none of the types that a wire carries", path)


def kind_of(value: Any) -> str:
    """Return the name of a value's type, for messages."""
    if value is None:
        return "None"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class Model(BaseModel):
    """A frozen value; in JSON its keys are `camelCase`, in Python `snake_case`. Unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=cache(to_camel),  # names of fields are the same ones in many models
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,  # most models of the contracts are not used in a start
    )

    def to_json(self) -> dict[str, Any]:
        """Return the model as JSON-ready data, without the fields that were not set or are None."""
        return self.model_dump(mode="json", exclude_none=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, which copies each part of a model by itself."""
        if deep or self.__pydantic_extra__ is not None or getattr(self, "__pydantic_private__", None) is not None:
            return super().model_copy(update=update, deep=deep)
        return _made(type(self), {**self.__dict__, **(update or {})}, self.__pydantic_fields_set__ | {*(update or ())})

    @classmethod
    def construct(cls, **values: Any) -> Self:  # type: ignore[override]  # the one of pydantic is deprecated
        """Return the model with `values` that are known to be right, given by field name: nothing is checked.

        For data that our own code made, where checking it once more would cost more than making it.
        Raises `TypeError` where there is no such field, or one is needed besides.
        """
        blank = _blank(cls)
        held = blank.values | values
        for name, make in blank.factories.items():
            if name not in values:
                held[name] = make()
        if len(held) != len(blank.values):
            raise TypeError(f"{cls.__name__} has no field {min(values.keys() - blank.values.keys())}")
        if not blank.needed <= values.keys():
            raise TypeError(f"{cls.__name__} needs the field {min(blank.needed - values.keys())}")
        return _made(cls, held, set(values))


def _made(kind: type[ModelT], values: dict[str, Any], fields_set: set[str]) -> ModelT:
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    object.__setattr__(made, "__pydantic_fields_set__", fields_set)
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


@dataclass(frozen=True)
class _Blank:
    """A model's fields in their order, with defaults; which of them are made for each model, and which are needed."""

    values: dict[str, Any]
    factories: dict[str, Callable[[], Any]]
    needed: frozenset[str]


@cache
def _blank(model: type[BaseModel]) -> _Blank:
    fields = model.model_fields
    factories: dict[str, Any] = {n: field.default_factory for n, field in fields.items() if field.default_factory}
    needed = frozenset(name for name, field in fields.items() if field.is_required())
    return _Blank({name: field.default for name, field in fields.items()}, factories, needed)


class SharingModel(Model):
    """A model that may have `ImmutableJson`."""

    def owned(self) -> Self:
        """Return the model as others than the host's own parts get it: with plain values."""
        raise NotImplementedError


class OpenModel(Model):
    """A frozen value of a published format: keys that we do not know are kept and written back."""

    model_config = ConfigDict(extra="allow")


def wire_problem(annotation: Any) -> str | None:
    """Say why `annotation` may not cross a plugin boundary, or return None where it may.

    Allowed: None, bool, int, float, str, bytes, datetime, `list`/`tuple`, `dict[str, …]`, enums,
    `Literal`, frozen models of these, `JsonValue`, `type` parameters of none of them, and an
    `AsyncIterator` of one.
    """
    return _problem(annotation, seen=set())


def _problem(annotation: Any, seen: set[Any]) -> str | None:
    if annotation is JsonValue or annotation in SCALARS or annotation is None:
        return None
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is Annotated:
        return _problem(arguments[0], seen)
    if origin is Literal:
        return None
    if origin in (typing.Union, types.UnionType) or origin in (list, tuple, AsyncIterator):
        return _first(_problem(a, seen) for a in arguments if a is not Ellipsis)
    if origin is dict:
        key = typing.get_args(arguments[0])[0] if typing.get_origin(arguments[0]) is Annotated else arguments[0]
        if key is not str:
            return f"{annotation} has keys that are not str"
        return _problem(arguments[1], seen)
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return None
        if issubclass(annotation, BaseModel):
            return _model_problem(annotation, seen)
    return f"{annotation!r} is not a wire type"


def _model_problem(model: type[BaseModel], seen: set[Any]) -> str | None:
    if model in seen:
        return None
    seen.add(model)
    if not model.model_config.get("frozen"):
        return f"{model.__name__} is not frozen"
    for name, field in model.model_fields.items():
        problem = _problem(field.annotation, seen)
        if problem:
            return f"{model.__name__}.{name}: {problem}"
    return None


def _first(problems: typing.Iterable[str | None]) -> str | None:
    return next((p for p in problems if p), None)


def is_deeply_immutable(annotation: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return whether every value of a wire type is immutable all the way down, so that it may be shared; `seen` are the
    models that it is a part of."""
    if annotation in SCALARS or annotation is None or annotation in seen:
        return True
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is Annotated:
        return is_deeply_immutable(arguments[0], seen)
    if origin is Literal:
        return True
    if origin in (typing.Union, types.UnionType, tuple):
        return all(is_deeply_immutable(a, seen) for a in arguments if a is not Ellipsis)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation.model_config.get("extra") == "allow":
            return False
        fields = annotation.model_fields.values()
        return all(is_deeply_immutable(field.annotation, seen | {annotation}) for field in fields)
    return False
