"""Plugins in the host's process, with everything that crosses their boundary made into bytes and back.

A plugin whose tests pass here keeps the rules that a process of its own needs: values, not objects; types that
the wire knows; errors by their code (DESIGN §3, *Rules of the contracts*). It is for tests and contains nothing.
`PluginContext` is handed over as it is, and so are the methods in it, which cross the boundary where they end.
"""

from __future__ import annotations

import functools
import inspect
import logging
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from pydantic import BaseModel, JsonValue

from tavern_host import hookspecs
from tavern_host.context import PluginContext
from tavern_host.contracts.commands import CommandInfo, CommandOutput
from tavern_host.contracts.errors import (
    ErrorInfo,
    InvalidInput,
    PluginFailure,
    TavernError,
    describe,
    error_info,
    error_of,
)
from tavern_host.contracts.http import HttpRequest, HttpResponse, SocketMessage, SocketReply
from tavern_host.contracts.llm import LlmAdapter, LlmAdapterInfo
from tavern_host.contracts.macros import MacroRequest
from tavern_host.contracts.nodes import DirectCall, ItemStream, NodeCall, NodeDefinition, NodeInstance, NodeRunner
from tavern_host.contracts.plugins import HookImplInfo, Problem
from tavern_host.contracts.protocols import ActionParser, ActionProtocolInfo
from tavern_host.contracts.services import ServiceInterface
from tavern_host.contracts.wire import wire_problem
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.plugins.discovery import Record
from tavern_host.runtime.boundary import Method, RuntimeWrapper
from tavern_host.runtime.codec import WireError, decode, decode_loose, encode, encode_loose
from tavern_host.runtime.in_process import InProcessRuntime, PluginRuntime

_END: Any = object()
_UNKNOWN: Any = object()

_PROTOCOLS: dict[type[BaseModel], type] = {LlmAdapterInfo: LlmAdapter, ActionProtocolInfo: ActionParser}
"""What the class behind the `handler` of a descriptor is, where a contract says it."""

_ANSWERS: dict[type[BaseModel], Any] = {
    HttpRequest: HttpResponse,
    SocketMessage: list[SocketReply],
    MacroRequest: str,
}
"""What a handler returns, by what it is given."""


class Loopback:
    """The boundary; see `boundary.Boundary`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def runtime(self, record: Record, context: PluginContext) -> PluginRuntime:
        """Return a runtime of the host's process behind the boundary."""
        return LoopbackRuntime(InProcessRuntime(record, context), record.name, self._catalogue)

    def method(self, plugin: str, interface: type[ServiceInterface], name: str, function: Method) -> Method:
        """Return a method of a service whose arguments, results, items and errors are encoded and decoded."""
        what = f"{interface.service_name}.{name}"
        crossing = _Crossing(plugin, what, failure=f"{plugin} failed in {what}: ")
        return _carrying(function, _declared(getattr(interface, name)), crossing)


