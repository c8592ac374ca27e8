"""Encodes values that cross a plugin boundary as bytes, by their annotations of wire types (`contracts.wire`).

What a value without an annotation becomes is in `storage.values`. Why pydantic does not do it: decision 19.
"""

from __future__ import annotations

import base64
import enum
import json
import math
import types
import typing
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Annotated, Any, Literal, NoReturn, Protocol

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic.fields import FieldInfo

from tavern_host.storage.values import INT_BITS, LIMIT, MAX_VALUES, is_endless, to_bytes

Path = tuple[str | int, ...]


class WireError(ValueError):
    """A value may not cross a plugin boundary as what it is declared to be.

    `path` says where in the value, `reason` what was expected there and what came.
    """

    def __init__(self, reason: str, path: Path = ()) -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"{self.place}: {reason}" if path else reason)

    @property
    def place(self) -> str:
        """The place in the value: `.inputs['tone'][2]`; nothing for the value itself."""
        return "".join(f".{p}" if isinstance(p, str) and p.isidentifier() else f"[{p!r}]" for p in self.path)


def encode(value: Any, annotation: Any) -> bytes:
    """Return a value as bytes. Raises `WireError` where it is not what `annotation` says, or that is no wire type."""
    if is_endless(value):
        raise WireError(f"it has more than {MAX_VALUES} values, or contains itself")
    try:
        return to_bytes(_shape(annotation).encode(value, ()))
    except RecursionError:
        raise WireError("it is nested too deeply") from None


def decode(data: bytes, annotation: Any) -> Any:
    """Return the value that `encode` made these bytes of, as the same type. Raises `WireError`."""
    shape = _shape(annotation)
    try:
        return shape.decode(json.loads(data), ())
    except WireError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        StopIteration,
        TypeError,
        ValueError,
    ) as error:
        raise WireError(f"these bytes are no {shape.name}: {type(error).__name__}: {error}") from None


# --- values with an annotation ----------------------------------------------------------------------------


class _Shape(Protocol):
    """How values of one annotation become JSON and come back."""

    @property
    def name(self) -> str:
        """The name in messages that say what was expected."""

    def encode(self, value: Any, path: Path) -> Any:
        """Return the value as JSON. Raises `WireError`."""

    def decode(self, tree: Any, path: Path) -> Any:
        """Return the value of the JSON. Raises `WireError`."""


class _WrongKind(WireError):
    """The value is of another kind altogether."""


def _refuse(expected: str, value: Any, path: Path) -> NoReturn:
    raise _WrongKind(f"expected {expected}, found {_kind(value)}", path)


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Scalar:
    """A value without parts. `send` and `receive` raise `WireError` for what is none."""

    def __init__(self, name: str, send: Callable[[Any, Path], Any], receive: Callable[[Any, Path], Any]) -> None:
        self.name = name
        self.encode = send
        self.decode = receive


def _none(value: Any, path: Path) -> None:
    if value is not None:
        _refuse("None", value, path)


def _bool(value: Any, path: Path) -> bool:
    return value if isinstance(value, bool) else _refuse("bool", value, path)


