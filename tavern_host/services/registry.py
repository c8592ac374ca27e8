"""The stacks of services: the provider that registered each, the overrides on top, and the views bound to them.

An override reaches the next provider in the stack only through the view that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Forbidden, InvalidInput, PermissionDenied, ServiceUnavailable
from tavern_host.contracts.names import look_up
from tavern_host.contracts.plugins import Problem, ServiceLayer
from tavern_host.contracts.services import (
    ALL_SERVICES,
    MethodInfo,
    ServiceInterface,
    ServiceKey,
    implements,
    interface_methods,
)
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.runtime.boundary import Boundary, observed, signature_without_self
from tavern_host.runtime.in_flight import InFlight
from tavern_host.runtime.interface_check import same_shape
from tavern_host.runtime.issued import passed_on
from tavern_host.runtime.json_calls import JsonCall, json_call
from tavern_host.services.calls import Provider, implementation
from tavern_host.services.views import ViewHandle

Allowed = Callable[[str, str], bool]
"""Whether a plugin (by name) holds a permission (by name) now."""


class Views:
    """The views that one owner holds: a loaded plugin, or the operator. See `context.Services`.

    `allowed` says whether the owner holds a permission; the operator's is None, and everything is allowed. A
    third-party plugin is not believed about whose call it makes.
    The view of a service is made once and is the same one each time; none is given after the end of the load.
    """

    def __init__(
        self,
        registry: ServiceRegistry,
        in_flight: InFlight,
        principal: Principal,
        allowed: Callable[[str], bool] | None,
        first_party: bool,
    ) -> None:
        self.principal = principal
        self.first_party = first_party
        self._registry = registry
        self._in_flight = in_flight
        self._owner = principal.id if principal.kind == "plugin" else str(principal)
        self._allowed = allowed
        self._handles: dict[str, ViewHandle] = {}
        self._originals: list[Provider] = []
        self._pinned: Stacks | None = None
        registry.remember(self)

    def pin(self) -> None:
        """Pin the views to the current providers, as long as those live: the owner is being unloaded, and
        finishes with what it began with."""
        if self._pinned is None:
            self._pinned = self._registry.stacks()

    def unpin(self) -> None:
        """Bind the views to what is provided now, after `pin`: the owner stays."""
        self._pinned = None
        for service in tuple(self._handles):
            self.bind(service)

    def has(self, key: ServiceKey[Any] | str) -> bool:
        """Return whether a service has a provider."""
        return bool(self._registry.stack(key if isinstance(key, str) else key.name, self._pinned))

    def get(self, key: ServiceKey[Any] | str) -> Any:
        """Return the view of a service. Raises `ServiceUnavailable`."""
        if self._in_flight.is_closing:
            raise self._in_flight.refusal()
        service = key if isinstance(key, str) else key.name
        stack = self._registry.stack(service, self._pinned)
        if not stack:
            raise ServiceUnavailable(f"{self._owner} needs the service {service}, which no plugin provides")
        handle = self._handles.get(service)
        if handle is None:
            handle = self._handles[service] = self._registry.new_handle(stack[0].interface, self)
            self.bind(service)
        return handle.view

    def original(self, provider: Provider) -> Any:
        """Return the view of what an override of this owner replaces; always the layers below it."""
        interface = provider.interface = self._registry.catalogue.interfaces[provider.service]
        provider.original = self._registry.new_handle(interface, self)
        self._originals.append(provider)
        self._registry.bind_original(provider)
        return provider.original.view

    def context(self, call: CallContext | None, what: str) -> CallContext:
        """Return the context in which the owner does `what`, by default its own.

        Raises `Forbidden` where a third-party plugin was not given it; `InvalidInput` for what is not exactly a
        context: a derived class could give any answer to who is calling.
        """
        if call is None:
            call = CallContext(principal=self.principal)
        elif type(call) is not CallContext:
            raise InvalidInput(f"{what}: call must be a CallContext, found {type(call).__name__}")
        elif type(call.principal) is not Principal:
            raise InvalidInput(f"{what}: call.principal must be a Principal, found {type(call.principal).__name__}")
        passed = call if self.first_party else passed_on(call, self.principal)
        if passed is None:
            raise Forbidden(
                f"{self._owner} may not use {what} in another's name: expected a context that it was given for a call "
                f"that is active, or a child of it, got another one of {call.principal}; pass on the one that it was "
                f"given, or leave `call` out to act as {self.principal}",
                plugin=self._owner,
            )
        return passed

    def bind(self, service: str) -> None:
        """Bind the view of a service, if there is one, to the service's current stack."""
        handle = self._handles.get(service)
        if handle is None:
            return
        stack = self._registry.stack(service, self._pinned)
        if not stack:
            handle.refuse(lambda name: ServiceUnavailable(f"no plugin provides the service {service} any more"))
            return
        interface = stack[0].interface
        if not same_shape(interface, handle.interface):  # another version of what a plugin publishes
            handle.refuse(lambda name: ServiceUnavailable(f"{service} was replaced; get it again"))
            del self._handles[service]
            return
        handle.bind(self._registry.targets(stack, self._owner))
        if self._allowed is None:
            return
        methods = interface_methods(interface)
        denied = frozenset(name for name, info in methods.items() if not _may_use(self._allowed, info))
        handle.refuse(lambda name: _denied(self._owner, service, name, _needs(methods[name])), only=denied)

    def revoke(self) -> None:
        """Refuse every method of every view, including method objects taken from a view; forget them."""

        def refusal(service: str) -> Callable[[str], PermissionDenied]:
            return lambda name: _denied(self._owner, service, name, "its grant was taken back")

        for service, handle in self._handles.items():
            handle.refuse(refusal(service))
        for provider in self._originals:
            if provider.original is not None:
                provider.original.refuse(refusal(provider.service))
        self._handles.clear()
        self._originals.clear()
        self._registry.forget(self)

    async def invoke(self, service: str, method: str, arguments: Mapping[str, Any], *, call: CallContext) -> Any:
        """Call a method by name with JSON arguments."""
        return await self.method(service, method)(arguments, call)

    def method(self, service: str, method: str) -> JsonCall:
        """Return the function that calls a method by name with JSON arguments; see `context.Services.method`."""
        stack = self._registry.stack(service, self._pinned)
        interface = stack[0].interface if stack else look_up("service", service, self._registry.catalogue.interfaces)
        return json_call(interface, method, self.get)


