"""What a runtime has to know of a plugin to load it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tavern_host.contracts.manifest import Runtime
    from tavern_host.contracts.plugins import Placement


@dataclass(frozen=True)
class Entry:
    """A module that a manifest names, in which `collector` finds descriptors; see `ContributionKind`."""

    module: str
    collector: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class PluginSource:
    """Where a plugin's code is. `module` is None for a folder plugin, which is imported from `root`.

    `reviewed` is by path the hash of each file that may be imported (None: any may). `entries` are collected by hook;
    when the plugin is loaded, or with `is_lazy` when they are first asked for. `path` is the folder of its own that it
    was installed in with what it depends on, `distribution` what installed it, `placement` where it runs, `needs` what
    it needs there, as its manifest says, and `publishes` what it publishes, as `module:name` in its package.
    """

    name: str
    module: str | None = None
    root: Path | None = None
    reviewed: Mapping[str, bytes] | None = None
    is_lazy: bool = False
    entries: Mapping[str, Entry] = field(default_factory=dict)
    path: Path | None = None
    distribution: str | None = None
    placement: Placement = "in-process"
    needs: Runtime | None = None
    publishes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FolderSource:
    """Where the code of a folder plugin is: its package, its folder, and the hashes as in `PluginSource`."""

    package: str
    root: Path
    reviewed: Mapping[str, bytes] | None
