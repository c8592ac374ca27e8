"""Makes settings without a host, for tests of the parts beneath it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tavern_host.contracts.manifest import Manifest
from tavern_host.settings.file import SettingsFile
from tavern_host.settings.secrets import SecretBox
from tavern_host.settings.store import SettingsStore


def manifest_with(*options: Mapping[str, Any], name: str = "acme") -> Manifest:
    """Return a manifest with options; their keys are given without the prefix, and labels may be left out."""
    prefix = f"extensions.{name}."
    declared = [{"label": option["key"], **option, "key": prefix + option["key"]} for option in options]
    return Manifest.model_validate(
        {"name": name, "displayName": name, "version": "1.0.0", "apiVersion": ">=0", "configOptions": declared}
    )


def full(values: Mapping[str, Any] | None, name: str = "acme") -> dict[str, Any]:
    """Return values by full key."""
    return {f"extensions.{name}.{key}": value for key, value in (values or {}).items()}


def file_in(state: Path, project: str = "p") -> SettingsFile:
    """Return the file of saved settings of a project in a state folder."""
    return SettingsFile(state / "projects" / project / "settings.json", SecretBox(state))


def store_with(state: Path | None = None, **layers: Mapping[str, Any]) -> SettingsStore:
    """Return the settings in these layers (full keys); with a state folder, they can be saved."""
    written: dict[str, Mapping[str, Any]] = {"project": {}, "operator": {}, "environment": {}, **layers}
    return SettingsStore(**written, file=file_in(state) if state is not None else None)  # type: ignore[arg-type]