Stacks = Mapping[str, list[Provider]]


@dataclass(eq=False)
class ServiceRegistry:
    """All services of one host. `allowed` says whether a plugin holds a permission now; `order` is the operator's
    order of overrides per service."""

    catalogue: Catalogue
    boundary: Boundary
    allowed: Allowed
    order: Mapping[str, list[str]]
    _base: dict[str, Provider] = field(default_factory=dict)
    _overrides: dict[str, list[Provider]] = field(default_factory=dict)
    _living: dict[Provider, None] = field(default_factory=dict)
    _views: dict[Views, None] = field(default_factory=dict)

    # --- the stack --------------------------------------------------------------------------------

    def add(self, provider: Provider) -> Callable[[], None]:
        """Put a provider on its service's stack; return a function that removes it.

        It lives until its `end`, for views that are bound to it.
        """
        provider.interfaces = self.catalogue.interfaces
        if provider.opening is None:  # made already, by what is published now
            provider.interface = provider.interfaces[provider.service]
        provider.on_opened = lambda: self.rebind(provider.service)
        self._living[provider] = None
        if provider.override:
            self._overrides.setdefault(provider.service, []).append(provider)
        else:
            self._base[provider.service] = provider
        self.rebind(provider.service)

        def remove() -> None:
            if provider.override:
                self._overrides[provider.service].remove(provider)
            elif self._base.get(provider.service) is provider:
                del self._base[provider.service]
            self.rebind(provider.service)

        return remove

    def reorder(self, order: Mapping[str, list[str]]) -> None:
        """Replace the operator's order of overrides."""
        self.order, before = order, self.order
        for service in [one for one in self._overrides if order.get(one) != before.get(one)]:
            self.rebind(service)

    def end(self, provider: Provider) -> None:
        """Unbind a removed provider from all views."""
        self._living.pop(provider, None)
        self.rebind(provider.service)

    def provider_of(self, service: str) -> Provider | None:
        """Return the provider that registered a service, or None."""
        return self._base.get(service)

    def services(self) -> list[str]:
        """Return the names of all services that have a provider."""
        return list(self._base)

    def overrides(self, service: str) -> list[Provider]:
        """Return all overrides of a service, in use or not."""
        return list(self._overrides.get(service, ()))

    def provides(self, plugin: str, service: str | None = None) -> bool:
        """Return whether a plugin is a provider of a service, or else of any of the host's, which are those without a
        plugin's prefix, as its base or as an override; also while it is being unloaded."""
        own = (one.service for one in self._living if one.plugin == plugin)
        return service in own if service is not None else any("." not in one for one in own)

    def stacks(self) -> Stacks:
        """Return all stacks as they are now."""
        return {service: self.stack(service) for service in self._base}

    def stack(self, service: str, kept: Stacks | None = None) -> list[Provider]:
        """Return the providers in use, lowest first. Of several overrides that are not in order none is used.

        With `kept`, earlier stacks, it is the living part of the earlier stack, if its base lives.
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
            order = self.order.get(service, [])
            if any(o.plugin not in order for o in overrides):
                return [base]
            overrides = sorted(overrides, key=lambda o: order.index(o.plugin))
        return [base, *overrides]

    def conflict(self, service: str) -> Problem | None:
        """Return the problem of overrides of one service that the operator has not put in order."""
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
        look_up("service", service, self._base)
        return [
            ServiceLayer(
                **{key: getattr(p, key) for key in ("plugin", "handler", "override", "since")},
                version=p.version if p.override else p.interface.service_version,
                permission=f"services.override:{service}" if p.override else None,
            )
            for p in self.stack(service)
        ]

    def targets(self, stack: list[Provider], caller: str) -> dict[str, Callable[..., Any]]:
        """Return each method's implementation, that of the topmost provider of the stack that has it, for the views of
        one caller."""
        interface, found = stack[0].interface, {}
        for name, info in interface_methods(interface).items():
            provider = next(p for p in reversed(stack) if not p.override or _has(p, name, info))
            function = implementation(provider, name, info)
            found[name] = method = self.boundary.method(provider.plugin, interface, name, function)
            if (observer := self.boundary.observer_of(provider.plugin)) is not None:
                form, what = signature_without_self(getattr(interface, name)), f"{provider.service}.{name}"
                found[name] = observed(method, form, observer, "service", provider.plugin, what, caller)
        return found

    # --- views ------------------------------------------------------------------------------------

    def views(self, in_flight: InFlight, allowed: Callable[[str], bool], *, first_party: bool) -> Views:
        """Return the views of one load of a plugin, none yet."""
        return Views(self, in_flight, Principal(kind="plugin", id=in_flight.plugin), allowed, first_party)

    def remember(self, views: Views) -> None:
        """Bind these views whenever a stack changes."""
        self._views[views] = None

    def forget(self, views: Views) -> None:
        """Stop binding these views."""
        self._views.pop(views, None)

    def new_handle(self, interface: type[ServiceInterface], views: Views) -> ViewHandle:
        """Return the handle of a new view, which is not bound yet."""
        is_first_party = views.first_party and views.principal.kind == "plugin"  # not the operator's, of other code
        complete = partial(self._complete, views, interface.service_name)
        return ViewHandle(interface, complete, is_first_party=is_first_party)

    def bind_original(self, provider: Provider) -> None:
        """Bind an override's view of what it replaces to the providers that are below it now."""
        assert provider.original is not None
        stack = self.stack(provider.service)
        stack = stack[: stack.index(provider)] if provider in stack else stack[:1]
        if stack and same_shape(stack[0].interface, provider.interface):
            provider.original.bind(self.targets(stack, provider.plugin))
        else:
            provider.original.refuse(lambda name: ServiceUnavailable(f"{provider.service} has no provider below it"))

    def rebind(self, service: str) -> None:
        """Bind the views of a service to what provides and observes it now."""
        for views in list(self._views):
            views.bind(service)
        for provider in list(self._living):
            if provider.service == service and provider.original is not None:
                self.bind_original(provider)

    def _complete(
        self, views: Views, service: str, name: str, info: MethodInfo, call: CallContext | None
    ) -> CallContext:
        """Fill in the caller of a method, and refuse one that lacks the permission.

        The rights of a call are those of the view's owner (bound into the view) and of the principal on
        whose behalf it is made (checked here, since it differs from call to call).
        """

        call = views.context(call, f"{service}.{name}")
        asking = call.principal
        if asking.kind == "plugin" and asking != views.principal and not self.may_use(asking.id, info):
            raise _denied(asking.id, service, name, _needs(info))
        return call

    def may_use(self, plugin: str, info: MethodInfo) -> bool:
        """Return whether a plugin may call a method of this kind now."""
        return _may_use(lambda permission: self.allowed(plugin, permission), info)


def _has(provider: Provider, method: str, info: MethodInfo) -> bool:
    """Return whether an override has a method; methods added after its version fall through to the next."""
    return provider.version >= info.since and implements(provider.instance, method)


def _may_use(allowed: Callable[[str], bool], info: MethodInfo) -> bool:
    if info.permission is None:
        return True
    return allowed(f"services.use:{info.permission}") or allowed(ALL_SERVICES)


def _needs(info: MethodInfo) -> str:
    return f"it needs the permission services.use: {info.permission}"


def _denied(plugin: str, service: str, method: str, missing: str) -> PermissionDenied:
    message = f"{plugin} may not call {service}.{method}: {missing}"
    return PermissionDenied(message, plugin=plugin, service=service, method=method, permission=missing)
