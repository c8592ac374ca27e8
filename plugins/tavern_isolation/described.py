"""What a plugin publishes as data, where its code is not: interfaces and specifications of hooks with the types that
they name, and stand-ins that are made of that.

A stand-in of a model has its name, its fields in their order, their types, defaults and bounds: values of both are the
same bytes on a link (`runtime.codec`). What validators of the plugin's own ask besides is asked in its process alone.
Types of the contracts are named, not described. A description is read as if its writer were hostile: names that are no
names are refused, and nothing in it is run.
"""

from __future__ import annotations

import enum
import inspect
import json
import re
import types
import typing
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from functools import lru_cache, partial
from keyword import iskeyword
from pkgutil import resolve_name
from typing import Annotated, Any, ForwardRef, Literal
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import InvalidInput, describe
from tavern_host.contracts.hooks import HookInfo, hookspec
from tavern_host.contracts.services import MethodInfo, ServiceInterface
from tavern_host.contracts.wire import Model, OpenModel, WireError, wire_problem
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.installed import is_published

Tree = Any
"""A part of a description: JSON."""

MOST = 300_000
"""Characters of one description."""

_SCALARS: dict[Any, str] = {kind: kind.__name__ for kind in (bool, int, float, str, bytes, datetime)}
_SCALARS |= {type(None): "None", None: "None", JsonValue: "JSON"}
_BY_NAME = {name: kind for kind, name in _SCALARS.items()}
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "strict")
"""What may be asked of a value besides its type, as arguments of `Field`."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_METHOD: TypeAdapter[MethodInfo] = TypeAdapter(MethodInfo)
_HOOK: TypeAdapter[HookInfo] = TypeAdapter(HookInfo)


def reference_of(value: Any) -> str:
    """Return `module:name` of a function or class."""
    return f"{value.__module__}:{value.__qualname__}"


def is_importable(module: str) -> bool:
    """Return whether a module is the host's, or one of the contracts of its plugins, so that every process has it."""
    return module.partition(".")[0] == "tavern_host" or is_published(module)


# --- describing --------------------------------------------------------------------------------------------

_texts: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def description_of(published: Any) -> str:
    """Return the description of an interface or of a hook's specification, as JSON.

    Raises `InvalidInput` with what is wrong with an annotation, and where it is neither.
    """
    is_interface = isinstance(published, type) and issubclass(published, ServiceInterface)
    if not is_interface and not isinstance(getattr(published, "__tavern_hook__", None), HookInfo):
        raise InvalidInput(f"{published!r:.80} is neither a ServiceInterface nor marked with @hookspec")
    if published not in _texts:
        try:
            _texts[published] = json.dumps(_described(published, is_interface=is_interface))
        except TypeError as error:  # a choice or a member of an enum
            raise InvalidInput(f"{published.__name__} names a value that is no JSON: {error}") from None
    return _texts[published]


def _described(published: Any, *, is_interface: bool) -> Tree:
    own: dict[str, Tree] = {}
    about = {"name": published.__name__, "module": published.__module__, "doc": published.__doc__}
    if not is_interface:
        hook = {**_function(published, "", own), "info": vars(published.__tavern_hook__)}
        return {**about, "hook": hook, "types": own}
    methods: dict[str, Tree] = {}
    for base in reversed([base for base in published.__mro__ if base not in ServiceInterface.__mro__]):
        for key, value in vars(base).items():
            if not key.startswith("_") and key not in ("service_name", "service_version"):
                info = getattr(value, "__tavern_method__", None)
                methods[key] = {**_function(value, f"{key}: ", own), "info": vars(info)} if info is not None else None
    service = {"service": getattr(published, "service_name", ""), "version": getattr(published, "service_version", 1)}
    return {**about, **service, "methods": methods, "types": own}


def _function(function: Callable[..., Any], where: str, own: dict[str, Tree]) -> Tree:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # a name that is not there, or whatever an annotation does when it is evaluated
        raise InvalidInput(f"{where}its annotations cannot be read: {describe(error)}") from None
    takes_context = hints.pop("context", None) is PluginContext
    for name, hint in hints.items():
        if problem := wire_problem(hint):
            raise InvalidInput(f"{where}{name}: {problem}")
    parameters = []
    for name, one in inspect.signature(function).parameters.items():
        if name != "self" and not (takes_context and name == "context"):
            hint = hints.get(name, JsonValue)
            default = None if one.default is one.empty else _written(one.default, hint, f"{where}{name}")
            parameters.append([name, int(one.kind), _type(hint, own) if name in hints else None, default])
    returned = _type(hints["return"], own) if "return" in hints else None
    is_async = inspect.iscoroutinefunction(function)
    return {
        "parameters": parameters,
        "return": returned,
        "is_async": is_async,
        "context": takes_context,
        "doc": function.__doc__,
    }


def _written(default: Any, hint: Any, where: str) -> str:
    try:
        return encode(default, hint).decode()
    except WireError as error:
        raise InvalidInput(f"{where}: its default is no wire value: {error}") from None


