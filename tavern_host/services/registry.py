"""Services: providers in stacks, views for plugins, overrides on top (DESIGN §3, *Services*).

The lowest provider of a stack registered the service; each override stands on what is beneath it and
reaches that only through the view that it was given.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, nullcontext
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import (
    InvalidInput,
    NotFound,
    PermissionDenied,
    PluginFailure,
    Recursion,
    ServiceUnavailable,
    TavernError,
    describe,
)
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import Problem, ServiceLayer
from tavern_host.contracts.services import (
    MethodInfo,
    ServiceInterface,
    ServiceKey,
    gives_new,
    implements,
    interface_methods,
    is_new,
)
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.plugins.permissions import ALL_SERVICES
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.in_flight import Lease
from tavern_host.runtime.timing import rest_of
from tavern_host.services.json_calls import JsonCall
from tavern_host.services.views import Complete, ViewHandle

Allowed = Callable[[str, str], bool]
"""Whether a plugin (by name) holds a permission (by name) now."""


Report = Callable[[str, str, BaseException], None]
"""Is told of a plugin's failure: plugin, where, exception."""


@dataclass(eq=False)
class Provider:
    """One layer of a service's stack. `original` is the view of the layer beneath that an override holds.

    With `report`, what the provider raises that is no error of the host's is reported, and reaches callers
    as `plugin_error` (DESIGN §3, rule 7). With `lease`, calls count as what is under way in the plugin. `interface`
    is that of the service when the provider was put on its stack. With `opening`, the instance is made by it when the
    first call comes.
    """

    plugin: str
    handler: str
    service: str
    version: int
    instance: Any = None
    override: bool = False
    original: ViewHandle | None = None
    report: Report | None = None
    lease: Lease | None = None
    interface: type[ServiceInterface] = ServiceInterface
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    opening: Callable[[], Any] | None = None
    on_opened: Callable[[], None] | None = None

    def opened(self) -> Any:
        """Return the instance, made if it has to be. Raises `ServiceUnavailable` after `close`."""
        if self.instance is None:
            if self.opening is None:
                raise ServiceUnavailable(f"no plugin provides the service {self.service} any more")
            self.instance = Context().run(self.opening)  # what it starts keeps nothing of whoever called first
            if self.on_opened is not None:
                self.on_opened()
        return self.instance

    async def close(self) -> None:
        """Let the instance close itself, where there is one and it can; none is made any more."""
        self.opening = None
        close = getattr(self.instance, "close", None)
        if close is not None:
            await close()


