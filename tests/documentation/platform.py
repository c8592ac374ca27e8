"""What the host and its first-party plugins publish: hooks, services, permissions, as one host knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tavern_host.contracts.hooks import HookInfo
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.services import Level, ServiceInterface
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.plugins import permissions
from tavern_host.plugins.manifest import read_manifest

PLUGINS = Path(__file__).parents[2] / "plugins"


@cache
def manifests() -> dict[str, Manifest]:
    """Return the manifest of each first-party plugin, by the name of its package."""
    folders = sorted(file.parent for file in PLUGINS.glob("*/plugin.yaml"))
    return {folder.name: read_manifest(folder, first_party=True)[0] for folder in folders}


@cache
def catalogue() -> Catalogue:
    """Return a catalogue with all that is first-party."""
    found = Catalogue()
    for package, manifest in manifests().items():
        found.add_first_party(package, manifest.publishes)
    return found


def hooks() -> Mapping[str, HookInfo]:
    """Return every hook by name."""
    return catalogue().hooks


def spec(hook: str) -> Callable[..., Any]:
    """Return the function that specifies a hook."""
    return catalogue().spec(hook)


@cache
def interfaces() -> dict[str, type[ServiceInterface]]:
    """Return the interfaces by service name, but for those with a plugin's prefix."""
    return {name: found for name, found in catalogue().interfaces.items() if "." not in name}


def publishers() -> permissions.Publishers:
    """Return the first-party plugins, for what they publish."""
    return permissions.Publishers(manifests())


def service_permissions() -> dict[str, tuple[Level, str]]:
    """Return each `services.use` permission with its level and one sentence of what it allows."""
    return permissions.service_permissions(publishers().platform)


def all_permissions() -> list[permissions.PermissionInfo]:
    """Return every permission that a manifest can name."""
    return permissions.all_permissions(manifests())
