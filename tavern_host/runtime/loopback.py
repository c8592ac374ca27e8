"""Plugins in the host's process, with everything that crosses their boundary made into bytes and back.

A plugin whose tests pass here keeps the rules that a separate process needs: values, not objects; wire types;
errors by their code. It is for tests and isolates nothing. `PluginContext` is passed as it is, and so are the methods
in it, whose values are encoded where they reach a service.
"""

from __future__ import annotations

import functools
import inspect
import logging
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from pydantic import BaseModel, JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.contributions import ContributionKind, kind_of
from tavern_host.contracts.errors import (
    ErrorInfo,
    InvalidInput,
    PluginFailure,
    TavernError,
    describe,
    error_info,
    error_of,
)
from tavern_host.contracts.plugins import HookImplInfo, Problem
from tavern_host.contracts.services import ServiceInterface
from tavern_host.contracts.wire import Model, wire_problem
from tavern_host.runtime.boundary import Method, RuntimeWrapper
from tavern_host.runtime.codec import WireError, decode, encode
from tavern_host.runtime.in_process import InProcessRuntime, PluginRuntime
from tavern_host.runtime.source import PluginSource, imported
from tavern_host.storage.values import decode_loose, encode_loose

_END: Any = object()
_UNKNOWN: Any = object()

SpecOf = Callable[[str], Callable[..., Any]]
"""Returns the function that specifies a hook."""


class Loopback:
    """The boundary; see `boundary.Boundary`."""

    def __init__(self, spec_of: SpecOf) -> None:
        self._spec_of = spec_of

    def runtime(self, source: PluginSource, context: PluginContext) -> PluginRuntime:
        """Return a runtime of the host's process behind the boundary."""
        return LoopbackRuntime(InProcessRuntime(source, context), source.name, self._spec_of)

    def method(self, plugin: str, interface: type[ServiceInterface], name: str, function: Method) -> Method:
        """Return a method of a service whose arguments, results, items and errors are encoded and decoded."""
        what = f"{interface.service_name}.{name}"
        crossing = Crossing(plugin, what, failure=f"{plugin} failed in {what}: ")
        return _carrying(function, _declared(getattr(interface, name)), crossing)


class LoopbackRuntime(RuntimeWrapper):
    """Reaches a plugin's code through another runtime; see `runtime.PluginRuntime`."""

    def __init__(self, inner: PluginRuntime, plugin: str, spec_of: SpecOf) -> None:
        super().__init__(inner)
        self._plugin = plugin
        self._spec_of = spec_of
        self._kinds: dict[str, ContributionKind] = {}

    def hookimpls(self) -> tuple[list[HookImplInfo], list[Problem]]:
        """Return the hook implementations found, and those that can never be used."""
        infos, problems = self._inner.hookimpls()
        return round_trip(infos, list[HookImplInfo]), round_trip(problems, list[Problem])

    def collect(self, hook: str) -> list[Any]:
        """Return what the modules that the manifest names contribute to a hook."""
        items = self._inner.collect(hook)
        hints = typing.get_type_hints(self._spec_of(hook), include_extras=True)
        return Crossing(self._plugin, hook).answer(items, hints["return"])  # type: ignore[no-any-return]

    def hook_function(self, info: HookImplInfo) -> Callable[..., Any]:
        """Return the hook implementation, with its arguments and its answer encoded and decoded."""
        function = self._inner.hook_function(info)

        def declared() -> _Declared:
            # Looked up when it is called: a hook of the plugin's own is published after it was admitted.
            hints = typing.get_type_hints(self._spec_of(info.hook), include_extras=True)
            answer = hints["return"] | None  # nothing is no answer, to any hook
            return _Declared(inspect.signature(function), {**hints, "return": answer})

        crossing = Crossing(self._plugin, info.hook, log=False)  # the dispatcher logs it
        return _carrying(function, declared, crossing, note=self._note)

    def open(self, handler: str | Model, *arguments: Any, **named: Any) -> Any:
        """Return a new instance of the class `handler`, or what runs a descriptor's handler; where the descriptor's
        kind says what it is, it is behind the boundary."""
        if not isinstance(handler, str):
            opened, carrier = self._inner.open(handler), kind_of(type(handler)).carrier
            return opened if carrier is None else imported(carrier)(opened, self._plugin, handler)
        crossing = Crossing(self._plugin, handler)
        sent = [crossing.own_argument(index, argument) for index, argument in enumerate(arguments)]
        with crossing:
            opened = self._inner.open(handler, *sent, **named)
        protocol = self._kinds.get(handler, ContributionKind()).protocol
        return opened if protocol is None else _Object(opened, protocol, self._plugin, handler)

    def call(self, handler: str, *arguments: Any) -> Any:
        """Call the function `handler`, with what it is given and what it returns encoded and decoded."""
        crossing = Crossing(self._plugin, handler)
        sent = [crossing.own_argument(index, argument) for index, argument in enumerate(arguments)]
        with crossing:
            result = self._inner.call(handler, *sent)
        annotation = self._answer_of(handler)
        if isinstance(result, Coroutine):
            return _awaited(result, annotation, crossing)
        if isinstance(result, AsyncIterator):
            return _streamed(lambda: result, _item_of(annotation), crossing)
        return crossing.answer(result, annotation)

    def _note(self, answer: Any) -> None:
        """Remember the kinds of the handlers that a hook's answer names."""
        for item in answer if isinstance(answer, list) else ():
            kind = kind_of(type(item))
            if kind.answer is not None or kind.protocol is not None:
                self._kinds[item.handler] = kind

    def _answer_of(self, handler: str) -> Any:
        """Return the annotation of what a handler returns: that of its kind, else its own hint, else `_UNKNOWN`."""
        known = self._kinds.get(handler, ContributionKind()).answer
        if known is not None:
            return known
        try:
            hint = typing.get_type_hints(self._inner.function(handler), include_extras=True).get("return", _UNKNOWN)
        except Exception:  # a name that is not there, or whatever an annotation does when it is evaluated
            return _UNKNOWN
        return _UNKNOWN if hint is not _UNKNOWN and wire_problem(hint) else hint


