"""A plugin that lets a test use what a plugin is given, under the permissions that it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.folder_plugins import write_plugin

from tavern_host import Host, PluginContext

NAME = "acme-keeper"
_CODE = """
from tavern_host import hookimpl

@hookimpl
def tavern_startup(context): pass
"""


def write_keeper(tmp_path: Path, *, permissions: dict[str, Any] | None = None, **manifest: Any) -> Path:
    """Write the plugin and return its folder; it must be trusted under `NAME`."""
    asked = {"hooks": ["hook:server:host:startup"], **(permissions or {})}
    return write_plugin(tmp_path / "acme_keeper", {"__init__.py": _CODE}, permissions=asked, **manifest)


def context_of(host: Host) -> PluginContext:
    """Return the context of the plugin in a running host."""
    assert host.plugin(NAME).state == "started", host.plugin(NAME).problems
    return host._manager.active[NAME].context
