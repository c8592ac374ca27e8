"""What plugin authors write with: `@hookimpl`, `@node`, `Slot`, `Config`.

`@node` reads the type hints of a function (or of a class's `run`) and makes a `NodeDefinition` of them;
the function itself is left as it was, so that it can be called and tested as ever.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, overload

from pydantic import ValidationError

from tavern_host.context import NodeContext
from tavern_host.contracts.nodes import DataFlowType, NodeDefinition, SlotDefinition

F = TypeVar("F", bound=Callable[..., Any])

SINGLE_OUTPUT = "result"
"""The key of the output of a node whose return type is a plain value and whose slot names no key."""

_INFER: Any = object()

_TYPES: dict[Any, DataFlowType] = {
    str: DataFlowType.STRING,
    int: DataFlowType.INTEGER,
    float: DataFlowType.FLOAT,
    bool: DataFlowType.BOOLEAN,
    dict: DataFlowType.OBJECT,
    list: DataFlowType.ARRAY,
    bytes: DataFlowType.BINARY,
    Any: DataFlowType.WILDCARD,
}


@overload
def hookimpl(function: F) -> F: ...
@overload
def hookimpl(*, specname: str | None = None, tryfirst: bool = False, trylast: bool = False) -> Callable[[F], F]: ...


def hookimpl(
    function: F | None = None, *, specname: str | None = None, tryfirst: bool = False, trylast: bool = False
) -> F | Callable[[F], F]:
    """Mark a function as an implementation of a hook (the one it is named after, or `specname`).

    `tryfirst` and `trylast` place it before or after the other plugins' implementations.
    """

    def mark(implementation: F) -> F:
        implementation.tavern_impl = {  # type: ignore[attr-defined]  # pluggy reads its options here
            "wrapper": False,
            "hookwrapper": False,
            "optionalhook": False,
            "tryfirst": tryfirst,
            "trylast": trylast,
            "specname": specname,
        }
        return implementation

    return mark(function) if function is not None else mark


class Slot:
    """Describes an input or output slot in an annotation: `Annotated[str, Slot("The text.")]`.

    `key` names an output slot; `required` and `default` are inferred from the signature where they are
    not given. Other keyword arguments (`min`, `max`, `multiline`, `suggestions` …) are hints for the
    slot's control and go into its `config`.
    """

    def __init__(
        self,
        description: str | None = None,
        *,
        key: str | None = None,
        display_name: str | None = None,
        type: DataFlowType | str | None = None,
        required: bool | None = _INFER,
        multi: bool | None = None,
        match_categories: tuple[str, ...] | None = None,
        **config: Any,
    ) -> None:
        self.description = description
        self.key = key
        self.display_name = display_name
        self.type = DataFlowType(type) if type is not None else None
        self.required = required
        self.multi = multi
        self.match_categories = match_categories
        self.config = config

    def define(self, hint: Any, name: str, default: Any = inspect.Parameter.empty) -> SlotDefinition:
        """Return the slot's definition for a parameter `name` with the type `hint`. Raises `TypeError`."""
        config = dict(self.config)
        categories = self.match_categories
        optional = default is not inspect.Parameter.empty or "default" in config
        if default is not inspect.Parameter.empty and default is not None:
            config.setdefault("default", default)
        hint, may_be_none = _strip_optional(hint)
        if self.multi and typing.get_origin(hint) is list:
            hint = typing.get_args(hint)[0]
        if typing.get_origin(hint) is Literal:
            choices = typing.get_args(hint)
            if len({type(c) for c in choices}) > 1:
                raise TypeError(f"slot {name!r}: the choices of {hint} must all be of one type")
            config.setdefault("suggestions", [{"value": c, "label": str(c)} for c in choices])
            categories = categories or ("ComboOption",)
            hint = type(choices[0])
        values: dict[str, Any] = {
            "data_flow_type": self.type or _flow_type(hint, name),
            "display_name": self.display_name or name.replace("_", " "),
            "description": self.description,
            "required": (not optional and not may_be_none) if self.required is _INFER else self.required,
            "multi": self.multi,
            "match_categories": categories,
            "config": config or None,
        }
        try:
            return SlotDefinition(**{k: v for k, v in values.items() if v is not None})
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise TypeError(f"slot {name!r}: {where} is not a JSON value; defaults and hints must be JSON") from None


