"""Layered settings: each plugin's `configOptions`, over which project, operator and environment write.

Every value knows its origin. Values are checked against the declared control type when they are read in.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from tavern_host.contracts.plugins import Problem
from tavern_host.manifest import Manifest
from tavern_host.yamlfile import suggest

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

    def of(self, manifest: Manifest) -> PluginSettings:
        """Return a snapshot of one plugin's settings."""
        prefix = f"extensions.{manifest.name}."
        defaults = {
            str(option["key"]).removeprefix(prefix): option["defaultValue"]
            for option in manifest.config_options
            if "defaultValue" in option
        }
        layers = {"default": defaults}
        for name, values in self._layers.items():
            layers[name] = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
        return PluginSettings(layers)

    def problems(self, manifest: Manifest) -> list[Problem]:
        """Return every value that does not fit what the plugin declares."""
        prefix = f"extensions.{manifest.name}."
        declared = {str(option["key"]): option for option in manifest.config_options}
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
                        problems.append(Problem(message=f"the {layer}'s setting {key!r} {problem}"))
        return problems


class PluginSettings:
    """A snapshot of one plugin's settings; see `tavern_host.context.Settings`."""

    def __init__(self, layers: dict[str, dict[str, Any]]) -> None:
        self._layers = layers

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value in force."""
        for layer in reversed(LAYERS):
            if key in self._layers[layer]:
                return copy.deepcopy(self._layers[layer][key])
        return default

    def origin(self, key: str) -> str:
        """Return the layer that the value in force comes from."""
        return next((layer for layer in reversed(LAYERS) if key in self._layers[layer]), "default")

    def layers(self, key: str) -> dict[str, Any]:
        """Return the value of each layer that has one, lowest first."""
        return {layer: copy.deepcopy(v[key]) for layer, v in self._layers.items() if key in v}


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
