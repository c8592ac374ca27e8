"""Layered settings: each plugin's `configOptions`, over which project, operator and environment write.

Every value knows its origin. Values are checked against the declared control type when they are read in.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import Problem
from tavern_host.manifest import Manifest

LAYERS = ("default", "project", "operator", "environment")
"""Lowest first; a later layer wins."""

_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "boolean": (lambda v: isinstance(v, bool), "true or false"),
    "number": (lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v), "a number"),
    "string": (lambda v: isinstance(v, str), "a text"),
}


class SettingsStore:
    """The settings of all plugins in their layers; keys are full (`extensions.{plugin}.{option}`)."""

    def __init__(self, *, project: dict[str, Any], operator: dict[str, Any], environment: dict[str, Any]) -> None:
        self._layers = {"project": project, "operator": operator, "environment": environment}

    def set_project(self, values: dict[str, Any]) -> None:
        """Replace the project's layer."""
        self._layers["project"] = values

    def of(self, manifest: Manifest) -> PluginSettings:
        """Return one plugin's settings."""
        return PluginSettings(f"extensions.{manifest.name}.", _declared(manifest), self._layers)

    def problems(self, manifest: Manifest) -> list[Problem]:
        """Return every value that does not fit what the plugin declares."""
        prefix = f"extensions.{manifest.name}."
        declared = _declared(manifest)
        problems = []
        for layer, values in self._layers.items():
            for key, value in values.items():
                if not key.startswith(prefix):
                    continue
                if key not in declared:
                    message = f"the {layer}'s settings have {key!r}, which the plugin does not declare"
                    problems.append(Problem(message=message, hint=suggest(key, declared)))
                else:
                    problem = _value_problem(declared[key], value)
                    if problem:
                        hint = "it is left out until it is right"
                        problems.append(Problem(message=f"the {layer}'s setting {key!r} {problem}", hint=hint))
        return problems


class PluginSettings:
    """One plugin's settings; see `tavern_host.context.Settings`."""

    def __init__(self, prefix: str, declared: dict[str, dict[str, Any]], layers: Mapping[str, dict[str, Any]]) -> None:
        self._prefix = prefix
        self._declared = declared
        self._layers = layers

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value in force."""
        layers = self.layers(key)
        return next((layers[name] for name in reversed(LAYERS) if name in layers), default)

    def origin(self, key: str) -> str:
        """Return the layer that the value in force comes from."""
        layers = self.layers(key)
        return next((name for name in reversed(LAYERS) if name in layers), "default")

    def layers(self, key: str) -> dict[str, Any]:
        """Return a copy of the value of each layer that has a right one, lowest first."""
        full = self._prefix + key
        option = self._declared.get(full, {})
        values = {name: layer[full] for name, layer in self._layers.items() if full in layer}
        right = {name: value for name, value in values.items() if not _value_problem(option, value)}
        if "defaultValue" in option:
            right["default"] = option["defaultValue"]
        return {name: copy.deepcopy(right[name]) for name in LAYERS if name in right}


def _declared(manifest: Manifest) -> dict[str, dict[str, Any]]:
    return {str(option["key"]): dict(option) for option in manifest.config_options}


def _value_problem(option: dict[str, Any], value: Any) -> str | None:
    check = _CHECKS.get(str(option.get("type")))
    if check and not check[0](value):
        return f"must be {check[1]}, found {value!r}"
    low, high = option.get("min"), option.get("max")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(low, int | float) and value < low:
            return f"must be at least {low}, found {value!r}"
        if isinstance(high, int | float) and value > high:
            return f"must be at most {high}, found {value!r}"
    return None
