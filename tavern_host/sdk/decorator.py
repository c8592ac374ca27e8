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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, overload

from tavern_host.context import NodeContext, PluginContext
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.nodes import BypassBehavior, NodeDefinition, NodeTraits, SlotDefinition
from tavern_host.sdk.slots import Config, Slot, define_input, define_output, split, stream_item, strip_immutable

__all__ = ["SINGLE_OUTPUT", "Config", "NodeCode", "NodeFunction", "Slot", "hookimpl", "node", "nodes_of"]

F = TypeVar("F", bound=Callable[..., Any])

SINGLE_OUTPUT = "result"
"""The key of the output of a node whose return type is a plain value and whose slot names no key."""


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
        options = {"tryfirst": tryfirst, "trylast": trylast, "specname": specname}
        implementation.tavern_impl = options  # type: ignore[attr-defined]  # pluggy reads its options here
        return implementation

    return mark(function) if function is not None else mark


@dataclass(frozen=True)
class NodeFunction:
    """A function that answers for a node outside of its runs: `target(inputs, config)`, the plugin's context in
    `context_parameter` where it has one."""

    target: Callable[..., Any]
    context_parameter: str | None = None


@dataclass(frozen=True)
class NodeCode:
    """What `@node` stores on the author's object: its definition and how to call it.

    `raw` nodes are called as `run(inputs, config)`; the others with one argument per slot. `change` and `actions`
    are the functions behind the traits `checks_change` and `actions`. `binary` has the inputs that are hinted `bytes`
    or `Blob`, with which of them: either is given to the function as the other where need be. `immutable` are those
    that are hinted as `ImmutableJson`, too.
    """

    definition: NodeDefinition
    target: Callable[..., Any]
    raw: bool
    parameters: tuple[str, ...] = ()
    config_parameters: tuple[str, ...] = ()
    context_parameter: str | None = None
    single_output: str | None = None
    is_class: bool = False
    change: NodeFunction | None = None
    actions: Mapping[str, NodeFunction] = field(default_factory=dict)
    binary: Mapping[str, type] = field(default_factory=dict)
    immutable: tuple[str, ...] = ()


def node(
    *,
    type: str | None = None,
    namespace: str = "",
    category: str = "",
    display_name: str | None = None,
    description: str | None = None,
    version: str | None = None,
    definition: NodeDefinition | None = None,
    cached: bool = True,
    blocking: bool = False,
    isolated: bool = False,
    is_changed: Callable[..., Any] | None = None,
    actions: Mapping[str, Callable[..., Any]] | None = None,
    bypass: Literal["mute"] | Mapping[str, str] | None = None,
    **extra: Any,
) -> Callable[[F], F]:
    """Make a node of a function or class. The object is returned unchanged but for its mark.

    `type` defaults to the name in CamelCase, `description` to the docstring, `namespace` to the plugin's.
    Inputs, configuration and outputs are read from the hints: parameters are inputs, those annotated
    with `Config` are configuration, one annotated `NodeContext` gets the node's context; the result is
    one output, or several where the return type is a `TypedDict`. An async generator hinted `AsyncIterator[X]`
    streams: each item that it yields is one of its output, or, where `X` is a `TypedDict`, has some of its outputs.
    A parameter hinted `AsyncIterator[X]` is an input that is a stream. A class keeps state during one run:
    its constructor takes configuration, its `run` is the node.

    `cached=False` says that the same inputs may give other outputs; `is_changed` gives a value that differs when
    they will. `actions` are the buttons of the node's face, each with the function that it calls. Both are called
    with `(inputs, config)`, and the plugin's context in a parameter annotated `PluginContext`. `bypass` says what
    the node gives when it is bypassed: `"mute"`, or by output the input that it passes through.

    `blocking=True` runs a `def` function in a thread, `isolated=True` in a process of its own, which is killed when
    the run is interrupted; the context of an isolated one has all but the plugin's. With `definition` nothing else is
    read from the hints and the function is called as `run(inputs, config)`. Raises `TypeError` naming what cannot be
    read.
    """

    def mark(target: F) -> F:
        name = getattr(target, "__name__", "node")
        about = {
            "type": type or _camel(name),
            "namespace": namespace,
            "category": category,
            "display_name": display_name or name.replace("_", " "),
            "description": description or inspect.getdoc(target) or "",
            **extra,
        }
        update: dict[str, Any] = {"handler": f"{target.__module__}:{target.__qualname__}"}
        if version is not None:
            update["version"] = version
        try:
            code = _read(target, about) if definition is None else _raw(target, definition)
            code = replace(
                code,
                change=None if is_changed is None else _function(is_changed, "is_changed"),
                actions={key: _function(function, f"actions[{key!r}]") for key, function in (actions or {}).items()},
            )
            update["traits"] = _traits(code, _placement(code, blocking, isolated), cached)
            if bypass is not None:
                update["bypass_behavior"] = _bypass(code.definition, bypass)
        except TypeError as error:
            raise TypeError(f"{target.__qualname__}: {error}") from None
        code = replace(code, definition=code.definition.model_copy(update=update))
        target.__tavern_node__ = code  # type: ignore[attr-defined]
        return target

    return mark