class Views:
    """The views that one owner holds: a loaded plugin, or the operator.

    `allowed` says whether the owner holds a permission; the operator's is None, and everything is allowed.
    The view of a service is made once and is the same one each time.
    """

    def __init__(
        self, registry: ServiceRegistry, owner: str, principal: Principal, allowed: Callable[[str], bool] | None
    ) -> None:
        self._registry = registry
        self._owner = owner
        self._principal = principal
        self._allowed = allowed
        self._handles: dict[str, ViewHandle] = {}
        self._interfaces: dict[str, type[ServiceInterface]] = {}
        self._originals: list[Provider] = []
        self._kept: Stacks | None = None

    def keep(self) -> None:
        """Let the views reach the providers that there are now, as long as those live: their owner is on its way out,
        and goes on with what it began with."""
        if self._kept is None:
            self._kept = self._registry.stacks()

    def has(self, service: str) -> bool:
        """Return whether somebody provides a service."""
        return bool(self._registry.stack(service, self._kept))

    def get(self, service: str) -> Any:
        """Return the view of a service. Raises `ServiceUnavailable`."""
        stack = self._registry.stack(service, self._kept)
        if not stack:
            raise ServiceUnavailable(f"{self._owner} needs the service {service}, which no plugin provides")
        handle = self._handles.get(service)
        if handle is None:
            interface = self._interfaces[service] = stack[0].interface
            handle = self._handles[service] = self._registry.new_handle(interface, self._principal)
            self.bind(service)
        return handle.view

    def original(self, provider: Provider) -> Any:
        """Return the view of what an override of this owner replaces; always the layers beneath it."""
        interface = provider.interface = self._registry.catalogue.interfaces[provider.service]
        provider.original = self._registry.new_handle(interface, self._principal)
        self._originals.append(provider)
        self._registry.bind_original(provider)
        return provider.original.view

    def bind(self, service: str) -> None:
        """Let the view of a service, where there is one, reach its stack as it is now."""
        handle = self._handles.get(service)
        if handle is None:
            return
        stack = self._registry.stack(service, self._kept)
        if not stack:
            handle.refuse(lambda name: ServiceUnavailable(f"no plugin provides the service {service} any more"))
            return
        interface = stack[0].interface
        if not _same_shape(interface, self._interfaces[service]):  # another version of what a plugin publishes
            handle.refuse(lambda name: ServiceUnavailable(f"{service} was replaced; get it again"))
            del self._handles[service]
            return
        handle.bind(self._registry.targets(stack))
        if self._allowed is None:
            return
        methods = interface_methods(interface)
        denied = frozenset(name for name, info in methods.items() if not _may_use(self._allowed, info))
        handle.refuse(lambda name: _denied(self._owner, service, name, _needs(methods[name])), only=denied)

    def revoke(self) -> None:
        """Refuse every method of every view, including those that were taken out of a view; forget them."""

        def refusal(service: str) -> Callable[[str], TavernError]:
            return lambda name: _denied(self._owner, service, name, "its grant was taken back")

        for service, handle in self._handles.items():
            handle.refuse(refusal(service))
        for provider in self._originals:
            if provider.original is not None:
                provider.original.refuse(refusal(provider.service))
        self._handles.clear()
        self._originals.clear()
        self._registry.forget(self)

    def method(self, service: str, method: str) -> JsonCall:
        """Return what calls a method by name with JSON arguments; see `context.Services.method`."""
        stack = self._registry.stack(service, self._kept)
        interface = stack[0].interface if stack else self._registry.catalogue.interfaces.get(service)
        if interface is None:
            raise _not_found("service", service, self._registry.catalogue.interfaces)
        methods = interface_methods(interface)
        if method not in methods:
            raise _not_found(f"method of {service}", method, methods)
        if not inspect.iscoroutinefunction(getattr(interface, method)):
            raise InvalidInput(f"{service}.{method} is a stream and cannot be called by name")
        return JsonCall(interface, method, getattr(self.get(service), method), methods[method])


Stacks = Mapping[str, list[Provider]]


