"""Providers of services, and calls of their methods: failures are attributed, calls are counted as in flight.

Which provider is called, and who may call it, is decided in `registry` and `views`.
"""

from __future__ import annotations

import contextlib
import inspect
from asyncio import current_task
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from tavern_host import clock
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import PluginFailure, Recursion, ServiceUnavailable, TavernError, describe
from tavern_host.contracts.services import MethodInfo, ServiceInterface, marked_like
from tavern_host.runtime.deadline import ENDED, next_item, settled
from tavern_host.runtime.in_flight import CallInTask, InFlight
from tavern_host.runtime.issued import handed_over
from tavern_host.services.views import ViewHandle

Report = Callable[[str, str, BaseException], object]
"""Records a plugin's failure: plugin, where, exception."""

MAX_NESTED = 16
"""How often an override may be called within a call of itself."""


@dataclass(eq=False)
class Provider:
    """One layer of a service's stack. `original` is an override's view of the next provider in the stack.

    With `report`, exceptions of the provider other than the host's errors are reported and reach callers as
    `plugin_error`. With `in_flight`, its calls count as work in flight of the plugin. With `opening`, the instance is
    made by it at the first call.
    """

    plugin: str
    handler: str
    service: str
    version: int
    instance: Any = None
    override: bool = False
    original: ViewHandle | None = None
    report: Report | None = None
    in_flight: InFlight | None = None
    interfaces: Mapping[str, type[ServiceInterface]] = field(default_factory=dict)
    since: datetime = field(default_factory=clock.now)
    opening: Callable[[], Any] | None = None
    on_opened: Callable[[], None] | None = None

    @cached_property
    def interface(self) -> type[ServiceInterface]:
        """That of the service; one that is only named is imported when somebody asks for it."""
        return self.interfaces[self.service]

    def opened(self) -> Any:
        """Return the instance, made if necessary. Raises `ServiceUnavailable` after `close`."""
        if self.instance is None:
            if self.opening is None:
                raise ServiceUnavailable(f"no plugin provides the service {self.service} any more")
            self.instance = Context().run(self.opening)  # what it starts must not inherit the first caller's context
            if self.on_opened is not None:
                self.on_opened()
        return self.instance

    async def close(self) -> None:
        """Close the instance, if there is one that can be closed; none is made from now on."""
        self.opening = None
        close = getattr(self.instance, "close", None)
        if close is not None:
            await close()

    def failure(self, where: str, error: BaseException) -> BaseException:
        """Return the exception that callers receive: itself, or where failures are reported a `PluginFailure`."""
        if self.report is None or isinstance(error, TavernError):
            return error
        self.report(self.plugin, where, error)
        return PluginFailure(f"{self.plugin} failed in {where}: {describe(error)}", plugin=self.plugin)


def implementation(provider: Provider, name: str, info: MethodInfo) -> Callable[..., Any]:
    """Return a provider's method as views call it.

    Third-party methods are attributed; theirs, and all that act, are in flight while they run.
    """
    function = _opened_first(provider, name) if provider.instance is None else getattr(provider.instance, name)
    if provider.report is None and (provider.in_flight is None or info.permission is None):
        return function
    where = f"{provider.service}.{name}"
    call = (_call if inspect.iscoroutinefunction(function) else _stream)(provider, function, where)
    return marked_like(function, call) if provider.report is None else call


def _opened_first(provider: Provider, name: str) -> Callable[..., Any]:
    """Return a method that makes the provider's instance first; then views are bound to the instance's own method."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await getattr(provider.opened(), name)(*args, **kwargs)

    def stream(*args: Any, **kwargs: Any) -> Any:
        return getattr(provider.opened(), name)(*args, **kwargs)

    return call if inspect.iscoroutinefunction(getattr(provider.interface, name)) else stream


def _call(provider: Provider, function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """Return a method whose failures are attributed and whose calls are in flight; one that a plugin of the host makes
    of itself is part of the call that it is made in."""
    guard, is_reported = _guard(provider, where), provider.report is not None
    calling: Collection[Any] = () if is_reported or provider.override else getattr(provider.in_flight, "calling", ())

    async def call(*args: Any, **kwargs: Any) -> Any:
        context: CallContext | None = kwargs.get("call")  # held: copies of it are worth something while it is there
        if is_reported:
            args, kwargs = _handed_over(args, kwargs)
        try:
            with nullcontext() if current_task() in calling else guard():
                made = function(*args, **kwargs)
                return await (made if context is None or context.deadline is None else settled(made, context, where))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if (failure := provider.failure(where, error)) is error:
                raise
            raise failure from None

    return call


def _handed_over(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments as a provider of another plugin gets them; see `issued.handed_over`."""
    return tuple(map(handed_over, args)), {name: handed_over(value) for name, value in named.items()}


def _stream(provider: Provider, function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """As `_call`, for a stream, which is in flight from its first item to its last."""
    guard, is_reported = _guard(provider, where), provider.report is not None
    in_flight = provider.in_flight

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        items: AsyncIterator[Any] | None = None
        context: CallContext | None = kwargs.get("call")
        is_limited = context is not None and context.deadline is not None
        if is_reported:
            args, kwargs = _handed_over(args, kwargs)
        try:
            with nullcontext() if in_flight is None else in_flight.use_elsewhere():
                items = aiter(function(*args, **kwargs))
                while True:
                    if in_flight is not None:
                        in_flight.check()
                    with guard():
                        item = await (settled(next_item(items), context, where) if is_limited else anext(items, ENDED))
                    if item is ENDED:
                        return
                    yield item
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if (failure := provider.failure(where, error)) is error:
                raise
            raise failure from None
        finally:
            if isinstance(items, AsyncGenerator):  # the reader may leave before the end
                await items.aclose()

    return stream


Guard = Callable[[], AbstractContextManager[None]]


def _guard(provider: Provider, where: str) -> Guard:
    """Return the context that counts a call as in flight, and stops an override that calls itself."""
    use: Guard = nullcontext if provider.in_flight is None else partial(CallInTask, provider.in_flight, where)
    return partial(_no_recursion, provider, where, use) if provider.override else use


_nested: ContextVar[dict[Provider, int]] = ContextVar("nested calls of overrides", default={})  # noqa: B039  # replaced, never changed


@contextlib.contextmanager
def _no_recursion(provider: Provider, where: str, use: Guard) -> Iterator[None]:
    """As `use`, and stop an override that calls the service which it overrides, and so itself, without end."""
    depths = _nested.get()
    depth = depths.get(provider, 0) + 1
    if depth > MAX_NESTED:
        hint = "an override reaches what it replaces through `original`, not through context.services"
        error = Recursion(f"{provider.plugin} calls itself without end in {where}: {hint}", plugin=provider.plugin)
        if provider.report is not None:
            provider.report(provider.plugin, where, error)
        raise error
    token = _nested.set({**depths, provider: depth})
    try:
        with use():
            yield
    finally:
        _nested.reset(token)
