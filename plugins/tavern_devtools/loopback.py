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
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.contributions import ContributionKind, kind_of
from tavern_host.contracts.errors import InvalidInput, PluginFailure, TavernError, describe
from tavern_host.contracts.plugins import HookImplInfo, Problem
from tavern_host.contracts.services import ServiceInterface
from tavern_host.contracts.wire import Model, WireError, wire_problem
from tavern_host.runtime.boundary import Boundary, Method, called_like, signature_without_self
from tavern_host.runtime.codec import decode, decode_error, encode, encode_error
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.installed import first_party_part
from tavern_host.runtime.source import PluginSource
from tavern_host.storage.values import decode_loose, encode_loose

_END: Any = object()

SpecOf = Callable[[str], Callable[..., Any]]
"""Returns the function that specifies a hook."""


class Loopback(Boundary):
    """The boundary that encodes and decodes what crosses it."""

    def __init__(self, spec_of: SpecOf) -> None:
        super().__init__()
        self._spec_of = spec_of

    def runtime(self, source: PluginSource, context: PluginContext) -> InProcessRuntime:
        """Return a runtime of the host's process behind the boundary."""
        return LoopbackRuntime(source, context, self._spec_of)

    def method(self, plugin: str, interface: type[ServiceInterface], name: str, function: Method) -> Method:
        """Return a method of a service whose arguments, results, items and errors are encoded and decoded."""
        what = f"{interface.service_name}.{name}"
        crossing = Crossing(plugin, what, failure=f"{plugin} failed in {what}: ")
        return _carrying(function, _declared(getattr(interface, name)), crossing)


class LoopbackRuntime(InProcessRuntime):
    """Reaches a plugin's code in the host's process, from behind the boundary; see `in_process.InProcessRuntime`."""

    def __init__(self, source: PluginSource, context: PluginContext, spec_of: SpecOf) -> None:
        super().__init__(source, context)
        self._plugin = source.name
        self._spec_of = spec_of
        self._kinds: dict[str, ContributionKind] = {}

    def hookimpls(self, hooks: Collection[str]) -> tuple[list[HookImplInfo], list[Problem]]:
        """Return the hook implementations found, and those that can never be called."""
        infos, problems = super().hookimpls(round_trip(list(hooks), list[str]))
        return round_trip(infos, list[HookImplInfo]), round_trip(problems, list[Problem])

    def collect(self, hook: str) -> list[Any]:
        """Return the contributions to a hook of the modules that the manifest names."""
        items = super().collect(hook)
        return Crossing(self._plugin, hook).answer(items, self._hints(hook)["return"])  # type: ignore[no-any-return]

    def hook_function(self, info: HookImplInfo) -> Callable[..., Any]:
        """Return the hook implementation, with its arguments and its answer encoded and decoded."""
        function = super().hook_function(info)

        def declared() -> _Declared:
            # Looked up when it is called: a hook of the plugin's own is published after it was admitted.
            hints = self._hints(info.hook)
            answer = hints["return"] | None  # nothing is no answer, to any hook
            return _Declared(inspect.signature(function), {**hints, "return": answer})

        crossing = Crossing(self._plugin, info.hook, log=False)  # the dispatcher logs it
        return _carrying(function, declared, crossing, note=self._note)

    def open(self, handler: str | Model, *arguments: Any, **named: Any) -> Any:
        """Return a new instance of the class `handler`, or what runs a descriptor's handler; where the descriptor's
        kind says what it is, it is behind the boundary."""
        if not isinstance(handler, str):
            opened, transport = super().open(handler), kind_of(type(handler)).transport
            return opened if transport is None else first_party_part(transport)(opened, self._plugin, handler)
        crossing = Crossing(self._plugin, handler)
        sent = crossing.own_arguments(arguments)
        with crossing:
            opened = super().open(handler, *sent, **named)
        protocol = self._kinds.get(handler, ContributionKind()).protocol
        return opened if protocol is None else _Object(opened, protocol, self._plugin, handler)

    def call(self, handler: str, *arguments: Any) -> Any:
        """Call the function `handler`, with its arguments and its result encoded and decoded."""
        crossing = Crossing(self._plugin, handler)
        sent = crossing.own_arguments(arguments)
        with crossing:
            result = super().call(handler, *sent)
        annotation = self._answer_of(handler)

        def answered(value: Any) -> Any:
            if isinstance(value, AsyncIterator):
                return _streamed(lambda: value, annotation, crossing)
            return crossing.answer(value, annotation)

        return answered(result) if isinstance(result, AsyncIterator) else _returned(result, crossing, answered)

    def _hints(self, hook: str) -> dict[str, Any]:
        return typing.get_type_hints(self._spec_of(hook), include_extras=True)

    def _note(self, answer: Any) -> None:
        """Remember the kinds of the handlers that a hook's answer names."""
        for item in answer if isinstance(answer, list) else ():
            kind = kind_of(type(item))
            if kind.answer is not None or kind.protocol is not None:
                self._kinds[item.handler] = kind

    def _answer_of(self, handler: str) -> Any:
        """Return the annotation of what a handler returns: that of its kind, else its own hint, else JSON."""
        known = self._kinds.get(handler, ContributionKind()).answer
        if known is not None:
            return known
        try:
            hint = typing.get_type_hints(self.function(handler), include_extras=True).get("return", JsonValue)
        except Exception:  # a name that is not there, or whatever an annotation does when it is evaluated
            return JsonValue
        return JsonValue if wire_problem(hint) else hint


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

    def own_arguments(self, values: Iterable[Any]) -> list[Any]:
        """Return the arguments of a handler: a model as what it is, else data; a context is passed as it is."""
        return [
            value
            if isinstance(value, PluginContext)
            else self.argument(f"{number}", value, type(value) if isinstance(value, BaseModel) else JsonValue)
            for number, value in enumerate(values, start=1)
        ]

    def answer(self, value: Any, annotation: Any) -> Any:
        """Return a result as the host gets it. Raises `PluginFailure`."""
        try:
            return round_trip(value, annotation)
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
        return decode_error(encode_error(error, plugin=self._plugin))


