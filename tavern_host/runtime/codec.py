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
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import BaseModel, JsonValue, ValidationError

from tavern_host.contracts.errors import ErrorInfo, PluginFailure, TavernError, describe, error_info, error_of
from tavern_host.contracts.wire import INT_BITS, LIMIT, Path, WireError, kind_of
from tavern_host.storage.values import MAX_VALUES, is_endless, to_bytes


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
    except Exception as error:  # bytes that `encode` did not make may lead to any
        raise WireError(f"these bytes are no {shape.name}: {type(error).__name__}: {error}") from None


def encode_error(error: BaseException, *, plugin: str | None = None) -> bytes:
    """Return an error's `ErrorInfo` as bytes."""
    try:
        return encode(error_info(error), ErrorInfo)
    except (AttributeError, ValueError):  # made without what ours have, or with details that cannot be sent
        return encode(error_info(PluginFailure(describe(error), plugin=plugin)), ErrorInfo)


def decode_error(data: bytes) -> TavernError:
    """Return the error that `encode_error` made these bytes of. Raises `WireError`."""
    return error_of(decode(data, ErrorInfo))


class _Shape(NamedTuple):
    """How values of one annotation become JSON and come back; `name` says in messages what was expected.

    Both functions take the path to the value, and raise `WireError`.
    """

    name: str
    encode: Callable[[Any, Path], Any]
    decode: Callable[[Any, Path], Any]


class _WrongKind(WireError):
    """The value is of another kind altogether."""


def _refuse(expected: str, value: Any, path: Path) -> NoReturn:
    raise _WrongKind(f"expected {expected}, found {kind_of(value)}", path)


# --- values without parts ---------------------------------------------------------------------------------


def _of(name: str, kind: type, plain: Callable[[Any], Any]) -> Callable[[Any, Path], Any]:
    """Return what refuses values of another kind, and returns `plain(value)`."""
    return lambda value, path: plain(value) if isinstance(value, kind) else _refuse(name, value, path)


def _same(value: Any) -> Any:
    return value


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


def _datetime(value: Any, path: Path) -> str:
    if not isinstance(value, datetime):
        _refuse("datetime", value, path)
    if value.utcoffset() is None:
        raise WireError("a datetime must say its time zone, this one does not", path)
    return value.astimezone(UTC).isoformat()


