"""The hooks and service interfaces of one host: its own, and those that plugins publish."""

from __future__ import annotations

import logging
import types
import typing
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from tavern_host import hookspecs
from tavern_host.contracts.accounts import Accounts
from tavern_host.contracts.audit import Audit
from tavern_host.contracts.contributions import ContributionKind, kind_of
from tavern_host.contracts.hooks import HookInfo
from tavern_host.contracts.manifest import Publishes
from tavern_host.contracts.plugins import Plugins
from tavern_host.contracts.services import ServiceInterface
from tavern_host.contracts.settings import Settings
from tavern_host.hookspecs import hooks
from tavern_host.storage.databases import SharedDatabases

INTERFACES: tuple[type[ServiceInterface], ...] = (Plugins, Settings, Audit, Accounts, SharedDatabases)
"""The services that the host provides itself, and those that its server and its stores ask for."""

_log = logging.getLogger("tavern.plugins")


@dataclass
class Published:
    """What one plugin publishes: hookspec functions and interfaces, by name."""

    hooks: dict[str, Callable[..., Any]] = field(default_factory=dict)
    interfaces: dict[str, type[ServiceInterface]] = field(default_factory=dict)


class _Interfaces(UserDict[str, Any]):
    """Interfaces by service name. One that is only named, as `module:Class`, is imported when it is asked for."""

    def __getitem__(self, service: str) -> Any:
        found = self.data[service]
        if isinstance(found, str):
            found = self.data[service] = resolve_name(found)
        return found


class Catalogue:
    """What can be implemented and provided in one host at this moment. `records` are the first words of what only
    providers of services record in the audit log."""

    def __init__(self) -> None:
        self._hooks = dict(hooks())
        self._interfaces = _Interfaces({one.service_name: one for one in INTERFACES})
        self._specs: dict[str, Callable[..., Any]] = {}
        self._items: dict[str, tuple[tuple[type, ...], str]] = {}
        self._named: list[str] = []
        self._all_hooks: Mapping[str, HookInfo] = MappingProxyType(self._hooks)
        self.interfaces: Mapping[str, type[ServiceInterface]] = MappingProxyType(self._interfaces)
        self.records = {"account", "work"}

    def add_first_party(self, package: str, publishes: Publishes) -> None:
        """Add what a first-party plugin publishes, whether or not it is loaded: others build on that without requiring
        the plugin, and wait for it where it is disabled."""
        for service in publishes.services:
            self._interfaces[service.name] = f"{package}.{service.interface}"
            self.records.update(service.records)
        self._named += [f"{package}.{hook.spec}" for hook in publishes.hooks]

    @property
    def hooks(self) -> Mapping[str, HookInfo]:
        """Every hook by name; those of first-party plugins are imported when somebody asks."""
        while self._named:
            name = self._named.pop()
            try:
                spec = resolve_name(name)
            except Exception:  # what uses it is refused, and nothing else
                _log.exception("the hook %s is left out, since its plugin is damaged", name)
            else:
                self._specs[spec.__name__], self._hooks[spec.__name__] = spec, spec.__tavern_hook__
        return self._all_hooks

    def place(self, service: str) -> str:
        """Return where the interface of a service is, as `module:Class`, without importing it."""
        found = self._interfaces.data[service]
        return found if isinstance(found, str) else f"{found.__module__}:{found.__qualname__}"

    def hooks_with(self, plugin: str, published: Published) -> dict[str, HookInfo]:
        """Return all hooks, those that a plugin is about to publish included."""
        own = {name: _info(plugin, function) for name, function in published.hooks.items()}
        return {**{name: info for name, info in self.hooks.items() if info.caller != owner(plugin)}, **own}

    def item_types(self, hook: str) -> tuple[tuple[type, ...], str]:
        """Return the types of the items that a hook collects, also in words; none, where it collects no list."""
        if hook not in self._items:
            self._items[hook] = _item_types(typing.get_type_hints(self.spec(hook)).get("return"))
        return self._items[hook]

    def spec(self, hook: str) -> Callable[..., Any]:
        """Return the function that specifies a hook."""
        spec: Callable[..., Any] = self._specs.get(hook) or getattr(hookspecs, hook)
        return spec

    def collected(self) -> dict[str, ContributionKind]:
        """Return the kinds of what is also found in modules that manifests name, by the hook that collects them."""
        fields = [name for name, info in self.hooks.items() if info.field is not None]
        kinds = {name: [kind_of(item) for item in self.item_types(name)[0]] for name in fields}
        return {name: found[0] for name, found in kinds.items() if found and found[0].collector is not None}

    def publish(self, plugin: str, published: Published) -> Callable[[], None]:
        """Add what a plugin publishes, in the place of what it published before; return what takes it back."""
        infos = {name: _info(plugin, function) for name, function in published.hooks.items()}
        self._hooks.update(infos)
        self._specs.update(published.hooks)
        for name in published.hooks:
            self._items.pop(name, None)
        self._interfaces.update(published.interfaces)

        def remove() -> None:
            for name, info in infos.items():
                if self._hooks.get(name) is info:
                    del self._hooks[name], self._specs[name]
            for name, interface in published.interfaces.items():
                if self._interfaces.get(name) is interface:
                    del self._interfaces[name]

        return remove


def _item_types(annotation: Any) -> tuple[tuple[type, ...], str]:
    if typing.get_origin(annotation) is not list:
        return (), ""
    (item,) = typing.get_args(annotation)
    kinds = typing.get_args(item) if typing.get_origin(item) in (typing.Union, types.UnionType) else (item,)
    if not all(isinstance(kind, type) for kind in kinds):
        return (), ""
    return kinds, f"a list of {' or '.join(kind.__name__ for kind in kinds)}"


def owner(plugin: str) -> str:
    """Return how `HookInfo.caller` names a plugin that calls a hook of its own."""
    return f"plugin:{plugin}"


def _info(plugin: str, function: Callable[..., Any]) -> HookInfo:
    info: HookInfo = function.__tavern_hook__  # type: ignore[attr-defined]  # set by `hookspec`
    return HookInfo(**{**vars(info), "caller": owner(plugin)})