class LoopbackRuntime(RuntimeWrapper):
    """Reaches a plugin's code through another runtime; see `runtime.PluginRuntime`."""

    def __init__(self, inner: PluginRuntime, plugin: str, catalogue: Catalogue) -> None:
        super().__init__(inner)
        self._plugin = plugin
        self._catalogue = catalogue
        self._objects: dict[str, type] = {}
        self._commands: set[str] = set()

    def hookimpls(self) -> tuple[list[HookImplInfo], list[Problem]]:
        """Return the hook implementations found, and those that can never be used."""
        infos, problems = self._inner.hookimpls()
        return _round_trip(infos, list[HookImplInfo]), _round_trip(problems, list[Problem])

    def nodes(self) -> list[NodeDefinition]:
        """Return the node types under the manifest's `nodes.entry`."""
        nodes = self._inner.nodes()
        return _Crossing(self._plugin, "nodes.entry").answer(nodes, list[NodeDefinition])  # type: ignore[no-any-return]

    def hook_function(self, info: HookImplInfo) -> Callable[..., Any]:
        """Return the hook implementation, with its arguments and its answer encoded and decoded."""
        function = self._inner.hook_function(info)

        def declared() -> _Declared:
            # Looked up when it is called: a hook of the plugin's own is published after it was admitted.
            spec = self._catalogue.published_specs.get(info.hook) or getattr(hookspecs, info.hook)
            hints = typing.get_type_hints(spec, include_extras=True)
            answer = hints["return"] | None  # nothing is no answer, to any hook
            return _Declared(inspect.signature(function), {**hints, "return": answer})

        crossing = _Crossing(self._plugin, info.hook, log=False)  # the dispatcher logs it
        return _carrying(function, declared, crossing, note=self._note)

    def open(self, handler: str, *arguments: Any, **named: Any) -> Any:
        """Return a new instance of the class `handler`; where a contract says what it is, it is behind the boundary."""
        crossing = _Crossing(self._plugin, handler)
        sent = [crossing.own_argument(index, argument) for index, argument in enumerate(arguments)]
        with crossing:
            opened = self._inner.open(handler, *sent, **named)
        protocol = self._objects.get(handler)
        return opened if protocol is None else _Object(opened, protocol, self._plugin, handler)

    def call(self, handler: str, *arguments: Any) -> Any:
        """Call the function `handler`, with what it is given and what it returns encoded and decoded."""
        crossing = _Crossing(self._plugin, handler)
        sent = [crossing.own_argument(index, argument) for index, argument in enumerate(arguments)]
        with crossing:
            result = self._inner.call(handler, *sent)
        annotation = self._answer_of(handler, arguments)
        if isinstance(result, Coroutine):
            return _awaited(result, annotation, crossing)
        if isinstance(result, AsyncIterator):
            return _streamed(lambda: result, _item_of(annotation), crossing)
        return crossing.answer(result, annotation)

    def node_runner(self, definition: NodeDefinition) -> NodeRunner:
        """Return the runner of a node type, with values and configuration encoded and decoded."""
        return carried_runner(self._inner.node_runner(definition), self._plugin, definition)

    def _note(self, answer: Any) -> None:
        """Remember what the handlers are that a hook's answer names."""
        for item in answer if isinstance(answer, list) else ():
            if isinstance(item, CommandInfo):
                self._commands.add(item.handler)
            elif type(item) in _PROTOCOLS:
                self._objects[item.handler] = _PROTOCOLS[type(item)]

    def _answer_of(self, handler: str, arguments: tuple[Any, ...]) -> Any:
        """Return the annotation of what a handler returns: by contract, else by its own hints, else `_UNKNOWN`."""
        kind = type(arguments[0]) if arguments else None
        if kind in _ANSWERS:
            return _ANSWERS[kind]
        if handler in self._commands:
            return AsyncIterator[CommandOutput]
        try:
            hint = typing.get_type_hints(self._inner.function(handler), include_extras=True).get("return", _UNKNOWN)
        except Exception:  # a name that is not there, or whatever an annotation does when it is evaluated
            return _UNKNOWN
        return _UNKNOWN if hint is not _UNKNOWN and wire_problem(hint) else hint


# --- one crossing -----------------------------------------------------------------------------------------


class _Crossing:
    """What crosses the boundary at one place: `what` of `plugin`. As a context manager, around the plugin's code:
    an error leaves it as a new one, made of its `ErrorInfo`."""

    def __init__(self, plugin: str, what: str, *, failure: str = "", log: bool = True) -> None:
        self._plugin = plugin
        self._what = f"{what} of {plugin}"
        self._failure = failure
        self._log = log

    def argument(self, name: str, value: Any, annotation: Any) -> Any:
        """Return an argument as the plugin gets it. Raises `InvalidInput`."""
        try:
            return _round_trip(value, annotation)
        except WireError as error:
            raise InvalidInput(f"{self._what}: the argument {name} is no wire value: {error}") from None

    def own_argument(self, index: int, value: Any) -> Any:
        """Return an argument of a handler: a model as what it is, else data; a context is handed over."""
        if isinstance(value, PluginContext):
            return value
        return self.argument(f"{index + 1}", value, type(value) if isinstance(value, BaseModel) else JsonValue)

    def answer(self, value: Any, annotation: Any) -> Any:
        """Return a result as the host gets it; where nothing says what it is, JSON. Raises `PluginFailure`."""
        try:
            return _round_trip(value, JsonValue if annotation is _UNKNOWN else annotation)
        except WireError as error:
            message = f"{self._what}: its result is no wire value: {error}"
            raise PluginFailure(message, plugin=self._plugin) from None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return  # none, or one that ends more than a call
        if self._log and not isinstance(error, TavernError):
            log = logging.getLogger(f"tavern.plugin.{self._plugin}")
            log.error("%s failed: %s", self._what, describe(error), exc_info=error)
        raise self._arrived(error) from error  # its cause is for the log and for who mends it; nothing decides by it

    def _arrived(self, error: Exception) -> TavernError:
        if not isinstance(error, TavernError):
            return PluginFailure(f"{self._failure}{describe(error)}", plugin=self._plugin)
        try:
            return error_of(_round_trip(error_info(error), ErrorInfo))
        except (AttributeError, WireError):  # made without what ours have, or with details that cannot be sent
            return PluginFailure(describe(error), plugin=self._plugin)


