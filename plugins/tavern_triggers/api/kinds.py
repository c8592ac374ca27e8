"""What a plugin gives that adds a kind of trigger: what the kind is, and what it has found."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, JsonValue

from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.wire import Model


class TriggerSignal(Model):
    """That something happened, in a kind of trigger that a plugin adds. A key fires a trigger once, however often, and
    at however many hosts, it is given; `payload` is what happened."""

    key: str = Field(min_length=1, max_length=200)
    payload: dict[str, JsonValue] = Field(default_factory=dict)


class TriggerSignals(Model):
    """What a kind of trigger has found, and where it is to look on: `cursor` is kept with the trigger."""

    signals: list[TriggerSignal] = Field(default_factory=list, max_length=100)
    cursor: str = Field(default="", max_length=10_000)


class TriggerKindInfo(Model):
    """A kind of trigger that a plugin adds. `handler` is `module:function` in the plugin:
    `async def poll(config: dict[str, JsonValue], cursor: str, context: PluginContext) -> TriggerSignals`, called about
    every `seconds` for each trigger that is on, at one host at a time, with an empty cursor first. `config_schema` is
    the JSON Schema of its `config`."""

    KIND: ClassVar[ContributionKind] = ContributionKind(answer=TriggerSignals)

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}:[a-z][a-z0-9-]{0,60}$")
    handler: Handler
    description: str = Field(default="", max_length=500)
    config_schema: dict[str, JsonValue] = Field(default_factory=dict)
    seconds: float = Field(default=10, ge=1, le=86_400)
