"""Encodes values that cross a plugin boundary as bytes, by their annotations of wire types (`contracts.wire`).

Each annotation becomes two functions, to a tree of JSON and back; pydantic-core writes and reads the JSON. What a value
without an annotation becomes is in `storage.values`. Why pydantic's validators do not do it: decisions 19 and 146.
"""

from __future__ import annotations

import base64
import enum
import math
import types
import typing
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json
from typing_extensions import TypedDict

from tavern_host.contracts.errors import ErrorInfo, PluginFailure, TavernError, describe, error_info, error_of
from tavern_host.contracts.wire import LIMIT, ImmutableJson, WireError, kind_of, wire_value, without_surrogates
from tavern_host.storage.values import MAX_VALUES

_LEVELS = 190
"""How deeply the JSON may be nested; pydantic-core reads ten levels more."""

_DEEP, _ENDLESS = "it is nested too deeply", f"it has more than {MAX_VALUES} values, or contains itself"

_MARKS = bytes.maketrans(b"123456789E", b"000000000e")
_LONG, _HUGE, _NAN, _INFINITY = b"0" * 19, b"0e000", b"NaN", b"Infinity"
"""What is in JSON, as `_MARKS` translates it, that has a number which may be too long, too large or none."""


def encode(value: Any, annotation: Any) -> bytes:
    """Return a value as bytes. Raises `WireError` where it is not what `annotation` says, or that is no wire type."""
    try:
        data = to_json(_shape(annotation).encode(value, 0, [MAX_VALUES]))
    except _TooLarge as error:
        raise _fault(value, (), {}) or WireError(error.reason, error.path[:8]) from None
    except (RecursionError, PydanticSerializationError):
        raise _fault(value, (), {}) or WireError(_DEEP) from None
    marks = data.translate(_MARKS)
    if (_LONG in marks or _NAN in marks or _INFINITY in marks) and (fault := _fault(value, (), {})):
        raise fault
    return data


def decode(data: bytes, annotation: Any) -> Any:
    """Return the value that `encode` made these bytes of, as the same type. Raises `WireError`."""
    shape = _shape(annotation)
    try:
        tree = from_json(data, allow_inf_nan=False)
        marks = data.translate(_MARKS, b"+")
        if (_LONG in marks or (_HUGE in marks and _INFINITY in to_json(tree))) and (fault := _fault(tree, (), {})):
            raise ValueError(fault)
        return shape.decode(tree, 0, [MAX_VALUES])
    except WireError:
        raise
    except Exception as error:  # bytes that `encode` did not make may lead to any
        raise WireError(f"these bytes are no {shape.name}: {type(error).__name__}: {error}") from None


def encode_error(error: BaseException, *, plugin: str | None = None) -> bytes:
    """Return an error's `ErrorInfo` as bytes, with U+FFFD for lone surrogates."""
    try:
        info = error_info(error)
        clean = {"message": without_surrogates(info.message), "details": wire_value(info.details)}
        return encode(info.model_copy(update=clean), ErrorInfo)
    except (AttributeError, ValueError):  # made without what ours have, or with details that cannot be sent
        return encode(error_info(PluginFailure(without_surrogates(describe(error)), plugin=plugin)), ErrorInfo)


def decode_error(data: bytes) -> TavernError:
    """Return the error that `encode_error` made these bytes of. Raises `WireError`."""
    return error_of(decode(data, ErrorInfo))


_Step = Callable[[Any, int, list[int]], Any]
"""Takes a value, how many levels are around it, and in a list how many more values there may be; raises `WireError`."""


class _Shape(NamedTuple):
    """How values of one annotation become JSON and come back; `name` says in messages what was expected.

    Values of exactly the types in `plain` are their own JSON, and need no step.
    """

    name: str
    encode: _Step
    decode: _Step
    plain: frozenset[type] = frozenset()


class _WrongKind(WireError):
    """The value is of another kind altogether."""


class _TooLarge(WireError):
    """There are too many values, or too many levels around one."""


def _refuse(expected: str, value: Any) -> NoReturn:
    raise _WrongKind(f"expected {expected}, found {kind_of(value)}")


def _change(values: Any, todo: Iterable[tuple[int, _Step]], keys: Sequence[Any], level: int, left: Any) -> None:
    """Put in the place of some values what their steps make of them. An error gets its path, of `keys`, on its way."""
    left[0] -= len(values)
    if left[0] < 0 or level >= _LEVELS:
        raise _TooLarge(_ENDLESS if left[0] < 0 else _DEEP)
    at = 0
    try:
        for at, step in todo:
            values[at] = step(values[at], level + 1, left)
    except WireError as error:  # of too many values it is not this one
        raise type(error)(error.reason, () if error.reason is _ENDLESS else (keys[at], *error.path)) from None