class ServiceRegistry:
    """All services of one host. `allowed` says whether a plugin holds a permission now; `order` is the operator's
    order of overrides per service."""

    def __init__(
        self, catalogue: Catalogue, boundary: Boundary, allowed: Allowed, order: Mapping[str, list[str]]
    ) -> None:
        self.catalogue = catalogue
        self._boundary = boundary
        self._allowed = allowed
        self._order = order
        self._base: dict[str, Provider] = {}
        self._overrides: dict[str, list[Provider]] = {}
        self._living: dict[Provider, None] = {}
        self._views: dict[Views, None] = {}
        self._operator: dict[Principal, Views] = {}

    # --- the stack --------------------------------------------------------------------------------

    def add(self, provider: Provider) -> Callable[[], None]:
        """Put a provider on its service's stack; return what takes it off again.

        It lives on until its `end`, for those that keep it.
        """
        provider.interface = self.catalogue.interfaces[provider.service]
        provider.on_opened = lambda: self._rebind(provider.service)
        self._living[provider] = None
        if provider.override:
            self._overrides.setdefault(provider.service, []).append(provider)
        else:
            self._base[provider.service] = provider
        self._rebind(provider.service)

        def remove() -> None:
            if provider.override:
                self._overrides[provider.service].remove(provider)
            elif self._base.get(provider.service) is provider:
                del self._base[provider.service]
            self._rebind(provider.service)

        return remove

    def end(self, provider: Provider) -> None:
        """Let a provider that was taken off its stack be kept by nobody any more."""
        self._living.pop(provider, None)
        self._rebind(provider.service)

    def provider_of(self, service: str) -> Provider | None:
        """Return who registered a service, or None."""
        return self._base.get(service)

    def services(self) -> list[str]:
        """Return the names of all services that somebody provides."""
        return list(self._base)

    def overrides(self, service: str) -> list[Provider]:
        """Return all overrides of a service, in use or not."""
        return list(self._overrides.get(service, ()))

    def provides(self, plugin: str, service: str) -> bool:
        """Return whether a plugin is a provider of a service, at the bottom or as an override; also one that is on
        its way out."""
        return any(one.plugin == plugin and one.service == service for one in self._living)

    def stacks(self) -> Stacks:
        """Return all stacks as they are now."""
        return {service: self.stack(service) for service in self._base}

    def stack(self, service: str, kept: Stacks | None = None) -> list[Provider]:
        """Return the providers in use, lowest first. Of unordered rival overrides none is used.

        With `kept`, earlier stacks, it is what still lives of the one that there was then, if its lowest does.
        """
        if kept is not None:
            living = [provider for provider in kept.get(service, ()) if provider in self._living]
            if living and not living[0].override:
                return living
        base = self._base.get(service)
        if base is None:
            return []
        overrides = self._overrides.get(service, [])
        if len(overrides) > 1:
            order = self._order.get(service, [])
            if any(o.plugin not in order for o in overrides):
                return [base]
            overrides = sorted(overrides, key=lambda o: order.index(o.plugin))
        return [base, *overrides]

    def conflict(self, service: str) -> Problem | None:
        """Return the problem of two overrides of one service that the operator has not put in order."""
        overrides = self._overrides.get(service, [])
        if len(overrides) < 2 or len(self.stack(service)) > 1:
            return None
        names = " and ".join(o.plugin for o in overrides)
        return Problem(
            message=f"{names} both override {service}; neither is used",
            hint=f"put them in order in host.yaml: overrides: {{{service}: [below, above]}}",
        )

    def layers(self, service: str) -> list[ServiceLayer]:
        """Return the stack as data. Raises `NotFound`."""
        stack = self.stack(service)
        if not stack:
            raise _not_found("service", service, self._base)
        return [
            ServiceLayer(
                plugin=p.plugin,
                handler=p.handler,
                override=p.override,
                version=p.version,
                since=p.since,
                permission=f"services.override:{service}" if p.override else None,
            )
            for p in stack
        ]

    def methods(self, service: str) -> dict[str, MethodInfo]:
        """Return the methods of a service that somebody provides or provided, as its interface marks them."""
        interface = self.catalogue.interfaces.get(service)
        return interface_methods(interface) if interface is not None else {}

    def targets(self, stack: list[Provider]) -> dict[str, Callable[..., Any]]:
        """Return each method's implementation, that of the topmost provider of a stack that has it."""
        interface, found = stack[0].interface, {}
        for name, info in interface_methods(interface).items():
            provider = next(p for p in reversed(stack) if not p.override or _has(p, name, info))
            function = _implementation(provider, name, info)
            found[name] = self._boundary.method(provider.plugin, interface, name, function)
        return found

    # --- views ------------------------------------------------------------------------------------

    def views(self, plugin: str, allowed: Callable[[str], bool]) -> Views:
        """Return the views of one load of a plugin, none yet."""
        return self._remember(Views(self, plugin, Principal(kind="plugin", id=plugin), allowed))

    def operator_view(self, key: ServiceKey[Any], principal: Principal) -> Any:
        """Return a view with all permissions, for the operator and the host's own parts."""
        views = self._operator.get(principal)
        if views is None:
            views = self._operator[principal] = self._remember(Views(self, str(principal), principal, None))
        return views.get(key.name)

    def _remember(self, views: Views) -> Views:
        self._views[views] = None
        return views

    def forget(self, views: Views) -> None:
        """Bind these views no more."""
        self._views.pop(views, None)

    def new_handle(self, interface: type[ServiceInterface], principal: Principal) -> ViewHandle:
        """Return the handle of a new view, which is not bound yet."""
        return ViewHandle(interface, self._completer(principal, interface.service_name))

    def bind_original(self, provider: Provider) -> None:
        """Let an override's view of what it replaces reach what is beneath it now."""
        assert provider.original is not None
        stack = self.stack(provider.service)
        stack = stack[: stack.index(provider)] if provider in stack else stack[:1]
        if stack and _same_shape(stack[0].interface, provider.interface):
            provider.original.bind(self.targets(stack))
        else:
            provider.original.refuse(lambda name: ServiceUnavailable(f"{provider.service} has no provider beneath"))

    def _rebind(self, service: str) -> None:
        for views in list(self._views):
            views.bind(service)
        for provider in list(self._living):
            if provider.service == service and provider.original is not None:
                self.bind_original(provider)

    def _completer(self, principal: Principal, service: str) -> Callable[[str, MethodInfo], Complete]:
        """Return, per method, what fills in the caller and refuses a caller that lacks the permission.

        The rights of a call are those of the view's owner (bound into the view) and of the principal on
        whose behalf it is made (checked here, since it differs from call to call).
        """

        def for_method(name: str, info: MethodInfo) -> Complete:
            def complete(call: CallContext | None) -> CallContext:
                if call is None:
                    return CallContext(principal=principal)
                asking = call.principal
                if asking.kind == "plugin" and asking != principal and not self.may_use(asking.id, info):
                    raise _denied(asking.id, service, name, _needs(info))
                return call

            return complete

        return for_method

    def may_use(self, plugin: str, info: MethodInfo) -> bool:
        """Return whether a plugin may call a method of this kind now."""
        return _may_use(lambda permission: self._allowed(plugin, permission), info)


