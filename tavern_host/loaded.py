"""A plugin whose code is loaded, and what its declaration hooks returned."""

from __future__ import annotations

from dataclasses import dataclass, field

from tavern_host.context import PluginContext
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.ui import UiDeclaration
from tavern_host.discovery import Record
from tavern_host.dispatch import Implementation
from tavern_host.facilities import Lease
from tavern_host.manifest import Manifest
from tavern_host.runtime import InProcessRuntime


@dataclass
class Declarations:
    """What a plugin's declaration hooks returned."""

    services: list[ServiceInfo] = field(default_factory=list)
    overrides: list[ServiceInfo] = field(default_factory=list)
    routes: list[RouteInfo | MessageInfo] = field(default_factory=list)
    commands: list[CommandInfo] = field(default_factory=list)
    ui: list[UiDeclaration] = field(default_factory=list)


@dataclass
class LoadedPlugin:
    """A plugin's record, runtime and context, with what was admitted of it."""

    record: Record
    manifest: Manifest
    runtime: InProcessRuntime
    context: PluginContext
    lease: Lease
    implementations: list[Implementation] = field(default_factory=list)
    declarations: Declarations = field(default_factory=Declarations)
    started: bool = False