def nodes_of(module: types.ModuleType) -> list[NodeDefinition]:
    """Return the definitions of all `@node` objects that `module`, or one of its submodules, defines.

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


def collect_nodes(module: types.ModuleType, *, plugin: str, namespace: str | None = None) -> list[NodeDefinition]:
    """Return `nodes_of(module)`; those without a namespace get `namespace`, or else the plugin's name."""
    default = namespace or plugin
    found = nodes_of(module)
    return [one if one.namespace else one.model_copy(update={"namespace": default}) for one in found]


# --- what can be read -------------------------------------------------------------------------------------


def _read(target: Any, about: dict[str, Any]) -> NodeCode:
    is_class = inspect.isclass(target)
    function = getattr(target, "run", None) if is_class else target
    if function is None:
        raise TypeError("a class node needs a method `run`")
    _refuse_plain_generator(function)
    hints = _hints(function)
    inputs: dict[str, SlotDefinition] = {}
    config: dict[str, SlotDefinition] = {}
    binary: dict[str, type] = {}
    immutable: list[str] = []
    context_parameter = None
    parameters = list(inspect.signature(function).parameters.values())[1 if is_class else 0 :]
    for parameter in parameters:
        hint, slot = split(_hint_of(parameter, hints))
        hint, takes_immutable = strip_immutable(hint)
        if hint is NodeContext:
            context_parameter = parameter.name
        else:
            kind = config if isinstance(slot, Config) else inputs
            kind[parameter.name] = define_input(slot, hint, parameter.name, parameter.default)
            held = (slot or Slot()).value_type(hint)
            if kind is inputs and held in (bytes, Blob):
                binary[parameter.name] = held
            if kind is inputs and takes_immutable:
                immutable.append(parameter.name)
    config_parameters = tuple(config)
    if is_class:
        config.update(_constructor_config(target, taken={*inputs, *config}))
    outputs, single = _outputs(function, hints)
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
        binary=binary,
        immutable=tuple(immutable),
    )


def _raw(target: Any, definition: NodeDefinition) -> NodeCode:
    if inspect.isclass(target):
        raise TypeError("with `definition` a function is expected, not a class")
    _refuse_plain_generator(target)
    return NodeCode(definition, target, raw=True, context_parameter=_context_parameter(target, NodeContext, "it"))


def _refuse_plain_generator(function: Any) -> None:
    if inspect.isgeneratorfunction(function):
        raise TypeError("a node that streams is an async generator; make it `async def`")


