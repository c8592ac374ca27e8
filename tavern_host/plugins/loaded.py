"""A plugin whose code is loaded, and what its declaration hooks returned."""

from __future__ import annotations

from dataclasses import dataclass, field

from tavern_host.context import PluginContext
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.ui import UiDeclaration
from tavern_host.hooks.catalogue import Catalogue, Published
from tavern_host.hooks.dispatch import Implementation
from tavern_host.plugins.discovery import Record
from tavern_host.plugins.manifest import Manifest
from tavern_host.runtime.in_flight import InFlight
from tavern_host.runtime.in_process import PluginRuntime
from tavern_host.runtime.ledger import Ledger
from tavern_host.runtime.source import Entry, PluginSource
from tavern_host.services.calls import Provider
from tavern_host.services.registry import Views
from tavern_host.settings.store import PluginSettings


@dataclass
class Declarations:
    """What a plugin publishes, and what its declaration hooks returned."""

    published: Published = field(default_factory=Published)
    services: list[ServiceInfo] = field(default_factory=list)
    overrides: list[ServiceInfo] = field(default_factory=list)
    routes: list[RouteInfo | MessageInfo] = field(default_factory=list)
    commands: list[CommandInfo] = field(default_factory=list)
    ui: list[UiDeclaration] = field(default_factory=list)


@dataclass(eq=False)
class LoadedPlugin:
    """One load of a plugin: its record, its code, what it was given and what it owns.

    While a plugin is reloaded there are two of them, of which the older one finishes what it began. `providers` are
    what it put on the stacks of services; `is_provided` says that it has done so but for its overrides.
    """

    record: Record
    manifest: Manifest
    runtime: PluginRuntime
    context: PluginContext
    in_flight: InFlight
    ledger: Ledger
    views: Views
    settings: PluginSettings
    granted: frozenset[str]
    implementations: list[Implementation] = field(default_factory=list)
    declarations: Declarations = field(default_factory=Declarations)
    providers: list[Provider] = field(default_factory=list)
    is_provided: bool = False
    started: bool = False

    def holds(self, permission: str) -> bool:
        """Return whether this load was granted a permission."""
        return permission in self.granted


def source_of(record: Record, catalogue: Catalogue) -> PluginSource:
    """Return what a runtime has to know of a plugin; modules that its manifest names are collected by hook."""
    entries = {}
    for hook, kind in catalogue.collected().items():
        declared = getattr(record.manifest, catalogue.hooks[hook].field or "", None)
        if declared is not None and kind.collector is not None:
            options = declared.model_dump(exclude={"entry"}, exclude_none=True)
            entries[hook] = Entry(declared.entry, kind.collector, options)
    return PluginSource(record.name, record.module, record.root, record.reviewed, record.first_party, entries)