class Config(Slot):
    """Describes a parameter that comes from the node's configuration instead of an edge."""


@dataclass(frozen=True)
class NodeCode:
    """What `@node` keeps on the author's object: its definition and how to call it.

    `raw` nodes are called as `run(inputs, config)`; the others with one argument per slot.
    """

    definition: NodeDefinition
    target: Callable[..., Any]
    raw: bool
    parameters: tuple[str, ...] = ()
    config_parameters: tuple[str, ...] = ()
    context_parameter: str | None = None
    single_output: str | None = None
    is_class: bool = False
    blocking: bool = False


def node(
    *,
    type: str | None = None,
    namespace: str = "",
    category: str = "",
    display_name: str | None = None,
    description: str | None = None,
    definition: NodeDefinition | None = None,
    blocking: bool = False,
    **extra: Any,
) -> Callable[[F], F]:
    """Make a node of a function or class. The object is returned unchanged but for its mark.

    `type` defaults to the name in CamelCase, `description` to the docstring, `namespace` to the plugin's.
    Inputs, configuration and outputs are read from the hints: parameters are inputs, those annotated
    with `Config` are configuration, one annotated `NodeContext` gets the node's context; the result is
    one output, or several where the return type is a `TypedDict`. A class keeps state during one run:
    its constructor takes configuration, its `run` is the node.

    `blocking=True` runs a `def` function in a thread. With `definition` nothing is read from the hints
    and the function is called as `run(inputs, config)`. Raises `TypeError` naming what cannot be read.
    """

    def mark(target: F) -> F:
        name = getattr(target, "__name__", "node")
        if definition is not None:
            code = NodeCode(definition, target, raw=True, blocking=blocking)
        else:
            code = _read(
                target,
                {
                    "type": type or _camel(name),
                    "namespace": namespace,
                    "category": category,
                    "display_name": display_name or name.replace("_", " "),
                    "description": description or inspect.getdoc(target) or "",
                    **extra,
                },
                blocking,
            )
        handler = f"{target.__module__}:{target.__qualname__}"
        target.__tavern_node__ = _with_handler(code, handler)  # type: ignore[attr-defined]
        return target

    return mark


def nodes_of(module: types.ModuleType) -> list[NodeDefinition]:
    """Return the definitions of all `@node` objects that `module`, or a module beneath it, defines.

    Modules of a package are imported, in order of name.
    """
    modules = [module]
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), prefix=f"{module.__name__}."):
        __import__(info.name)
        modules.append(sys.modules[info.name])
    found: dict[str, NodeDefinition] = {}
    for member in modules:
        for value in vars(member).values():
            code = getattr(value, "__tavern_node__", None)
            if isinstance(code, NodeCode) and getattr(value, "__module__", None) == member.__name__:
                found[code.definition.handler] = code.definition
    return list(found.values())


def _with_handler(code: NodeCode, handler: str) -> NodeCode:
    from dataclasses import replace

    return replace(code, definition=code.definition.model_copy(update={"handler": handler}))


def _read(target: Any, about: dict[str, Any], blocking: bool) -> NodeCode:
    is_class = inspect.isclass(target)
    function = getattr(target, "run", None) if is_class else target
    if function is None:
        raise TypeError(f"{target.__qualname__}: a class node needs a method `run`")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{target.__qualname__}: a node returns its outputs; generator nodes are not supported")
    if blocking and inspect.iscoroutinefunction(function):
        raise TypeError(f"{target.__qualname__}: blocking=True is for `def` functions; this one is `async def`")
    hints = _hints(target, function)
    inputs: dict[str, SlotDefinition] = {}
    config: dict[str, SlotDefinition] = {}
    context_parameter = None
    parameters = list(inspect.signature(function).parameters.values())[1 if is_class else 0 :]
    for parameter in parameters:
        hint, slot = _split(_hint_of(target, parameter, hints))
        if hint is NodeContext:
            context_parameter = parameter.name
        elif isinstance(slot, Config):
            config[parameter.name] = _define(target, slot, hint, parameter.name, parameter.default)
        else:
            inputs[parameter.name] = _define(target, slot, hint, parameter.name, parameter.default)
    config_parameters = tuple(config)
    if is_class:
        config.update(_constructor_config(target, taken={*inputs, *config}))
    outputs, single = _outputs(target, hints.get("return", _INFER))
    definition = NodeDefinition(
        inputs=inputs, outputs=outputs, **({"config_schema": config} if config else {}), **about
    )
    return NodeCode(
        definition=definition,
        target=target,
        raw=False,
        parameters=tuple(inputs),
        config_parameters=config_parameters,
        context_parameter=context_parameter,
        single_output=single,
        is_class=is_class,
        blocking=blocking,
    )