def _int(value: Any, path: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse("int", value, path)
    if not -LIMIT <= value < LIMIT:
        raise WireError(f"an int must have at most {INT_BITS} bits, this one has {value.bit_length() + 1}", path)
    return int(value)


def _float(value: Any, path: Path) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        _refuse("float", value, path)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise WireError(f"a number must be finite, this one is {number}", path)
    return number


def _text(value: Any, path: Path) -> str:
    return str.__str__(value) if isinstance(value, str) else _refuse("str", value, path)


def _bytes(value: Any, path: Path) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _refuse("bytes", value, path)


def _from_base64(tree: Any, path: Path) -> bytes:
    return base64.b64decode(_text(tree, path), validate=True)


def _datetime(value: Any, path: Path) -> str:
    if not isinstance(value, datetime):
        _refuse("datetime", value, path)
    if value.utcoffset() is None:
        raise WireError("a datetime must say its time zone, this one does not", path)
    return value.astimezone(UTC).isoformat()


def _from_iso(tree: Any, path: Path) -> datetime:
    return datetime.fromisoformat(_text(tree, path))


def _json(value: Any, path: Path) -> Any:
    """Return a JSON value that shares nothing with it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _int(value, path)
    if isinstance(value, float):
        return _float(value, path)
    if isinstance(value, dict):
        return {_key(key, path): _json(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item, (*path, index)) for index, item in enumerate(value)]
    return _refuse("JSON", value, path)


def _key(key: Any, path: Path) -> str:
    if not isinstance(key, str):
        raise WireError(f"keys must be str, one is {_kind(key)}", path)
    return str.__str__(key)


_SCALARS: dict[Any, _Shape] = {
    type(None): _Scalar("None", _none, _none),
    bool: _Scalar("bool", _bool, _bool),
    int: _Scalar("int", _int, _int),
    float: _Scalar("float", _float, _float),
    str: _Scalar("str", _text, _text),
    bytes: _Scalar("bytes", _bytes, _from_base64),
    datetime: _Scalar("datetime", _datetime, _from_iso),
    JsonValue: _Scalar("JSON", _json, _json),
}
_SCALARS[None] = _SCALARS[type(None)]


class _Literal:
    """One of a few values."""

    def __init__(self, choices: tuple[Any, ...]) -> None:
        self._choices = choices
        self.name = f"one of {', '.join(map(repr, choices))}"

    def encode(self, value: Any, path: Path) -> Any:
        for choice in self._choices:
            if _is_same(choice, value):
                return _json(choice, path)
        if isinstance(value, str | int):
            raise WireError(f"expected {self.name}, found {value!r:.80}", path)
        return _refuse(self.name, value, path)

    def decode(self, tree: Any, path: Path) -> Any:
        return next(choice for choice in self._choices if _is_same(choice, tree))


def _is_same(choice: Any, value: Any) -> bool:
    return bool(choice == value) and isinstance(value, bool) == isinstance(choice, bool)


class _Enum:
    """A member of an enumeration, sent by name."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        self._kind = kind
        self.name = kind.__name__

    def encode(self, value: Any, path: Path) -> str:
        return value.name if isinstance(value, self._kind) else _refuse(self.name, value, path)

    def decode(self, tree: Any, path: Path) -> Any:
        return self._kind[tree]


class _List:
    """Any number of values of one shape. A list and a tuple may stand for each other."""

    def __init__(self, item: Any, make: Callable[[Iterator[Any]], Any]) -> None:
        self._item = _shape(item)
        self._make = make
        self.name = f"a list of {self._item.name}"

    def encode(self, value: Any, path: Path) -> list[Any]:
        if not isinstance(value, list | tuple):
            _refuse(self.name, value, path)
        return [self._item.encode(item, (*path, index)) for index, item in enumerate(value)]

    def decode(self, tree: Any, path: Path) -> Any:
        return self._make(self._item.decode(item, (*path, index)) for index, item in enumerate(tree))


class _Tuple:
    """A value of each shape, in order."""

    def __init__(self, items: tuple[Any, ...]) -> None:
        self._items = [_shape(item) for item in items]
        self.name = f"a tuple of {len(items)} values"

    def encode(self, value: Any, path: Path) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(self._items):
            _refuse(self.name, value, path)
        pairs = zip(self._items, value, strict=True)
        return [shape.encode(item, (*path, index)) for index, (shape, item) in enumerate(pairs)]

    def decode(self, tree: Any, path: Path) -> Any:
        return tuple(
            shape.decode(item, (*path, i)) for i, (shape, item) in enumerate(zip(self._items, tree, strict=True))
        )


class _Dict:
    """Values of one shape by text."""

    def __init__(self, item: Any) -> None:
        self._item = _shape(item)
        self.name = f"a dict of {self._item.name}"

    def encode(self, value: Any, path: Path) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(self.name, value, path)
        return {_key(key, path): self._item.encode(item, (*path, key)) for key, item in value.items()}

    def decode(self, tree: Any, path: Path) -> Any:
        return {key: self._item.decode(item, (*path, key)) for key, item in tree.items()}


class _Union:
    """One of several shapes, sent with its name."""

    def __init__(self, members: tuple[Any, ...]) -> None:
        # What takes more than its own kind comes last: a float takes an int, and JSON takes all of both.
        shapes = [_shape(m) for m in sorted(members, key=lambda m: (m is JsonValue, m is float))]
        self._members = {shape.name: shape for shape in shapes}
        if len(self._members) < len(shapes):
            raise WireError(f"{' | '.join(shape.name for shape in shapes)} cannot be told apart")
        *most, last = self._members
        self.name = f"{', '.join(most)} or {last}" if most else last

    def encode(self, value: Any, path: Path) -> list[Any]:
        faults = []
        for name, shape in self._members.items():
            try:
                return [name, shape.encode(value, path)]
            except WireError as error:
                if error.path == path and not isinstance(error, _WrongKind):
                    raise  # it is of that kind, and cannot be sent
                faults.append(error)
        deepest = max(faults, key=lambda fault: len(fault.path))
        if deepest.path != path:  # it is of that kind, but for something in it
            raise deepest
        return _refuse(self.name, value, path)

    def decode(self, tree: Any, path: Path) -> Any:
        name, inner = tree
        return self._members[name].decode(inner, path)


class _Model:
    """A frozen model, sent as the fields that differ from their defaults or were set, and its unknown keys.

    So a model that comes back knows which of its fields were set, but for those that the maker of its defaults
    made unlike any other (an id).
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self.name = model.__name__

    @cached_property
    def _fields(self) -> dict[str, tuple[_Shape, FieldInfo]]:
        self._model.model_rebuild()
        return {name: (_shape(info.annotation), info) for name, info in self._model.model_fields.items()}

    def encode(self, value: Any, path: Path) -> list[Any]:
        if type(value) is not self._model:
            _refuse(self.name, value, path)
        held = vars(value)
        tree = {}
        for name, (shape, info) in self._fields.items():
            if name not in held:
                raise WireError(f"this {self.name} lacks {name}", path)
            if name in value.model_fields_set or not _is_default(info, held, held[name]):
                tree[name] = shape.encode(held[name], (*path, name))
        for name in held:
            if name not in self._fields:  # `model_copy(update=…)` checks nothing
                raise WireError(f"a {self.name} has no {name}", path)
        return [tree, _json(value.model_extra or {}, path)]

    def decode(self, tree: Any, path: Path) -> Any:
        fields, extra = tree
        values = {name: self._fields[name][0].decode(item, (*path, name)) for name, item in fields.items()}
        try:
            return self._model.model_validate({**extra, **values}, by_name=True, by_alias=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise WireError(f"no valid {self.name}: {first['msg']}", (*path, *first["loc"])) from None


def _is_default(info: FieldInfo, held: dict[str, Any], item: Any) -> bool:
    default = info.get_default(call_default_factory=True, validated_data=held)
    return type(default) is type(item) and bool(default == item)


@cache
def _model(model: type[BaseModel]) -> _Model:
    return _Model(model)


def _shape(annotation: Any) -> _Shape:
    """Return the shape of an annotation. Raises `WireError` for what is no wire type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None and annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Annotated:
        return _shape(arguments[0])
    if origin is Literal:
        return _Literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _Union(arguments)
    if origin is list:
        return _List(arguments[0], list)
    if origin is tuple:
        return _List(arguments[0], tuple) if arguments[-1] is Ellipsis else _Tuple(arguments)
    if origin is dict and arguments[0] is str:
        return _Dict(arguments[1])
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _Enum(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation)
    raise WireError(f"{annotation!r} is no wire type")