def _has(provider: Provider, method: str, info: MethodInfo) -> bool:
    """Return whether an override has a method; those that were added after its version fall through it."""
    return provider.version >= info.since and implements(provider.instance, method)


def _same_shape(interface: type[ServiceInterface], other: type[ServiceInterface]) -> bool:
    """Return whether a view of one interface can be bound to what implements the other, read before or anew."""
    return interface is other or _shape(interface) == _shape(other)


def _shape(interface: type[ServiceInterface]) -> dict[str, tuple[MethodInfo, bool, str]]:
    package = ".".join(interface.__module__.split(".")[:2])  # a folder plugin that is read anew is called otherwise
    return {
        name: (
            info,
            inspect.iscoroutinefunction(getattr(interface, name)),
            str(inspect.signature(getattr(interface, name))).replace(f"{package}.", ""),
        )
        for name, info in interface_methods(interface).items()
    }


def _implementation(provider: Provider, name: str, info: MethodInfo) -> Callable[..., Any]:
    """Return a provider's method as others call it.

    Those of third parties answer for what they raise; theirs, and whatever acts, keep the plugin from being taken out
    while they run.
    """
    if provider.instance is None:
        function = _opened_first(provider, name)
    else:
        function = _guarded(provider, name) if provider.report else getattr(provider.instance, name)
    if provider.lease is None or not (provider.report or info.permission is not None):
        return function
    if provider.report and inspect.iscoroutinefunction(function):
        return function  # which sees to that itself: one coroutine less for each call
    call = _under_way(function, provider.lease, f"{provider.service}.{name}")
    return gives_new(call) if is_new(function) else call


def _opened_first(provider: Provider, name: str) -> Callable[..., Any]:
    """Return what has a provider's instance made, and calls its method; from then on views call that itself."""

    async def call(*args: Any, **kwargs: Any) -> Any:
        return await getattr(provider.opened(), name)(*args, **kwargs)

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async with aclosing(getattr(provider.opened(), name)(*args, **kwargs)) as items:
            async for item in items:
                yield item

    return call if inspect.iscoroutinefunction(getattr(provider.interface, name)) else stream


def _under_way(function: Callable[..., Any], lease: Lease, where: str) -> Callable[..., Any]:
    """Return a provider's method whose calls whoever takes the plugin out waits for, up to a deadline.

    A stream is waited for from its first item on to its last.
    """

    use = lease.uses_for_calls(where)

    async def call(*args: Any, **kwargs: Any) -> Any:
        running = function(*args, **kwargs)
        try:
            suspended_on = running.send(None)
        except StopIteration as finished:  # nobody can have waited for it
            return finished.value
        with use():
            return await rest_of(running, suspended_on)

    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        items = function(*args, **kwargs)
        try:
            with lease.use_elsewhere():
                while True:
                    lease.check()
                    with use():
                        try:
                            item = await anext(items)
                        except StopAsyncIteration:
                            return
                    yield item
        finally:
            if isinstance(items, AsyncGenerator):  # the reader may leave before the end
                await items.aclose()

    return call if inspect.iscoroutinefunction(function) else stream


def _may_use(allowed: Callable[[str], bool], info: MethodInfo) -> bool:
    if info.permission is None:
        return True
    return allowed(f"services.use:{info.permission}") or allowed(ALL_SERVICES)


MAX_NESTED = 16
"""How often an override may be called within a call of itself."""

_nested: ContextVar[dict[Provider, int]] = ContextVar("nested calls of overrides", default={})  # noqa: B039  # replaced, never changed


@contextlib.contextmanager
def _no_recursion(provider: Provider, where: str) -> Iterator[None]:
    """Stop an override that calls the service that it stands on top of, and so itself, without end."""
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
        yield
    finally:
        _nested.reset(token)