def round_trip(value: Any, annotation: Any) -> Any:
    """Return a value as it is on the other side. Raises `WireError`."""
    return decode(encode(value, annotation), annotation)


def loose_trip(value: Any) -> Any:
    """Return a value of an edge as it is on the other side; parts without a codec stay the same objects."""
    return decode_loose(*encode_loose(value))


# --- functions --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Declared:
    """How a function is called, and what its arguments and result are; those without a hint are passed as they are."""

    signature: inspect.Signature
    hints: Mapping[str, Any]

    def sent(self, crossing: Crossing, args: Any, kwargs: Any) -> inspect.BoundArguments:
        """Return the arguments as the plugin gets them."""
        bound = self.signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            hint = self.hints.get(name)
            if typing.get_origin(hint) is AsyncIterator:
                carry = functools.partial(crossing.argument, name, annotation=_item_of(hint))
                bound.arguments[name] = CarriedStream(value, carry)
            elif name != "context":
                bound.arguments[name] = crossing.argument(name, value, hint)
        return bound


def _declared(method: Method) -> Callable[[], _Declared]:
    """Return how an interface declares a method, without its `self`."""

    return lambda: _Declared(signature_without_self(method), typing.get_type_hints(method, include_extras=True))


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

    def plain(*args: Any, **kwargs: Any) -> Any:
        sent = declared().sent(crossing, args, kwargs)
        annotation = declared().hints["return"]
        if typing.get_origin(annotation) is AsyncIterator:
            return _streamed(lambda: function(*sent.args, **sent.kwargs), annotation, crossing)
        with crossing:
            result = function(*sent.args, **sent.kwargs)
        return _returned(result, crossing, answered)

    return called_like(function, plain)


def _returned(result: Any, crossing: Crossing, answered: Callable[[Any], Any]) -> Any:
    """Return the caller's copy of a function's result: a value, or a coroutine of one."""

    async def finished() -> Any:
        with crossing:
            value = await result
        return answered(value)

    return finished() if isinstance(result, Coroutine) else answered(result)


def _streamed(begin: Callable[[], Any], annotation: Any, crossing: Crossing) -> AsyncGenerator[Any, None]:
    item_type = _item_of(annotation)
    return passed_on(begin, lambda item: crossing.answer(item, item_type), crossing)


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
    """Return the type of the items of the stream that an annotation is, or may be; itself, where it is none."""
    members = (annotation, *typing.get_args(annotation))
    stream = next((member for member in members if typing.get_origin(member) is AsyncIterator), None)
    return annotation if stream is None else typing.get_args(stream)[0]


# --- objects ----------------------------------------------------------------------------------------------


class _Object:
    """An object of a plugin with the methods of a protocol of the contracts, each behind the boundary."""

    def __init__(self, inner: Any, protocol: type, plugin: str, handler: str) -> None:
        for name, method in inspect.getmembers(protocol, inspect.isfunction):
            if not name.startswith("_") and hasattr(inner, name):
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
