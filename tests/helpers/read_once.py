"""Lets the thousands of hosts that tests start read this installation once a session: it stays as it is meanwhile."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.plugins import Problem
from tavern_host.plugins import discovery
from tavern_host.plugins.manifest import read_manifest
from tavern_host.runtime import in_process
from tavern_host.runtime.installed import Installed, installed_plugins
from tavern_host.storage.yaml_file import Places

_PLUGINS = Path(__file__).parents[2] / "plugins"


def read_installation_once() -> None:
    """Remember what is installed, as long as no test adds a folder to Python's path or installs a package."""
    path = tuple(sys.path)
    manifests, found = cache(read_manifest), cache(installed_plugins)

    def read(folder: Path, *, is_dev: bool = False) -> tuple[Manifest, list[Problem], Places]:
        if is_dev or not folder.is_relative_to(_PLUGINS):
            return read_manifest(folder, is_dev=is_dev)
        manifest, problems, places = manifests(folder)
        return manifest, [*problems], places

    def find(packages: Path | None = None) -> list[Installed]:
        is_usual = tuple(sys.path) == path and (packages is None or not packages.exists())
        return [*found()] if is_usual else installed_plugins(packages)

    def is_module(name: str) -> bool:
        return names(name) if name.partition(".")[0] in first_party else exists(name)

    exists, first_party = in_process._is_module, {folder.name for folder in _PLUGINS.iterdir()}
    names = cache(exists)
    discovery.read_manifest, discovery.installed_plugins, in_process._is_module = read, find, is_module