def _round_trip(value: Any, annotation: Any) -> Any:
    return decode(encode(value, annotation), annotation)


def _loose_trip(value: Any) -> Any:
    return decode_loose(*encode_loose(value))


# --- functions --------------------------------------------------------------------------------------------


class _Declared:
    """How a function is called, and what its arguments and result are; those without a hint are handed over."""

    def __init__(self, signature: inspect.Signature, hints: Mapping[str, Any]) -> None:
        self.signature = signature
        self.hints = hints

    def sent(self, crossing: _Crossing, args: Any, kwargs: Any) -> inspect.BoundArguments:
        """Return the arguments as the plugin gets them."""
        bound = self.signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            hint = self.hints.get(name)
            if typing.get_origin(hint) is AsyncIterator:
                bound.arguments[name] = _taken(value, name, _item_of(hint), crossing)
            elif name != "context":
                bound.arguments[name] = crossing.argument(name, value, hint)
        return bound


def _taken(items: AsyncIterator[Any], name: str, annotation: Any, crossing: _Crossing) -> _Stream:
    """Return a stream that a caller hands over, on the plugin's side."""
    return _Stream(items, lambda item: crossing.argument(name, item, annotation))


def _declared(method: Method) -> Callable[[], _Declared]:
    """Return how an interface declares a method, without its `self`."""

    @functools.cache
    def declared() -> _Declared:
        signature = inspect.signature(method)
        parameters = list(signature.parameters.values())[1:]
        return _Declared(signature.replace(parameters=parameters), typing.get_type_hints(method, include_extras=True))

    return declared


def _carrying(
    function: Method,
    declared: Callable[[], _Declared],
    crossing: _Crossing,
    note: Callable[[Any], None] = lambda answer: None,
) -> Method:
    """Return a function that is called like `function`, on the other side of the boundary."""
    declared = functools.cache(declared)

    def answered(value: Any) -> Any:
        answer = crossing.answer(value, declared().hints["return"])
        note(answer)
        return answer

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        sent = declared().sent(crossing, args, kwargs)
        with crossing:
            result = await function(*sent.args, **sent.kwargs)
        return answered(result)

    async def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with crossing:
            result = await coroutine
        return answered(result)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        sent = declared().sent(crossing, args, kwargs)
        result = declared().hints["return"]
        if typing.get_origin(result) is AsyncIterator:
            return _streamed(lambda: function(*sent.args, **sent.kwargs), _item_of(result), crossing)
        with crossing:
            given = function(*sent.args, **sent.kwargs)
        return finished(given) if isinstance(given, Coroutine) else answered(given)

    return call if inspect.iscoroutinefunction(function) else plain


async def _awaited(coroutine: Coroutine[Any, Any, Any], annotation: Any, crossing: _Crossing) -> Any:
    with crossing:
        result = await coroutine
    return crossing.answer(result, annotation)


def _streamed(begin: Callable[[], Any], annotation: Any, crossing: _Crossing) -> AsyncGenerator[Any, None]:
    return _passed_on(begin, lambda item: crossing.answer(item, annotation), crossing)