def _fault(value: Any, path: tuple[str | int, ...], seen: dict[int, bool]) -> WireError | None:
    """Return the problem with a text or number in a value, or that it contains itself, as `seen` says."""
    try:
        if isinstance(value, str) and without_surrogates(value) is not value:
            raise WireError("the text holds half of a surrogate pair, which is not Unicode")
        if seen.get(id(value)):
            raise WireError(_ENDLESS)
        if type(value) in (int, float):
            _SCALARS[type(value)].encode(value, 0, [])
    except WireError as error:
        return WireError(error.reason, path)
    if id(value) in seen or len(path) > _LEVELS or not isinstance(value, (dict, list, tuple, BaseModel)):
        return None
    seen[id(value)] = True
    held = vars(value) | (value.model_extra or {}) if isinstance(value, BaseModel) else value
    for key, item in held.items() if isinstance(held, dict) else enumerate(held):
        if fault := _fault(item, (*path, key), seen) or _fault(key, (*path, key), seen):
            return fault
    seen[id(value)] = False
    return None


def _of(name: str, kind: type, made: Callable[[Any], Any]) -> _Step:
    """Return a function that refuses values of another kind, and returns `made(value)`."""

    def step(value: Any, level: int, left: list[int]) -> Any:
        if not isinstance(value, kind):
            _refuse(name, value)
        try:
            return made(value)
        except WireError:
            raise
        except (ValueError, KeyError, OverflowError):
            raise WireError(f"expected {name}, found {value!r:.80}") from None

    return step


def _int(value: Any, level: int, left: list[int]) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse("int", value)
    if not -LIMIT <= value < LIMIT:
        raise WireError(f"an int must have at most {LIMIT.bit_length()} bits, this one has {value.bit_length() + 1}")
    return int(value)