def _type(hint: Any, own: dict[str, Tree]) -> Tree:
    """Return a wire type as JSON."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is None and hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Annotated:
        return {"annotated": [_type(arguments[0], own), _bounds(arguments[1:])]}
    if origin is Literal:
        return {"literal": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"union": [_type(one, own) for one in arguments]}
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        return {"row": [_type(one, own) for one in arguments]}
    for kind, name in ((list, "list"), (tuple, "tuple"), (AsyncIterator, "stream")):
        if origin is kind:
            return {name: _type(arguments[0], own)}
    if origin is dict:
        return {"dict": _type(arguments[1], own)}
    reference = reference_of(hint)
    if is_published(hint.__module__):
        return {"shared": reference}
    if reference not in own:
        own[reference] = {}  # it may name itself
        is_enum = issubclass(hint, enum.Enum)
        own[reference] = {"name": hint.__name__, **(_members(hint) if is_enum else _fields(hint, own))}
    return {"own": reference}


def _bounds(metadata: Iterable[Any]) -> Tree:
    found: dict[str, Any] = {}
    for one in metadata:
        if isinstance(one, FieldInfo):
            found |= _bounds(one.metadata)
        found |= {key: getattr(one, key) for key in _BOUNDS if type(getattr(one, key, None)) in (bool, int, float, str)}
    return found


def _members(kind: type[enum.Enum]) -> Tree:
    base = next((name for name in ("str", "int") if issubclass(kind, _BY_NAME[name])), "")
    return {"base": base, "members": {name: member.value for name, member in kind.__members__.items()}}


def _fields(model: type[BaseModel], own: dict[str, Tree]) -> Tree:
    model.model_rebuild()
    fields = {}
    for name, info in model.model_fields.items():
        alias = info.serialization_alias or info.alias or name
        default = None
        if not info.is_required():
            given = info.get_default(call_default_factory=True, validated_data={})
            default = _written(given, info.annotation, f"{model.__name__}.{name}")
        fields[name] = [_type(info.annotation, own), _bounds(info.metadata), alias, default]
    return {"fields": fields, "extra": model.model_config.get("extra") or "ignore", "doc": model.__doc__}


# --- stand-ins ---------------------------------------------------------------------------------------------


class _Loose(Model):
    """The base of models that drop unknown keys."""

    model_config = ConfigDict(extra="ignore")


_BASES: dict[str, type[Model]] = {"forbid": Model, "allow": OpenModel, "ignore": _Loose}


@lru_cache(64)
def stand_in(text: str) -> Any:
    """Return an interface, or a hook's specification, made of its description; the same one for the same text.

    Raises `InvalidInput` for what is no description.
    """
    try:
        if len(text) > MOST:
            raise ValueError(f"it has more than {MOST:,} characters")
        made = _Maker(json.loads(text)).made()
    except Exception as error:  # what somebody else wrote may lead to any
        raise InvalidInput(f"its description cannot be read: {describe(error)}") from None
    _texts[made] = text
    return made


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or iskeyword(value):
        raise ValueError(f"{value!r:.80} is no name")
    return value


class _Maker:
    """Makes what one description says."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._made: dict[str, Any] = {}
        self._names: dict[str, Any] = {}

    def made(self) -> Any:
        """Return the interface or the hook's specification."""
        found = self._published(self._tree)
        for one in self._made.values():
            if issubclass(one, BaseModel):
                one.model_rebuild(force=True, _types_namespace=self._names)
        return found

    def _published(self, tree: Tree) -> Any:
        name = _name(tree["name"])
        if "hook" in tree:
            info = _HOOK.validate_python({**tree["hook"]["info"], "name": name})
            marks = {key: value for key, value in vars(info).items() if key not in ("name", "arguments")}
            return self._of(hookspec(**marks)(self._function(name, tree["hook"], is_method=False)))
        methods = {_name(key): self._method(key, one) for key, one in tree["methods"].items()}
        if not methods.keys().isdisjoint({*dir(ServiceInterface), *ServiceInterface.__annotations__}):
            raise ValueError("a method has a name of every interface's own")
        about = {"name": str(tree["service"]), "version": int(tree["version"])}
        return types.new_class(name, (ServiceInterface,), about, lambda body: body.update(methods, **self._about()))

    def _about(self) -> dict[str, str]:
        module = str(self._tree["module"])
        _check_own(module)
        return {"__module__": module, "__doc__": str(self._tree["doc"] or "")}

    def _of(self, made: Any) -> Any:
        for key, value in self._about().items():
            setattr(made, key, value)
        return made

    def _method(self, name: str, tree: Tree) -> Any:
        if tree is None:
            return None  # which is not marked, as will be said
        method: Any = self._of(self._function(name, tree, is_method=True))
        method.__doc__ = str(tree["doc"] or "")
        method.__tavern_method__ = _METHOD.validate_python(tree["info"])
        return method

    def _function(self, name: str, tree: Tree, *, is_method: bool) -> Any:
        async def answer(*args: Any, **named: Any) -> Any:
            """Declare a function that gives one answer."""

        def stream(*args: Any, **named: Any) -> Any:
            """Declare a function that gives a stream."""

        declared: Any = (
            answer if tree["is_async"] else stream if is_method else _specified([p[0] for p in tree["parameters"]])
        )
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] if is_method else []
        hints: dict[str, Any] = {}
        for key, kind, hint, default in tree["parameters"]:
            parameter = inspect.Parameter(_name(key), _KINDS(kind))
            if hint is not None:
                hints[key] = self._type(hint)
                parameter = parameter.replace(annotation=hints[key])
            if default is not None:
                parameter = parameter.replace(default=decode(default.encode(), hints.get(key, JsonValue)))
            parameters.append(parameter)
        if tree["context"]:
            hints["context"] = PluginContext
            parameters.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=PluginContext))
        if tree["return"] is not None:
            hints["return"] = self._type(tree["return"])
        result = hints.get("return", inspect.Signature.empty)
        declared.__signature__ = inspect.Signature(parameters, return_annotation=result)
        declared.__annotations__ = hints
        declared.__name__ = declared.__qualname__ = name
        return declared

    def _type(self, tree: Tree) -> Any:
        if isinstance(tree, str):
            return _BY_NAME[tree]
        ((kind, inner),) = tree.items()
        match kind:
            case "annotated":
                return Annotated[self._type(inner[0]), Field(**_bounded(inner[1]))]
            case "literal":
                return Literal[tuple(inner)]
            case "union":
                return typing.Union[tuple(map(self._type, inner))]  # noqa: UP007  # of any number
            case "row":
                return tuple[tuple(map(self._type, inner))]  # type: ignore[misc]
            case "list":
                return list[self._type(inner)]  # type: ignore[misc]
            case "tuple":
                return tuple[self._type(inner), ...]  # type: ignore[misc]
            case "stream":
                return AsyncIterator[self._type(inner)]  # type: ignore[misc]
            case "dict":
                return dict[str, self._type(inner)]  # type: ignore[misc]
            case "shared":
                return shared_type(inner)
        return self._own(inner) if kind == "own" else _BY_NAME[kind]

    def _own(self, reference: str) -> Any:
        """Return the stand-in of a type of the plugin's own; a forward reference within itself."""
        if reference not in self._made:
            tree, module = self._tree["types"][reference], reference.partition(":")[0]
            _check_own(module)
            forward = f"own_{len(self._made)}"
            self._made[reference] = ForwardRef(forward)
            if "members" in tree:
                bases = {"type": _BY_NAME[tree["base"]]} if tree["base"] else {}
                members = {_name(key): value for key, value in tree["members"].items()}
                made: Any = _ENUM(tree["name"], members, **bases)
            else:
                made = self._model(reference, tree)
            made.__module__, made.__qualname__ = module, reference.partition(":")[2]
            self._made[reference] = self._names[forward] = made
        return self._made[reference]

    def _model(self, reference: str, tree: Tree) -> type[Model]:
        fields: dict[str, Any] = {}
        for name, (hint, bounds, alias, default) in tree["fields"].items():
            given = {**_bounded(bounds), "alias": str(alias)}
            if default is not None:
                given["default_factory"] = partial(self._default, reference, name, default.encode())
            fields[_name(name)] = (self._type(hint), Field(**given))
        base = _BASES[tree["extra"]]
        return create_model(tree["name"], __base__=base, __doc__=tree["doc"], **fields)

    def _default(self, reference: str, field: str, default: bytes) -> Any:
        return decode(default, self._made[reference].model_fields[field].annotation)


_ENUM: Any = enum.Enum
_KINDS: Any = type(inspect.Parameter.KEYWORD_ONLY)


def _specified(names: list[str]) -> Any:
    """Return a function with these parameters and `context`, which pluggy and `hookspec` read off its code."""

    def specified() -> Any:
        """Specify a hook."""

    known = (*map(_name, names), "context")
    code = specified.__code__
    specified.__code__ = code.replace(co_varnames=known, co_argcount=len(known), co_nlocals=len(known))
    return specified


def _check_own(module: str) -> None:
    if is_importable(module):
        raise ValueError(f"{module} is not the plugin's")


def _bounded(bounds: Tree) -> dict[str, Any]:
    return {key: value for key, value in bounds.items() if key in _BOUNDS}


def shared_type(reference: str) -> Any:
    """Return the type of the contracts that `module:name` names. Raises `ValueError`."""
    if not is_published(reference.partition(":")[0]):
        raise ValueError(f"{reference:.80} is no type of the contracts")
    found = resolve_name(reference)
    if not (isinstance(found, type) and issubclass(found, BaseModel | enum.Enum)):
        raise ValueError(f"{reference:.80} is no type of values")
    return found