def _guarded(provider: Provider, method: str) -> Callable[..., Any]:
    """Return a provider's method whose foreign exceptions become `plugin_error`, and are reported.

    Its calls, where it is no stream, are waited for as those of `_under_way`.
    """
    function, where = getattr(provider.instance, method), f"{provider.service}.{method}"
    use = nullcontext if provider.lease is None else provider.lease.uses_for_calls(where)

    def failure(error: BaseException) -> PluginFailure:
        assert provider.report is not None
        provider.report(provider.plugin, where, error)
        return PluginFailure(f"{provider.plugin} failed in {where}: {describe(error)}", plugin=provider.plugin)

    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            running = function(*args, **kwargs)
            try:
                suspended_on = running.send(None)
            except StopIteration as finished:  # nobody can have waited for it
                return finished.value
            with use():
                return await rest_of(running, suspended_on)
        except TavernError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise failure(error) from None

    async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        items: AsyncIterator[Any] | None = None
        try:
            items = function(*args, **kwargs)
            async for item in items:
                yield item
        except TavernError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise failure(error) from None
        finally:
            if isinstance(items, AsyncGenerator):  # the reader may leave before the end
                await items.aclose()

    async def override(*args: Any, **kwargs: Any) -> Any:
        with _no_recursion(provider, where):
            return await call(*args, **kwargs)

    async def override_stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        items = stream(*args, **kwargs)
        try:
            while True:
                with _no_recursion(provider, where):
                    try:
                        item = await anext(items)
                    except StopAsyncIteration:
                        return
                yield item
        finally:
            await items.aclose()

    if inspect.iscoroutinefunction(function):
        return override if provider.override else call
    return override_stream if provider.override else stream


def interface_problems(interface: type[ServiceInterface], provider: type, version: int) -> list[Problem]:
    """Return how a class fails to satisfy a service's interface: methods missing, of another shape, not async."""
    problems = []
    service = interface.service_name
    for name, info in interface_methods(interface).items():
        if info.since > version:
            continue
        declared, given = getattr(interface, name), getattr(provider, name, None)
        where = f"{provider.__qualname__}.{name}"
        if not implements(provider, name):
            problems.append(Problem(message=f"{provider.__qualname__} lacks the method {name} of {service}"))
        elif inspect.iscoroutinefunction(declared) != inspect.iscoroutinefunction(given):
            wanted = "async def" if inspect.iscoroutinefunction(declared) else "def that returns an async iterator"
            problems.append(Problem(message=f"{where} must be an {wanted}"))
        else:
            musts = _parameter_problems(_parameters(interface, name), _parameters(provider, name))
            problems += [Problem(message=f"{where} must {must}") for must in musts]
    return problems


Parameters = Mapping[str, inspect.Parameter]


def _parameters(owner: type, method: str) -> Parameters:
    """Return the parameters with which a method is called on an instance."""
    signature = inspect.signature(getattr(owner, method))
    is_bound = isinstance(inspect.getattr_static(owner, method), staticmethod | classmethod)
    return dict(list(signature.parameters.items())[0 if is_bound else 1 :])


def _parameter_problems(wanted: Parameters, offered: Parameters) -> list[str]:
    """Return what a method must do to take every call that the interface's method takes."""
    kinds = {p.kind for p in offered.values()}
    problems = []
    missing = [name for name in wanted if name not in offered]
    if missing and inspect.Parameter.VAR_KEYWORD not in kinds:
        problems.append(f"take the parameters {', '.join(missing)}")
    needed = [
        name
        for name, p in offered.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and _may_be_left_out(wanted, name)
    ]
    if needed:
        problems.append(f"do without the parameters {', '.join(needed)}, which a caller may leave out")
    in_order, offered_order = _by_position(wanted), _by_position(offered)
    if not problems and inspect.Parameter.VAR_POSITIONAL not in kinds and offered_order[: len(in_order)] != in_order:
        problems.append(f"take the parameters {', '.join(in_order)} in this order, by position and by name")
    return problems


def _by_position(parameters: Parameters) -> list[str]:
    return [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]


def _may_be_left_out(wanted: Parameters, name: str) -> bool:
    return name not in wanted or wanted[name].default is not inspect.Parameter.empty


def _needs(info: MethodInfo) -> str:
    return f"it needs the permission services.use: {info.permission}"


def _denied(plugin: str, service: str, method: str, missing: str) -> PermissionDenied:
    message = f"{plugin} may not call {service}.{method}: {missing}"
    return PermissionDenied(message, plugin=plugin, service=service, method=method, permission=missing)


def _not_found(what: str, name: str, known: Iterable[str]) -> TavernError:
    hint = suggest(name, known)
    return NotFound(f"there is no {what} {name!r}" + (f"; {hint}" if hint else ""))
