"""The hooks and service interfaces that both ends of a link can import, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any, Protocol

from tavern_host.contracts.hooks import HookInfo
from tavern_host.contracts.names import look_up
from tavern_host.contracts.services import ServiceInterface


class Catalogue(Protocol):
    """What the host knows of services and hooks."""

    interfaces: Mapping[str, type[ServiceInterface]]

    @property
    def hooks(self) -> Mapping[str, HookInfo]:
        """Every hook by name."""

    def spec(self, hook: str) -> Callable[..., Any]:
        """Return the function that specifies a hook."""


class Known:
    """Looks up what a name stands for when it is asked for; see `hello.Hello`."""

    def __init__(self, services: Mapping[str, str], hooks: Mapping[str, str]) -> None:
        self._services = services
        self._hooks = hooks

    def interface(self, service: str) -> type[ServiceInterface]:
        """Return the interface of a service. Raises `NotFound`."""
        found: type[ServiceInterface] = _resolved(look_up("service", service, self._services))
        return found

    def spec(self, hook: str) -> Callable[..., Any]:
        """Return the function that specifies a hook. Raises `NotFound`."""
        found: Callable[..., Any] = _resolved(look_up("hook", hook, self._hooks))
        return found


@cache
def _resolved(reference: str) -> Any:
    return resolve_name(reference)


def reference_of(value: Any) -> str:
    """Return `module:name` of a function or class."""
    return f"{value.__module__}:{value.__qualname__}"


def references(catalogue: Catalogue) -> tuple[dict[str, str], dict[str, str]]:
    """Return by name where the interface of each service and the specification of each hook can be imported. What
    third parties publish, whose names have a dot, only this process knows."""
    services = {name: reference_of(one) for name, one in catalogue.interfaces.items() if "." not in name}
    hooks = [name for name, info in catalogue.hooks.items() if not (info.caller or "").startswith("plugin:")]
    return services, {name: reference_of(catalogue.spec(name)) for name in hooks}