def _function(function: Any, what: str) -> NodeFunction:
    if not callable(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{what} must be a function that returns, got {function!r:.80}")
    return NodeFunction(function, _context_parameter(function, PluginContext, what))


def _context_parameter(function: Any, context: type, what: str) -> str | None:
    """Return which parameter beside `(inputs, config)` gets the context. Raises `TypeError` for any other."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise TypeError(f"{what} must be a Python function, got {function!r:.80}") from None
    rest = [p for p in parameters[2:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    hints = _hints(function) if rest else {}
    found = None
    for parameter in rest:
        if split(hints.get(parameter.name))[0] is context:
            found = parameter.name
        elif parameter.default is parameter.empty:
            raise TypeError(
                f"{what} is called with (inputs, config), and a context in a parameter annotated "
                f"{context.__name__}; {parameter.name!r} is none of them"
            )
    try:
        inspect.signature(function).bind({}, {}, **({found: None} if found else {}))
    except TypeError as error:
        raise TypeError(f"{what} is called with (inputs, config): {error}") from None
    return found


# --- how it may be run ------------------------------------------------------------------------------------


def _placement(code: NodeCode, blocking: bool, isolated: bool) -> Literal["loop", "thread", "process"]:
    """Return the placement that was asked for. Raises `TypeError` where the function cannot be run so."""
    declared = code.definition.traits.placement
    blocking, isolated = blocking or declared == "thread", isolated or declared == "process"
    target: Any = code.target
    name, option = target.__qualname__, "isolated=True" if isolated else "blocking=True"
    if not blocking and not isolated:
        return "loop"
    if blocking and isolated:
        raise TypeError("blocking=True and isolated=True exclude each other")
    function = target.run if code.is_class else target
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{option} is for `def` functions; this one is `async def`")
    streams = [key for key, slot in code.definition.inputs.items() if slot.is_stream]
    if streams:
        raise TypeError(f"{option} is for functions without streams; {streams[0]!r} is one")
    if blocking:
        return "thread"
    if not inspect.isfunction(target) or target.__qualname__ != target.__name__ or not name.isidentifier():
        raise TypeError("isolated=True is for `def` functions of a module, which another process can import")
    return "process"


def _traits(code: NodeCode, placement: Literal["loop", "thread", "process"], cached: bool) -> NodeTraits:
    declared = code.definition.traits
    function = getattr(code.target, "run", code.target) if code.is_class else code.target
    return NodeTraits(
        streams=inspect.isasyncgenfunction(function),
        stateful=code.is_class,
        placement=placement,
        cached=cached and declared.cached,
        checks_change=code.change is not None,
        wants_call=code.context_parameter is not None,
        actions=tuple(code.actions),
        takes_immutable=code.immutable,
    )


def _bypass(
    definition: NodeDefinition, bypass: Literal["mute"] | Mapping[str, str]
) -> Literal["mute"] | BypassBehavior:
    if isinstance(bypass, str):
        if bypass != "mute":
            raise TypeError(f"bypass is 'mute' or a dict of outputs and inputs, got {bypass!r}")
        return "mute"
    inputs, outputs = dict(definition.inputs), dict(definition.outputs)
    for mode in (definition.modes or {}).values():
        inputs.update(mode.inputs)
        outputs.update(mode.outputs)
    for output, source in () if definition.dynamic_slots else bypass.items():
        if output not in outputs or source not in inputs:
            wrong = f"output {output!r}" if output not in outputs else f"input {source!r}"
            raise TypeError(f"bypass names the {wrong}, which the node does not have")
    return BypassBehavior(pass_through=dict(bypass))


# --- hints ------------------------------------------------------------------------------------------------


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"a type hint uses {error.name!r}, which its module does not have when it runs; "
            "import it outside `if TYPE_CHECKING`"
        ) from None


def _hint_of(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(
            f"parameter {parameter.name!r} cannot be a slot; "
            "slots are passed by name, so *args, **kwargs and positional-only parameters are not possible"
        )
    if parameter.name not in hints:
        raise TypeError(f"parameter {parameter.name!r} has no type hint")
    return hints[parameter.name]


def _constructor_config(target: type, taken: set[str]) -> dict[str, SlotDefinition]:
    if target.__init__ is object.__init__:  # type: ignore[misc]
        return {}
    hints = _hints(target.__init__)  # type: ignore[misc]
    config = {}
    for parameter in inspect.signature(target).parameters.values():
        hint, slot = split(_hint_of(parameter, hints))
        if parameter.name in taken:
            raise TypeError(f"both the constructor and `run` take {parameter.name!r}; rename one of them")
        config[parameter.name] = define_input(slot, hint, parameter.name, parameter.default)
    return config


def _outputs(function: Any, hints: Mapping[str, Any]) -> tuple[dict[str, SlotDefinition], str | None]:
    """Return the outputs, and the key of the only one where the result, or each item, is its value."""
    if "return" not in hints:
        raise TypeError("the return type has no hint")
    streams = inspect.isasyncgenfunction(function)
    hint = hints["return"]
    inner, slot = split(hint)
    item, hinted = stream_item(inner)
    if streams != hinted:
        expected = "AsyncIterator[…] of what it yields" if streams else "that of a value; only async generators stream"
        raise TypeError(f"its return type must be {expected}")
    if not streams and (hint is None or hint is type(None)):
        return {}, None
    if not hasattr(item, "__required_keys__"):  # no TypedDict, of `typing` or of `typing_extensions`
        key = (slot.key if slot else None) or SINGLE_OUTPUT
        return {key: define_output(slot, item, key, single=True, streams=streams)}, key
    outputs = {}
    for name, annotated in _hints(item).items():
        value, slot = split(annotated)
        outputs[name] = define_output(slot, value, name, single=False, streams=streams)
    if streams and not any(output.is_stream for output in outputs.values()):
        raise TypeError(
            f"no field of {item.__name__} is marked Slot(stream=True); "
            "for a stream of dicts the hint is AsyncIterator[dict[str, Any]]"
        )
    return outputs, None


def _camel(name: str) -> str:
    return name if name[:1].isupper() else "".join(part[:1].upper() + part[1:] for part in name.split("_"))
