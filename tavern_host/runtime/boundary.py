"""The boundary between the host and a plugin: where the plugin's code is reached, and observed.

Every call into a plugin goes through its runtime or through a method of a service, and those two are what a
boundary hands out. `Boundary` returns them as they are; placements of first-party plugins have others. Who observes a
plugin's calls is asked where they are made: a load's `InFlight.observer`, and when a method is bound to a view.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Literal, Protocol

from tavern_host.context import PluginContext
from tavern_host.contracts.events import Event
from tavern_host.contracts.services import ServiceInterface
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.installed import first_party_part
from tavern_host.runtime.source import PluginSource

Method = Callable[..., Any]
Done = Callable[[Any, BaseException | None], None]
"""Is called with the result or the error of a call; for a stream, with the list of its items."""

Called = Literal["hook", "service", "handler"]
"""What of a plugin is called: a hook implementation, `service.method`, or what a route, a command or a tool names."""


class Observer(Protocol):
    """Observes calls and events, and changes nothing. What it raises is raised to the caller. `items` is how many items
    of a stream, the last ones, are kept for its `Done`; None for all."""

    items: int | None

    def called(self, kind: Called, plugin: str, name: str, caller: str, arguments: dict[str, Any]) -> Done:
        """Observe that a plugin is called; return what is called when that ends. `caller` is the service that calls a
        hook, the plugin or user whose view a method is called through, or empty."""

    def published(self, event: Event) -> None:
        """Observe an event, on the thread that publishes it."""


class Boundary:
    """Hands out the ways into a plugin; this one, those of the host's own process, with no boundary but the rules, and
    into a process of its own where the plugin is placed so."""

    def __init__(self, catalogue: object = None, setting: Callable[[str], Any] = lambda key: None) -> None:
        """Take what parts of the host need that place plugins: what it knows of services and hooks, and what the
        operator says for the full key of a setting."""
        self._catalogue = catalogue
        self._setting = setting
        self.observers: dict[str, Observer] = {}
        """Who observes a plugin's calls, by its name; by the empty one, those of all others."""

    def observer_of(self, plugin: str) -> Observer | None:
        """Return who observes the calls of a plugin."""
        return self.observers.get(plugin) or self.observers.get("")

    def runtime(self, source: PluginSource, context: PluginContext) -> InProcessRuntime:
        """Return the runtime that loads a plugin and reaches its code."""
        if source.placement == "in-process":
            return InProcessRuntime(source, context)
        place = first_party_part("placement:isolated")
        return place(source, context, self._catalogue, self._setting)  # type: ignore[no-any-return]

    def method(self, plugin: str, interface: type[ServiceInterface], name: str, function: Method) -> Method:
        """Return how others call a method of a service that a plugin, or the host, provides."""
        return function


def signature_without_self(method: Method) -> inspect.Signature:
    """Return how a method that a class declares is called on an instance."""
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def called_like(function: Method, plain: Method) -> Method:
    """Return `plain` as a coroutine function where `function` is one; `plain` returns an awaitable then."""

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await plain(*args, **kwargs)

    return call if inspect.iscoroutinefunction(function) else functools.wraps(function)(plain)


def observed(
    function: Method, signature: inspect.Signature, observer: Observer, *what: *tuple[Called, str, str, str]
) -> Method:
    """Return `function` with an observer called before and after each call; `what` is its kind, plugin, name and
    caller."""

    def begun(args: Any, kwargs: Any) -> Done:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return observer.called(*what, {name: value for name, value in bound.arguments.items() if name != "context"})

    async def stream(items: AsyncIterator[Any], done: Done) -> AsyncIterator[Any]:
        given = deque[Any](maxlen=observer.items)
        try:
            async for item in items:
                given.append(item)
                yield item
        except BaseException as error:
            done([*given], None if isinstance(error, GeneratorExit) else error)  # the reader may leave before the end
            raise
        else:
            done([*given], None)
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    def plain(*args: Any, **kwargs: Any) -> Any:
        done = begun(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            done(None, error)
            raise
        if inspect.iscoroutine(result):
            return awaited(result, done)
        if isinstance(result, AsyncIterator):
            return stream(result, done)
        done(result, None)
        return result

    return called_like(function, plain)


async def awaited(awaitable: Awaitable[Any], done: Done) -> Any:
    """Await a call, and say to its observer how it ended."""
    try:
        result = await awaitable
    except BaseException as error:
        done(None, error)
        raise
    done(result, None)
    return result