async def _passed_on(
    begin: Callable[[], Any], carry: Callable[[Any], Any], crossing: _Crossing
) -> AsyncGenerator[Any, None]:
    """Yield what a stream gives, each item as `carry` makes it; it is closed when its reader leaves."""
    items: Any = None
    try:
        with crossing:
            items = aiter(begin())
        while True:
            with crossing:
                item = await anext(items, _END)
            if item is _END:
                return
            yield carry(item)
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            with crossing:
                await close()


def _item_of(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is AsyncIterator else annotation


# --- objects ----------------------------------------------------------------------------------------------


class _Object:
    """An object of a plugin with the methods of a protocol of the contracts, each behind the boundary."""

    def __init__(self, inner: Any, protocol: type, plugin: str, handler: str) -> None:
        for name, method in vars(protocol).items():
            if inspect.isfunction(method) and not name.startswith("_") and hasattr(inner, name):
                crossing = _Crossing(plugin, f"{handler}.{name}", log=False)  # who holds it logs what may be seen
                setattr(self, name, _carrying(getattr(inner, name), _declared(method), crossing))


def carried_runner(runner: NodeRunner, plugin: str, definition: NodeDefinition) -> NodeRunner:
    """Return the runner of a node type of a plugin, behind the boundary."""
    return _Runner(runner, _Crossing(plugin, f"node {definition.type}", log=False))  # the engine logs it


class _Runner:
    """A `NodeRunner` behind the boundary."""

    def __init__(self, inner: NodeRunner, crossing: _Crossing) -> None:
        self._inner = inner
        self._crossing = crossing

    def open(self, config: dict[str, Any]) -> NodeInstance:
        with self._crossing:
            return _Instance(self._inner.open(_loose_trip(config)), self._crossing)

    async def change(self, inputs: dict[str, Any], config: dict[str, Any]) -> JsonValue:
        with self._crossing:
            value = await self._inner.change(_loose_trip(inputs), _loose_trip(config))
        return self._crossing.answer(value, JsonValue)  # type: ignore[no-any-return]

    async def act(self, action: str, inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, JsonValue]:
        with self._crossing:
            changed = await self._inner.act(action, _loose_trip(inputs), _loose_trip(config))
        return self._crossing.answer(changed, dict[str, JsonValue])  # type: ignore[no-any-return]


class _Instance:
    """A `NodeInstance` behind the boundary. Of values on edges, those without a codec stay in memory (rule 8)."""

    direct: DirectCall | None = None

    def __init__(self, inner: NodeInstance, crossing: _Crossing) -> None:
        self._inner = inner
        self._crossing = crossing
        self.items: ItemStream | None = self._items if inner.items is not None else None

    async def run(self, inputs: dict[str, Any], node_call: NodeCall | None) -> dict[str, Any]:
        with self._crossing:
            outputs = await self._inner.run(_sent(inputs), _round_trip(node_call, NodeCall | None))
        return _loose_trip(outputs)  # type: ignore[no-any-return]

    def stream(self, inputs: dict[str, Any], node_call: NodeCall | None) -> AsyncIterator[dict[str, Any]]:
        sent = _sent(inputs)
        call = _round_trip(node_call, NodeCall | None)
        return _passed_on(lambda: self._inner.stream(sent, call), _loose_trip, self._crossing)

    def _items(self, inputs: dict[str, Any], node_call: NodeCall | None) -> AsyncIterator[Any]:
        assert self._inner.items is not None
        items, sent, call = self._inner.items, _sent(inputs), _round_trip(node_call, NodeCall | None)
        return _passed_on(lambda: items(sent, call), _loose_trip, self._crossing)

    async def close(self) -> None:
        with self._crossing:
            await self._inner.close()


def _sent(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs as the plugin gets them: of a stream, every item when it is read."""
    return {
        key: _Stream(value, _loose_trip) if isinstance(value, AsyncIterator) else _loose_trip(value)
        for key, value in inputs.items()
    }


class _Stream:
    """A stream that a plugin reads, on its side of the boundary; `carry` takes each item across."""

    def __init__(self, items: AsyncIterator[Any], carry: Callable[[Any], Any]) -> None:
        self._items = items
        self._carry = carry

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return self._carry(await anext(self._items))

    async def aclose(self) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()
