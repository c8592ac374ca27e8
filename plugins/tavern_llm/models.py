"""Which models are set up: reads the `models` setting layer by layer and says what is wrong with an entry.

A project may have been sent by anybody, so its layer may neither reach the network nor hold or name API
keys. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.llm import LlmAdapterInfo
from tavern_llm.failures import SECRET_OPTIONS

SETTING = "extensions.tavern-llm.models"
DEFAULT = "extensions.tavern-llm.defaultModel"

TRUSTED_LAYERS = frozenset({"operator", "environment"})
"""The layers that belong to the operator."""


@dataclass(frozen=True)
class ModelSetup:
    """One entry of the setting: the adapter, its options, and the layer that the entry comes from.

    `problem` is why the entry cannot be used whatever adapters there are. Options may hold a key and
    are kept out of the representation.
    """

    name: str
    layer: str
    adapter: str = ""
    options: dict[str, JsonValue] = field(default_factory=dict, repr=False)
    problem: str | None = None


def read_models(layers: Mapping[str, Any]) -> dict[str, ModelSetup]:
    """Return the entries by name from the layers' values, lowest layer first; a higher layer's entry
    replaces a lower one's of the same name as a whole. Raises `Misconfigured` for a layer that is no object."""
    found: dict[str, ModelSetup] = {}
    for layer, value in layers.items():
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise Misconfigured(f"the {layer}'s setting {SETTING}: expected an object of models by name, found {kind}")
        for name, entry in value.items():
            found[str(name)] = _read(str(name), layer, entry)
    return found


def _read(name: str, layer: str, entry: Any) -> ModelSetup:
    if not isinstance(entry, dict) or not isinstance(entry.get("adapter"), str):
        return ModelSetup(name, layer, problem='expected an object with "adapter": the name of an adapter')
    options = {key: value for key, value in entry.items() if key != "adapter"}
    setup = ModelSetup(name, layer, entry["adapter"], options)
    held = [key for key in SECRET_OPTIONS if key in options]
    if held and layer not in TRUSTED_LAYERS:
        problem = f"a {layer} may not give {' or '.join(held)}; API keys belong in the operator's settings"
        return ModelSetup(name, layer, setup.adapter, problem=problem)
    return setup


def check_setup(setup: ModelSetup, adapters: Mapping[str, LlmAdapterInfo | list[str]]) -> LlmAdapterInfo:
    """Return the adapter that `setup` may use. `adapters` holds each name's adapter, or the plugins that
    contend for the name. Raises `Misconfigured`."""
    if setup.problem is not None:
        raise _misconfigured(setup, setup.problem)
    adapter = adapters.get(setup.adapter)
    if adapter is None:
        raise _misconfigured(setup, f"there is no adapter {setup.adapter!r}; there is {_names(adapters)}")
    if isinstance(adapter, list):
        plugins = " and ".join(adapter)
        raise _misconfigured(setup, f"the adapter {setup.adapter!r} is provided by {plugins}; disable all but one")
    if adapter.network and setup.layer not in TRUSTED_LAYERS:
        local = {n: a for n, a in adapters.items() if isinstance(a, LlmAdapterInfo) and not a.network}
        raise _misconfigured(
            setup,
            f"the adapter {setup.adapter!r} reaches the network, which only the operator's settings (host.yaml) or "
            f"the environment may set up; a {setup.layer} may use {_names(local)}",
        )
    return adapter


def _misconfigured(setup: ModelSetup, problem: str) -> Misconfigured:
    text = f"the model {setup.name!r} in the {setup.layer}'s setting {SETTING}: {problem}"
    return Misconfigured(text, model=setup.name, layer=setup.layer)


def _names(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