# --- one crossing -----------------------------------------------------------------------------------------


class Crossing:
    """One place where values cross the boundary: `what` of `plugin`. As a context manager, around the plugin's code:
    an error leaves it as a new one, made of its `ErrorInfo`."""

    def __init__(self, plugin: str, what: str, *, failure: str = "", log: bool = True) -> None:
        self._plugin = plugin
        self._what = f"{what} of {plugin}"
        self._failure = failure
        self._log = log

    def argument(self, name: str, value: Any, annotation: Any) -> Any:
        """Return an argument as the plugin gets it. Raises `InvalidInput`."""
        try:
            return round_trip(value, annotation)
        except WireError as error:
            raise InvalidInput(f"{self._what}: the argument {name} is no wire value: {error}") from None

    def own_argument(self, index: int, value: Any) -> Any:
        """Return an argument of a handler: a model as what it is, else data; a context is passed as it is."""
        if isinstance(value, PluginContext):
            return value
        return self.argument(f"{index + 1}", value, type(value) if isinstance(value, BaseModel) else JsonValue)

    def answer(self, value: Any, annotation: Any) -> Any:
        """Return a result as the host gets it; where nothing says what it is, JSON. Raises `PluginFailure`."""
        try:
            return round_trip(value, JsonValue if annotation is _UNKNOWN else annotation)
        except WireError as error:
            message = f"{self._what}: its result is no wire value: {error}"
            raise PluginFailure(message, plugin=self._plugin) from None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return  # none, or one that ends more than the call
        if self._log and not isinstance(error, TavernError):
            log = logging.getLogger(f"tavern.plugin.{self._plugin}")
            log.error("%s failed: %s", self._what, describe(error), exc_info=error)
        raise self._arrived(error) from error  # the cause is for the log; nothing decides by it

    def _arrived(self, error: Exception) -> TavernError:
        if not isinstance(error, TavernError):
            return PluginFailure(f"{self._failure}{describe(error)}", plugin=self._plugin)
        try:
            return error_of(round_trip(error_info(error), ErrorInfo))
        except (AttributeError, WireError):  # made without what ours have, or with details that cannot be sent
            return PluginFailure(describe(error), plugin=self._plugin)


def round_trip(value: Any, annotation: Any) -> Any:
    """Return a value as it is on the other side. Raises `WireError`."""
    return decode(encode(value, annotation), annotation)


def loose_trip(value: Any) -> Any:
    """Return a value of an edge as it is on the other side; parts without a codec stay the same objects."""
    return decode_loose(*encode_loose(value))


# --- functions --------------------------------------------------------------------------------------------


class _Declared:
    """How a function is called, and what its arguments and result are; those without a hint are passed as they are."""

    def __init__(self, signature: inspect.Signature, hints: Mapping[str, Any]) -> None:
        self.signature = signature
        self.hints = hints

    def sent(self, crossing: Crossing, args: Any, kwargs: Any) -> inspect.BoundArguments:
        """Return the arguments as the plugin gets them."""
        bound = self.signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            hint = self.hints.get(name)
            if typing.get_origin(hint) is AsyncIterator:
                bound.arguments[name] = _taken(value, name, _item_of(hint), crossing)
            elif name != "context":
                bound.arguments[name] = crossing.argument(name, value, hint)
        return bound


def _taken(items: AsyncIterator[Any], name: str, annotation: Any, crossing: Crossing) -> CarriedStream:
    """Return a stream that a caller passes, on the plugin's side."""
    return CarriedStream(items, lambda item: crossing.argument(name, item, annotation))


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
    crossing: Crossing,
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


async def _awaited(coroutine: Coroutine[Any, Any, Any], annotation: Any, crossing: Crossing) -> Any:
    with crossing:
        result = await coroutine
    return crossing.answer(result, annotation)


def _streamed(begin: Callable[[], Any], annotation: Any, crossing: Crossing) -> AsyncGenerator[Any, None]:
    return passed_on(begin, lambda item: crossing.answer(item, annotation), crossing)


async def passed_on(
    begin: Callable[[], Any], carry: Callable[[Any], Any], crossing: Crossing
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
                crossing = Crossing(plugin, f"{handler}.{name}", log=False)  # its holder logs what may be seen
                setattr(self, name, _carrying(getattr(inner, name), _declared(method), crossing))


class CarriedStream:
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
