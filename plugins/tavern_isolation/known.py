"""The hooks and service interfaces that both ends of a link know, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pkgutil import resolve_name
from typing import Any, Protocol

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.hooks import HookInfo
from tavern_host.contracts.names import look_up
from tavern_host.contracts.services import ServiceInterface
from tavern_isolation.described import description_of, is_importable, reference_of, stand_in


class Catalogue(Protocol):
    """What the host knows of services and hooks."""

    interfaces: Mapping[str, type[ServiceInterface]]

    def place(self, service: str) -> str:
        """Return where the interface of a service is, as `module:Class`, without importing it."""

    @property
    def hooks(self) -> Mapping[str, HookInfo]:
        """Every hook by name."""

    def spec(self, hook: str) -> Callable[..., Any]:
        """Return the function that specifies a hook."""

    def item_types(self, hook: str) -> tuple[tuple[type, ...], str]:
        """Return the classes of descriptors that a hook collects, also in words."""


class Known:
    """Looks up what a name stands for when it is asked for. `services` and `hooks` say where it can be imported;
    `published` are descriptions of what other plugins publish now, and `own` is what this plugin does."""

    def __init__(self, services: Mapping[str, str], hooks: Mapping[str, str], published: Mapping[str, str]) -> None:
        self._services = services
        self._hooks = hooks
        self.published = published
        self.own: dict[str, Any] = {}

    def interface(self, service: str) -> type[ServiceInterface]:
        """Return the interface of a service. Raises `NotFound`."""
        found: type[ServiceInterface] = self._found("service", service, self._services)
        return found

    def spec(self, hook: str) -> Callable[..., Any]:
        """Return the function that specifies a hook. Raises `NotFound`."""
        found: Callable[..., Any] = self._found("hook", hook, self._hooks)
        return found

    def _found(self, what: str, name: str, places: Mapping[str, str]) -> Any:
        if name in self.own:
            return self.own[name]
        if name in self.published:
            return _own_or_stand_in(self.published[name])
        return _resolved(look_up(what, name, {**places, **self.published}))


@lru_cache(64)
def _own_or_stand_in(text: str) -> Any:
    """Return the class that a description is of, where this process can import the very same, else a stand-in."""
    made = stand_in(text)
    try:
        found = resolve_name(reference_of(made))
        return found if description_of(found) == text else made
    except Exception:  # whatever importing it does
        return made


@cache
def _resolved(reference: str) -> Any:
    return resolve_name(reference)


def references(catalogue: Catalogue, plugin: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return by name where the interfaces of services and the specifications of hooks can be imported, and the
    descriptions of those that only their plugin can import, but for this one's own."""
    services: dict[str, str] = {}
    hooks: dict[str, str] = {}
    published: dict[str, str] = {}
    own = {name for name, info in catalogue.hooks.items() if info.caller == f"plugin:{plugin}"}
    interface: Callable[[str], Any] = catalogue.interfaces.__getitem__
    found = [(services, name, catalogue.place(name), interface) for name in catalogue.interfaces]
    found += [(hooks, name, reference_of(catalogue.spec(name)), catalogue.spec) for name in catalogue.hooks]
    for places, name, place, one in found:
        if is_importable(place.partition(":")[0]):
            places[name] = place
        elif name not in own and not name.startswith(f"{plugin}."):
            with suppress(InvalidInput):  # it cannot be described, so that it is not there
                published[name] = description_of(one(name))
    return services, hooks, published
