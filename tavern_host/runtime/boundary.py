"""The boundary between the host and a plugin: where the plugin's code is reached, and observed.

Every call into a plugin goes through its runtime or through a method of a service, and those two are what a
boundary hands out. `InProcess` returns them as they are; the other boundary is in `loopback.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Literal, Protocol

from tavern_host.context import PluginContext
from tavern_host.contracts.events import Event
from tavern_host.contracts.plugins import HookImplInfo, Problem
from tavern_host.contracts.services import ServiceInterface
from tavern_host.contracts.wire import Model
from tavern_host.runtime.in_process import InProcessRuntime, PluginRuntime
from tavern_host.runtime.source import PluginSource

Method = Callable[..., Any]
Done = Callable[[Any, BaseException | None], None]
"""Is called with the result or the error of a call; for a stream, with the list of its items."""


class Observer(Protocol):
    """Observes calls and events, and changes nothing. What it raises is raised to the caller."""

    def called(self, kind: Literal["hook", "service"], plugin: str, name: str, arguments: dict[str, Any]) -> Done:
        """Observe that a call begins, of a hook or `service.method` of a plugin; return what is called when it ends."""

    def published(self, event: Event) -> None:
        """Observe an event, on the thread that publishes it."""


class Boundary(Protocol):
    """Hands out the two ways into a plugin."""

    def runtime(self, source: PluginSource, context: PluginContext) -> PluginRuntime:
        """Return what loads a plugin and reaches its code."""

    def method(self, plugin: str, interface: type[ServiceInterface], name: str, function: Method) -> Method:
        """Return how others call a method of a service that a plugin, or the host, provides."""


class InProcess:
    """No boundary but the rules."""

    def runtime(self, source: PluginSource, context: PluginContext) -> PluginRuntime:
        """Return the runtime of the host's own process."""
        return InProcessRuntime(source, context)

    def method(self, plugin: str, interface: type[ServiceInterface], name: str, function: Method) -> Method:
        """Return the method itself."""
        return function


class RuntimeWrapper:
    """A runtime that does what another one does; base of those that do one thing differently."""

    def __init__(self, inner: PluginRuntime) -> None:
        self._inner = inner

    def load(self) -> None:
        """Import the plugin's code."""
        self._inner.load()

    def hookimpls(self) -> tuple[list[HookImplInfo], list[Problem]]:
        """Return the hook implementations found, and those that can never be used."""
        return self._inner.hookimpls()

    def published(self, name: str) -> Any:
        """Return an interface or hookspec of the plugin."""
        return self._inner.published(name)

    def collect(self, hook: str) -> list[Any]:
        """Return what the modules that the manifest names contribute to a hook."""
        return self._inner.collect(hook)

    def hook_function(self, info: HookImplInfo) -> Callable[..., Any]:
        """Return the callable behind a hook implementation."""
        return self._inner.hook_function(info)

    def open(self, handler: str | Model, *arguments: Any, **named: Any) -> Any:
        """Return a new instance of the class `handler`, or what runs a descriptor's handler."""
        return self._inner.open(handler, *arguments, **named)

    def function(self, handler: str) -> Callable[..., Any]:
        """Return the function or class `handler` itself, to look at."""
        return self._inner.function(handler)

    def call(self, handler: str, *arguments: Any) -> Any:
        """Call the function `handler`."""
        return self._inner.call(handler, *arguments)

    def handler_problem(self, handler: str) -> str | None:
        """Return why a handler cannot be reached."""
        return self._inner.handler_problem(handler)

    def forget_modules(self) -> Callable[[], None]:
        """Let the next import of the plugin's package read its files again; return a function that undoes this."""
        return self._inner.forget_modules()

    def unload(self) -> None:
        """Forget the plugin's modules."""
        self._inner.unload()


class Observed:
    """Another boundary, with an observer in front of it."""

    def __init__(self, inner: Boundary, observer: Observer) -> None:
        self._inner = inner
        self._observer = observer

    def runtime(self, source: PluginSource, context: PluginContext) -> PluginRuntime:
        """Return the inner boundary's runtime, whose hook calls are observed."""
        return _ObservedRuntime(self._inner.runtime(source, context), self._observer)

    def method(self, plugin: str, interface: type[ServiceInterface], name: str, function: Method) -> Method:
        """Return the inner boundary's method, whose calls are observed."""
        declared = inspect.signature(getattr(interface, name))
        signature = declared.replace(parameters=list(declared.parameters.values())[1:])
        inner = self._inner.method(plugin, interface, name, function)
        begin = functools.partial(self._observer.called, "service", plugin, f"{interface.service_name}.{name}")
        return _observed(inner, signature, begin)


class _ObservedRuntime(RuntimeWrapper):
    def __init__(self, inner: PluginRuntime, observer: Observer) -> None:
        super().__init__(inner)
        self._observer = observer

    def hook_function(self, info: HookImplInfo) -> Callable[..., Any]:
        function = self._inner.hook_function(info)
        begin = functools.partial(self._observer.called, "hook", info.plugin, info.hook)
        return _observed(function, inspect.signature(function), begin)


def _observed(function: Method, signature: inspect.Signature, begin: Callable[[dict[str, Any]], Done]) -> Method:
    """Return `function` with an observer called before and after each call."""

    def begun(args: Any, kwargs: Any) -> Done:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return begin({name: value for name, value in bound.arguments.items() if name != "context"})

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        done = begun(args, kwargs)
        return await observed(function(*args, **kwargs), done)

    async def observed(awaitable: Any, done: Done) -> Any:
        try:
            result = await awaitable
        except BaseException as error:
            done(None, error)
            raise
        done(result, None)
        return result

    async def stream(items: AsyncIterator[Any], done: Done) -> AsyncIterator[Any]:
        given: list[Any] = []
        try:
            async for item in items:
                given.append(item)
                yield item
        except BaseException as error:
            done(given, None if isinstance(error, GeneratorExit) else error)  # the reader may leave before the end
            raise
        else:
            done(given, None)
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        done = begun(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            done(None, error)
            raise
        if inspect.iscoroutine(result):
            return observed(result, done)
        if isinstance(result, AsyncIterator):
            return stream(result, done)
        done(result, None)
        return result

    return call if inspect.iscoroutinefunction(function) else plain