def _hints(target: Any, function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{target.__qualname__}: a type hint uses {error.name!r}, which its module does not have when it runs; "
            "import it outside `if TYPE_CHECKING`"
        ) from None


def _hint_of(target: Any, parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(
            f"{target.__qualname__}: parameter {parameter.name!r} cannot be a slot; "
            "slots are passed by name, so *args, **kwargs and positional-only parameters are not possible"
        )
    if parameter.name not in hints:
        raise TypeError(f"{target.__qualname__}: parameter {parameter.name!r} has no type hint")
    return hints[parameter.name]


def _define(target: Any, slot: Slot | None, hint: Any, name: str, default: Any) -> SlotDefinition:
    try:
        return (slot or Slot()).define(hint, name, default)
    except TypeError as error:
        raise TypeError(f"{target.__qualname__}: {error}") from None


def _constructor_config(target: type, taken: set[str]) -> dict[str, SlotDefinition]:
    if target.__init__ is object.__init__:  # type: ignore[misc]
        return {}
    hints = _hints(target, target.__init__)  # type: ignore[misc]
    config = {}
    for parameter in inspect.signature(target).parameters.values():
        hint, slot = _split(_hint_of(target, parameter, hints))
        if parameter.name in taken:
            raise TypeError(
                f"{target.__qualname__}: both the constructor and `run` take {parameter.name!r}; rename one of them"
            )
        config[parameter.name] = _define(target, slot, hint, parameter.name, parameter.default)
    return config


def _outputs(target: Any, hint: Any) -> tuple[dict[str, SlotDefinition], str | None]:
    if hint is _INFER:
        raise TypeError(f"{target.__qualname__}: the return type has no hint")
    if hint is None or hint is type(None):
        return {}, None
    if hasattr(hint, "__required_keys__"):  # a TypedDict, of `typing` or of `typing_extensions`
        fields = _hints(target, hint)
        outputs = {}
        for name, field in fields.items():
            inner, slot = _split(field)
            outputs[name] = _output(target, inner, slot, name)
        return outputs, None
    inner, slot = _split(hint)
    key = (slot.key if slot else None) or SINGLE_OUTPUT
    return {key: _output(target, inner, slot, key)}, key


def _output(target: Any, hint: Any, slot: Slot | None, name: str) -> SlotDefinition:
    definition = _define(target, slot, hint, name, inspect.Parameter.empty)
    return definition.model_copy(update={"required": None})


def _split(hint: Any) -> tuple[Any, Slot | None]:
    if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
        hint = typing.get_args(hint)[0]
    rest, may_be_none = _strip_optional(hint)
    if may_be_none and typing.get_origin(rest) is Annotated:
        inner, slot = _split(rest)
        return inner | None, slot
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        return inner, next((m for m in metadata if isinstance(m, Slot)), None)
    return hint, None


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def _flow_type(hint: Any, name: str) -> DataFlowType:
    base = typing.get_origin(hint) or hint
    if base in _TYPES:
        return _TYPES[base]
    allowed = "str, int, float, bool, dict, list, bytes, Any or Literal"
    raise TypeError(f"slot {name!r}: {hint!r} has no data-flow type; use {allowed}, or give Slot(type=…)")


def _camel(name: str) -> str:
    return name if name[:1].isupper() else "".join(part[:1].upper() + part[1:] for part in name.split("_"))