def _json(value: Any, path: Path) -> Any:
    """Return a JSON value that shares nothing with this one."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
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
        raise WireError(f"keys must be str, one is {kind_of(key)}", path)
    return str.__str__(key)


_NONE = _of("None", type(None), _same)
_BOOL = _of("bool", bool, _same)
_TEXT = _of("str", str, str.__str__)
_SCALARS: dict[Any, _Shape] = {
    type(None): _Shape("None", _NONE, _NONE),
    None: _Shape("None", _NONE, _NONE),
    bool: _Shape("bool", _BOOL, _BOOL),
    int: _Shape("int", _int, _int),
    float: _Shape("float", _float, _float),
    str: _Shape("str", _TEXT, _TEXT),
    bytes: _Shape(
        "bytes",
        _of("bytes", bytes, lambda value: base64.b64encode(value).decode()),
        lambda tree, path: base64.b64decode(_TEXT(tree, path), validate=True),
    ),
    datetime: _Shape("datetime", _datetime, lambda tree, path: datetime.fromisoformat(_TEXT(tree, path))),
    JsonValue: _Shape("JSON", _json, _json),
}


def _literal(choices: tuple[Any, ...]) -> _Shape:
    name = f"one of {', '.join(map(repr, choices))}"

    def is_same(choice: Any, value: Any) -> bool:
        return bool(choice == value) and isinstance(value, bool) == isinstance(choice, bool)

    def encode(value: Any, path: Path) -> Any:
        for choice in choices:
            if is_same(choice, value):
                return _json(choice, path)
        if isinstance(value, str | int):
            raise WireError(f"expected {name}, found {value!r:.80}", path)
        return _refuse(name, value, path)

    return _Shape(name, encode, lambda tree, path: next(choice for choice in choices if is_same(choice, tree)))


# --- values with parts ------------------------------------------------------------------------------------


def _sequence(name: str, shapes_of: Callable[[Any], list[_Shape]], make: Callable[[Iterator[Any]], Any]) -> _Shape:
    """Values in order, of as many shapes as `shapes_of` gives for them. A list and a tuple may stand for each other."""

    def encode(value: Any, path: Path) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(shapes := shapes_of(value)):
            _refuse(name, value, path)
        return [shape.encode(one, (*path, i)) for i, (shape, one) in enumerate(zip(shapes, value, strict=True))]

    def decode(tree: Any, path: Path) -> Any:
        pairs = enumerate(zip(shapes_of(tree), tree, strict=True))
        return make(shape.decode(one, (*path, i)) for i, (shape, one) in pairs)

    return _Shape(name, encode, decode)


def _list(item: _Shape, make: Callable[[Iterator[Any]], Any]) -> _Shape:
    return _sequence(f"a list of {item.name}", lambda value: [item] * len(value), make)


def _dict(item: _Shape) -> _Shape:
    """Values of one shape by text."""
    name = f"a dict of {item.name}"

    def encode(value: Any, path: Path) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(name, value, path)
        return {_key(key, path): item.encode(one, (*path, key)) for key, one in value.items()}

    return _Shape(name, encode, lambda tree, path: {key: item.decode(one, (*path, key)) for key, one in tree.items()})


def _union(members: tuple[Any, ...]) -> _Shape:
    """One of several shapes, sent with its name."""
    # What takes more than its own kind comes last: a float takes an int, and JSON takes all of both.
    ordered = sorted(members, key=lambda m: (m is JsonValue, m is float))
    shapes = [_shape(m) for m in ordered if typing.get_origin(m) is not AsyncIterator]  # a stream is no value
    by_name = {shape.name: shape for shape in shapes}
    if len(by_name) < len(shapes):
        raise WireError(f"{' | '.join(shape.name for shape in shapes)} cannot be told apart")
    *most, last = by_name
    name = f"{', '.join(most)} or {last}" if most else last

    def encode(value: Any, path: Path) -> list[Any]:
        faults = []
        for member, shape in by_name.items():
            try:
                return [member, shape.encode(value, path)]
            except WireError as error:
                if error.path == path and not isinstance(error, _WrongKind):
                    raise  # it is of that kind, and cannot be sent
                faults.append(error)
        deepest = max(faults, key=lambda fault: len(fault.path))
        if deepest.path != path:  # it is of that kind, but for something in it
            raise deepest
        return _refuse(name, value, path)

    def decode(tree: Any, path: Path) -> Any:
        member, inner = tree
        return by_name[member].decode(inner, path)

    return _Shape(name, encode, decode)


@cache
def _fields(model: type[BaseModel]) -> dict[str, _Shape]:
    model.model_rebuild()
    return {name: _shape(info.annotation) for name, info in model.model_fields.items()}


@cache
def _model(model: type[BaseModel]) -> _Shape:
    """A frozen model, sent as its fields, the names of those that were set, and its unknown keys."""
    own, fields_of = model.__name__, partial(_fields, model)

    def encode(value: Any, path: Path) -> list[Any]:
        if type(value) is not model:
            _refuse(own, value, path)
        held, fields = vars(value), fields_of()
        for name in fields.keys() ^ held.keys():  # `model_copy(update=…)` checks nothing
            raise WireError(f"this {own} lacks {name}" if name in fields else f"a {own} has no {name}", path)
        tree = {name: shape.encode(held[name], (*path, name)) for name, shape in fields.items()}
        return [tree, sorted(value.model_fields_set), _json(value.model_extra or {}, path)]

    def decode(tree: Any, path: Path) -> Any:
        fields, given, extra = tree
        values = {name: fields_of()[name].decode(item, (*path, name)) for name, item in fields.items()}
        try:
            made = model.model_validate({**extra, **values}, by_name=True, by_alias=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise WireError(f"no valid {own}: {first['msg']}", (*path, *first["loc"])) from None
        object.__setattr__(made, "__pydantic_fields_set__", {*given} & values.keys())
        return made

    return _Shape(own, encode, decode)


def _shape(annotation: Any) -> _Shape:
    """Return the shape of an annotation. Raises `WireError` for what is no wire type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None and annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Annotated:
        return _shape(arguments[0])
    if origin is Literal:
        return _literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is list:
        return _list(_shape(arguments[0]), list)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _list(_shape(arguments[0]), tuple)
    if origin is tuple:
        shapes = [_shape(one) for one in arguments]
        return _sequence(f"a tuple of {len(shapes)} values", lambda value: shapes, tuple)
    if origin is dict and str in (arguments[0], *typing.get_args(arguments[0])[:1]):
        return _dict(_shape(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members, own = annotation, annotation.__name__  # sent by name
        return _Shape(own, _of(own, members, lambda member: member.name), lambda tree, path: members[tree])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation)
    raise WireError(f"{annotation!r} is no wire type")
