"""Reads a manifest for checks of its parts, also where some of it is wrong: what that is, the host says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tavern_devtools.api.findings import CheckedPlugin
from tavern_host.contracts.manifest import ENTRY_FILES, Entry
from tavern_host.contracts.plugins import MANIFEST

_LARGEST = 1 << 20
_MODULES = "nodes"
"""The entry that is a module, and no folder of files."""


def checked_plugin(root: Path, name: str, *, is_loaded: bool) -> CheckedPlugin:
    """Return a plugin, as those see it who check what it contributes. Blocking."""
    plugin = CheckedPlugin(name=name, root=str(root), manifest=_read(root), is_loaded=is_loaded)
    entries = {field: plugin.part(field, Entry) for field in ENTRY_FILES if field != _MODULES}
    folders = {field: root / entry.entry for field, entry in entries.items() if entry is not None}
    found = {field: str(path) for field, path in folders.items() if path.is_dir()}
    return plugin.model_copy(update={"folders": found})


def _read(root: Path) -> dict[str, Any]:
    try:
        file = root / MANIFEST
        found = yaml.safe_load(file.read_bytes()) if file.stat().st_size <= _LARGEST else None
        return json.loads(json.dumps(found, default=str)) if isinstance(found, dict) else {}
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError):
        return {}
