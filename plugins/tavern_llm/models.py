"""Which models are set up: reads the `models` setting layer by layer and says what is wrong with an entry.

A project may have been sent by anybody, so its layer may neither reach the network nor hold or name API
keys. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from tavern_host.contracts.errors import Misconfigured, NotFound
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import LlmAdapterInfo, LlmModelInfo
from tavern_llm.failures import SECRET_OPTIONS
from tavern_llm.options import problems_of

SETTING = "extensions.tavern-llm.models"
DEFAULT = "extensions.tavern-llm.defaultModel"

TRUSTED_LAYERS = frozenset({"operator", "environment"})
"""The layers that belong to the operator."""

SCRIPTED = "scripted"
"""The adapter that plays replies from a file and thinks nothing."""

HOW_TO_ADD = "`tavern models add NAME --url https://…/v1 --key-env VARIABLE` sets one up"


class ModelOptions(Model):
    """What an entry may say besides its adapter's options, which are the further keys.

    A channel has what differs from the entry; a request goes to the first and falls over to the next.
    `context_tokens` is how much the model takes, prices are for a million tokens. `concurrency` requests are with the
    model at once and `queue` more wait. A busy server is asked again for `retry_seconds` at most.
    """

    model_config = ConfigDict(alias_generator=None, extra="allow")

    adapter: str | None = None
    channels: list[dict[str, JsonValue]] = Field(default=[{}], min_length=1, max_length=100)
    context_tokens: int | None = Field(default=None, gt=0)
    price_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    price_output: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    concurrency: int = Field(default=64, ge=1, le=10_000)
    queue: int = Field(default=1000, ge=0, le=100_000)
    retry_seconds: float = Field(default=120, ge=0, le=3600)


@dataclass(frozen=True)
class Channel:
    """One way to a model, from 0: an adapter with its options. They may hold a key and are kept out of the
    representation."""

    model: str
    layer: str
    number: int
    adapter: str
    options: dict[str, JsonValue] = field(repr=False)


@dataclass(frozen=True)
class ModelSetup:
    """One entry of the setting and the layer that it comes from: a model with its channels, or an alias of one.

    `problem` is why the entry cannot be used whatever adapters there are.
    """

    name: str
    layer: str
    channels: tuple[Channel, ...] = ()
    options: ModelOptions = field(default_factory=ModelOptions, repr=False)
    alias_of: str | None = None
    problem: str | None = None

    def info(self, name: str, default: str | None) -> LlmModelInfo:
        """Return how the model is shown under a name, its own or an alias."""
        options, adapter = self.options, self.channels[0].adapter
        return LlmModelInfo(
            name=name,
            adapter=adapter,
            is_default=name == default,
            alias_of=self.name if name != self.name else None,
            is_scripted=adapter == SCRIPTED,
            **options.model_dump(include={"context_tokens", "price_input", "price_output"}),
        )


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


def find_model(name: str | None, setups: Mapping[str, ModelSetup]) -> ModelSetup:
    """Return the model that a name or an alias means. Raises `NotFound`, `Misconfigured` where none can be meant."""
    if not setups:
        raise Misconfigured(f"no language model is set up; {HOW_TO_ADD}")
    if name is None:
        raise Misconfigured(
            "the request names no model and there is no default; `tavern models default NAME` chooses one of: "
            + ", ".join(sorted(setups))
        )
    seen: list[str] = []
    while name not in seen:
        if name not in setups:
            hint = did_you_mean(name, setups) or f" (there is {', '.join(sorted(setups))})"
            whose = f"the alias {seen[-1]!r} stands for {name!r}, but there" if seen else "there"
            raise NotFound(f"{whose} is no language model {name!r}{hint}", model=name)
        setup = setups[name]
        if setup.alias_of is None:
            return setup
        seen.append(name)
        name = setup.alias_of
    raise Misconfigured(f"the alias {seen[0]!r} in {SETTING} stands for itself: {' → '.join([*seen, name])}")


def _read(name: str, layer: str, entry: Any) -> ModelSetup:
    if isinstance(entry, dict) and "alias" in entry:
        if len(entry) == 1 and isinstance(entry["alias"], str):
            return ModelSetup(name, layer, alias_of=entry["alias"])
        return ModelSetup(name, layer, problem='an alias is {"alias": "the name of a model"} and nothing else')
    wanted = 'expected an object with "adapter", the name of an adapter, or with "alias", the name of a model'
    if not isinstance(entry, dict) or not isinstance(entry.get("adapter"), str | None):
        return ModelSetup(name, layer, problem=wanted)
    try:
        options = ModelOptions.model_validate(entry)
    except ValidationError as error:
        return ModelSetup(name, layer, problem=problems_of(error))
    channels = tuple(_channels(name, layer, options))
    if any(not channel.adapter for channel in channels):
        return ModelSetup(name, layer, problem=wanted)
    held = {key for key in SECRET_OPTIONS for channel in channels if key in channel.options}
    if held and layer not in TRUSTED_LAYERS:
        problem = f"a {layer} may not give {' or '.join(sorted(held))}; API keys belong in the operator's settings"
        return ModelSetup(name, layer, problem=problem)
    return ModelSetup(name, layer, channels, options)


def _channels(name: str, layer: str, options: ModelOptions) -> Iterator[Channel]:
    """Yield the channels: one for each key of each of those written. A channel's own key replaces the entry's."""
    common: dict[str, Any] = {"adapter": options.adapter, **(options.model_extra or {})}
    number = 0
    for own in options.channels:
        has_key = any(key in own for key in SECRET_OPTIONS)
        merged = {key: value for key, value in common.items() if not (has_key and key in SECRET_OPTIONS)} | own
        adapter = merged.pop("adapter")
        secrets = {key: merged.pop(key) for key in SECRET_OPTIONS if key in merged}
        keys = [(key, one) for key, value in secrets.items() for one in (value if isinstance(value, list) else [value])]
        for secret in [{key: value} for key, value in keys] or [{}]:
            yield Channel(name, layer, number, adapter if isinstance(adapter, str) else "", {**merged, **secret})
            number += 1


def check_setup(setup: ModelSetup, adapters: Mapping[str, LlmAdapterInfo]) -> None:
    """Raise `Misconfigured` for a model that cannot be used. `adapters` holds each name's adapter."""
    if setup.problem is not None:
        raise misconfigured(setup, setup.problem)
    for channel in setup.channels:
        check_channel(channel, adapters)


def check_channel(channel: Channel, adapters: Mapping[str, LlmAdapterInfo]) -> LlmAdapterInfo:
    """Return the adapter that a channel may use; see `check_setup`. Raises `Misconfigured`."""
    adapter = adapters.get(channel.adapter)
    if adapter is None:
        raise misconfigured(channel, f"there is no adapter {channel.adapter!r}; there is {_names(adapters)}")
    if adapter.network and channel.layer not in TRUSTED_LAYERS:
        local = {n: a for n, a in adapters.items() if not a.network}
        raise misconfigured(
            channel,
            f"the adapter {channel.adapter!r} reaches the network, which only the operator's settings (host.yaml) or "
            f"the environment may set up; a {channel.layer} may use {_names(local)}",
        )
    return adapter


def misconfigured(what: ModelSetup | Channel, problem: str) -> Misconfigured:
    """Return the error that a model of a layer cannot be used."""
    name = what.name if isinstance(what, ModelSetup) else what.model
    text = f"the model {name!r} in the {what.layer}'s setting {SETTING}: {problem}"
    return Misconfigured(text, model=name, layer=what.layer)


def _names(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