def _float(value: Any, level: int, left: list[int]) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        _refuse("float", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise WireError(f"a number must be finite, this one is {number}")
    return float(_int(value, level, left)) if isinstance(value, int) else number


def _from_datetime(value: datetime) -> str:
    if value.utcoffset() is None:
        raise WireError("a datetime must say its time zone, this one does not")
    return value.astimezone(UTC).isoformat()


def _to_datetime(text: str) -> datetime:
    if (moment := datetime.fromisoformat(text)).tzinfo is not UTC:
        raise ValueError
    return moment


def _json(value: Any, level: int, left: list[int]) -> Any:
    """Return JSON, also for what stands for it: tuples, and what is of classes of one's own."""
    for kind, step in _JSON_STEPS:
        if isinstance(value, kind):
            return step(value, level, left)
    return value if value is None else _refuse("JSON", value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise WireError(f"keys must be str, one is {kind_of(key)}")
    return str.__str__(key)


def _same(value: Any, level: int = 0, left: Any = None) -> Any:
    return value


def _plain(kind: type, step: _Step) -> _Shape:
    return _Shape("None" if kind is types.NoneType else kind.__name__, step, step, frozenset((kind,)))


_TEXT = frozenset((str,))
_NONE = _plain(types.NoneType, _of("None", types.NoneType, _same))
_BASE64 = _of("bytes", bytes, lambda value: base64.b64encode(value).decode())
_SCALARS: dict[Any, _Shape] = {
    types.NoneType: _NONE,
    None: _NONE,
    bool: _plain(bool, _of("bool", bool, _same)),
    int: _plain(int, _int),
    float: _plain(float, _float),
    str: _plain(str, _of("str", str, str.__str__)),
    bytes: _Shape("bytes", _BASE64, _of("bytes", str, lambda text: base64.b64decode(text, validate=True))),
    datetime: _Shape("datetime", _of("datetime", datetime, _from_datetime), _of("datetime", str, _to_datetime)),
    JsonValue: _Shape("JSON", _json, _same, frozenset((types.NoneType, bool, int, float, str))),
}
_UNTAGGED = {"None", "bool", "int", "float", "str"}  # JSON tells them apart by itself


def _literal(choices: tuple[Any, ...]) -> _Shape:
    name = f"one of {', '.join(map(repr, choices))}"

    def chosen(value: Any, level: int, left: list[int]) -> Any:
        for choice in choices:
            if choice == value and isinstance(value, bool) == isinstance(choice, bool):
                return choice
        if isinstance(value, (str, int)):
            raise WireError(f"expected {name}, found {value!r:.80}")
        return _refuse(name, value)

    return _Shape(name, lambda value, level, left: _json(chosen(value, level, left), level, left), chosen)


def _container(name: str, kind: Any, shapes: list[_Shape], size: int | None = None) -> _Shape:
    """Values by text, or in order: `size` of one shape each, or any number of one. A tuple may stand for a list."""
    is_dict, kinds = kind is dict, dict if kind is dict else (list, tuple)
    plain = shapes[0].plain if size is None else _TEXT

    def through(steps: list[_Step], make: Callable[[Any], Any]) -> _Step:
        def step(value: Any, level: int, left: list[int]) -> Any:
            if not value and size is None and type(value) is kind:
                return value  # as most are
            if not isinstance(value, kinds) or (size is not None and size != len(value)):
                _refuse(name, value)
            is_text = not is_dict or _TEXT.issuperset(map(type, value))
            items: Any = value.values() if isinstance(value, dict) else value
            if is_text and size is None and (steps[0] is _same or plain.issuperset(map(type, items))):
                _change(value, (), (), level, left)
                return make(value)
            keys: Any = [*map(_key, value)] if is_dict else range(len(value))
            values: list[Any] = [*items]
            todo: Iterable[tuple[int, _Step]] = enumerate(steps)
            if size is None:
                todo = ((at, steps[0]) for at, item in enumerate(items) if type(item) not in plain)
            _change(values, todo, keys, level, left)
            return dict(zip(keys, values, strict=True)) if is_dict else make(values)

        return step

    encode = through([one.encode for one in shapes], _same)
    return _Shape(name, encode, through([one.decode for one in shapes], tuple if kind is tuple else _same))


def _todo(shapes: list[_Shape], steps: list[_Step]) -> Callable[[tuple[type, ...]], list[tuple[int, _Step]]]:
    """Return a function that selects the values that need their step, by the types of all."""
    return lru_cache(64)(
        lambda kinds: [(at, steps[at]) for at, kind in enumerate(kinds) if kind not in shapes[at].plain]
    )


_JSON_DICT = _container("a dict of JSON", dict, [_SCALARS[JsonValue]])
_JSON_STEPS: list[tuple[Any, _Step]] = [(ImmutableJson, lambda value, *rest: _json(value.plain(), *rest))]
_JSON_STEPS += [(dict, _JSON_DICT.encode)]
_JSON_STEPS += [((list, tuple), _container("a list of JSON", list, [_SCALARS[JsonValue]]).encode)]
_JSON_STEPS += [(kind, _SCALARS[kind].encode) for kind in (bool, str, int, float)]


def _union(members: tuple[Any, ...]) -> _Shape:
    """One of several shapes, sent with its name unless JSON tells them apart; None is always null."""
    # What takes more than its own kind comes last: a float takes an int, and JSON takes all of both.
    ordered = sorted(members, key=lambda m: (m is JsonValue, m is float))
    shapes = [_shape(m) for m in ordered if typing.get_origin(m) is not AsyncIterator]  # a stream is no value
    by_name = {shape.name: shape for shape in shapes}
    if len(by_name) < len(shapes):
        raise WireError(f"{' | '.join(shape.name for shape in shapes)} cannot be told apart")
    *most, last = by_name
    name = f"{', '.join(most)} or {last}" if most else last
    own = [shape for shape in shapes if shape is not _NONE] or shapes
    is_tagged = len(own) > 1 and not by_name.keys() <= _UNTAGGED
    all_plain = frozenset[type]().union(*(shape.plain for shape in shapes))
    plain = all_plain & _NONE.plain if is_tagged else all_plain

    def encode(value: Any, level: int, left: list[int]) -> Any:
        if type(value) in plain:
            return value
        faults = []
        for shape in shapes:
            try:
                tree = shape.encode(value, level + is_tagged, left)
            except WireError as error:
                if isinstance(error, _TooLarge) or not (error.path or isinstance(error, _WrongKind)):
                    raise  # it is of that kind, and cannot be sent
                faults.append(error)
            else:
                return [shape.name, tree] if is_tagged and tree is not None else tree
        deepest = max(faults, key=lambda fault: len(fault.path))
        if deepest.path:  # it is of that kind, but for something in it
            raise deepest
        return _refuse(name, value)

    def decode(tree: Any, level: int, left: list[int]) -> Any:
        if type(tree) in plain:
            return tree
        if not is_tagged:
            return (encode if len(own) > 1 else own[0].decode)(tree, level, left)
        if type(tree) is not list or len(tree) != 2 or type(tree[0]) is not str or tree[0] not in by_name:
            _refuse(f"the name and the value of {name}", tree)
        return by_name[tree[0]].decode(tree[1], level + 1, left)

    return _Shape(name, encode, decode, plain)


@cache
def _model(model: type[BaseModel]) -> _Shape:
    """A frozen model, sent as its fields in order, a number whose bits say which were set, and its unknown keys."""
    own, names, put = model.__name__, tuple(model.model_fields), object.__setattr__
    bits = {name: 1 << at for at, name in enumerate(names)}
    is_open = model.model_config.get("extra") == "allow"

    @cache  # with the first value: a model may be a part of itself
    def parts() -> Any:
        model.model_rebuild()
        shapes = [_shape(info.annotation) for info in model.model_fields.values()]
        encode, decode = [one.encode for one in shapes], [one.decode for one in shapes]
        return _todo(shapes, encode), _todo(shapes, decode), _validator(model)

    @lru_cache(64)
    def named(given: str) -> list[str]:
        return [name for name, bit in bits.items() if bit & int(given, 16)]

    def encode(value: Any, level: int, left: list[int]) -> list[Any]:
        if type(value) is not model:
            _refuse(own, value)
        held, extra, given = vars(value), value.__pydantic_extra__, 0
        if tuple(held) != names:
            for name in bits.keys() ^ held.keys():  # `model_copy(update=…)` checks nothing
                raise WireError(f"this {own} lacks {name}" if name in names else f"a {own} has no {name}")
            held = {name: held[name] for name in names}
        values = [*held.values()]
        _change(values, parts()[0](tuple(map(type, values))), names, level, left)
        for name in value.__pydantic_fields_set__:
            given |= bits.get(name, 0)
        values.append(hex(given))
        values.append(_JSON_DICT.encode(extra, level + 1, left) if extra else None)
        return values

    def decode(tree: Any, level: int, left: list[int]) -> Any:
        if type(tree) is not list or len(tree) != len(names) + 2:
            _refuse(f"the fields of a {own}", tree)
        extra, given, (_, todo, validate) = tree.pop() or {}, set(named(tree.pop())), parts()
        _change(tree, todo(tuple(map(type, tree))), names, level, left)
        held = dict(zip(names, tree))  # noqa: B905 (as many, and twice as quick)
        if extra:
            given |= extra.keys()
            if not is_open or not held.keys().isdisjoint(extra):
                raise WireError(f"a {own} has no such unknown keys: {', '.join(extra):.80}")
        try:
            made = validate(held, extra)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise WireError(f"no valid {own}: {first['msg']}", first["loc"]) from None
        if made is held:
            made = model.__new__(model)
            put(made, "__dict__", held)
            put(made, "__pydantic_extra__", extra if is_open else None)
            put(made, "__pydantic_private__", None)
        put(made, "__pydantic_fields_set__", given)
        return made

    return _Shape(own, encode, decode)


def _validator(model: type[BaseModel]) -> Callable[[Any, Any], Any]:
    """Return the validator of constraints on fields beyond their types; of a model with code of its own, its maker."""
    code, fields = model.__pydantic_decorators__, model.model_fields.items()
    validators = (code.validators, code.field_validators, code.root_validators, code.model_validators)
    hooks = (model.__pydantic_post_init__, model.__pydantic_custom_init__, model.__private_attributes__)
    if any((*validators, *hooks, *(key.startswith("str_") for key in model.model_config))):
        return lambda held, extra: model.model_validate({**extra, **held}, by_name=True, by_alias=False)
    asked = {
        name: Annotated[i.annotation, "", *i.metadata] for name, i in fields if i.metadata or _is_asked(i.annotation)
    }
    if not asked:
        return _same
    check = TypeAdapter(TypedDict(model.__name__, asked)).validate_python  # type: ignore[operator]
    return lambda held, extra: (held.update(check(held)), held)[1]


def _is_asked(annotation: Any) -> bool:
    """Return whether more than its type is asked of a value, or of a part of it."""
    return typing.get_origin(annotation) is Annotated or any(map(_is_asked, typing.get_args(annotation)))


def _shape(annotation: Any) -> _Shape:
    """Return the shape of an annotation. Raises `WireError` for what is no wire type."""
    try:
        return _known_shape(annotation)
    except TypeError:  # it has a part without a hash
        return _new_shape(annotation)


def _new_shape(annotation: Any) -> _Shape:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None and annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Annotated:
        return _shape(arguments[0])
    if origin is Literal:
        return _literal(arguments)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin is list or (origin is tuple and arguments[-1:] == (Ellipsis,)):
        item = _shape(arguments[0])
        return _container(f"a list of {item.name}", origin, [item])
    if origin is tuple:
        return _container(f"a tuple of {len(arguments)} values", tuple, [*map(_shape, arguments)], len(arguments))
    if origin is dict and str in (arguments[0], *typing.get_args(arguments[0])[:1]):
        item = _shape(arguments[1])
        return _container(f"a dict of {item.name}", dict, [item])
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        own, members = annotation.__name__, annotation.__members__  # sent by name
        encode = _of(own, annotation, lambda member: member.name)
        return _Shape(own, encode, _of(own, str, members.__getitem__))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation)
    raise WireError(f"{annotation!r} is no wire type")


_known_shape = lru_cache(4096)(_new_shape)
