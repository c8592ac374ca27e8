"""Settings: how a plugin declares its options, and the service that reads and saves them."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeGuard

from pydantic import Field, JsonValue, model_validator

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model

ControlType = Literal[
    "string",
    "textarea",
    "password",
    "number",
    "slider",
    "boolean",
    "select",
    "button-group",
    "avatar",
    "json",
    "action",
    "action-button",
]
"""The platform's control types; `password` and `json` are ours. Actions are buttons and hold no value."""

Origin = Literal["default", "project", "operator", "environment"]
"""Where a value comes from, lowest layer first."""

MASK = "********"
"""Stands in the place of a secret that is set; given back unchanged it means *leave it as it is*."""

SETTINGS_CHANGED = "SETTINGS_CHANGED"
"""The event that tells of changed settings: `{"plugin", "keys"}` with full keys, never with values."""

MAX_NESTING = 64
"""How deeply the value of a `json` setting may be nested."""


def tool_settings_prefix(plugin: str, tool_id: str) -> str:
    """Return the prefix of the full keys of a tool's own settings (its `configSchema`)."""
    return f"extensions.{plugin}.tools.{tool_id}."


Finite = Annotated[float, Field(allow_inf_nan=False)]
_MAX_INTEGER = 2**63
_ACTIONS = frozenset({"action", "action-button"})
_CHOICES = frozenset({"select", "button-group"})
_NUMBERS = frozenset({"number", "slider"})


class SettingChoice(Model):
    """One of the values of a `select` or `button-group`."""

    value: str | int | Finite | bool
    label: str


class SettingItem(Model):
    """One of a plugin's `configOptions`; the platform's `SettingItemConfig`, and our `secret`, `secretKeys`,
    `operatorOnly` and `placeholder`.

    `secretKeys` are the keys of a `json` value's objects, at any depth, whose values are secrets. With `operatorOnly` a
    project's value does not count.
    """

    key: str = Field(pattern=r"^[A-Za-z0-9_.:-]+$", max_length=200)
    type: ControlType
    label: str
    description: str | None = None
    default_value: JsonValue = None
    category: str | None = None
    category_key: str | None = None
    options: list[SettingChoice] | None = None
    min: int | Finite | None = None
    max: int | Finite | None = None
    step: int | Finite | None = None
    button_text: str | None = None
    placeholder: str | None = None
    secret: bool = False
    secret_keys: list[str] | None = None
    operator_only: bool = False

    @property
    def holds_value(self) -> bool:
        """Whether the control has a value; a button has none."""
        return self.type not in _ACTIONS

    @property
    def is_secret(self) -> bool:
        """Whether the value is stored encrypted and never shown."""
        return self.secret or self.type == "password"

    @property
    def is_encrypted(self) -> bool:
        """Whether a saved value is stored encrypted: it is a secret or holds some."""
        return self.is_secret or bool(self.secret_keys)

    @property
    def has_default(self) -> bool:
        """Whether the plugin declares a default value."""
        return "default_value" in self.model_fields_set

    def problem(self, value: object) -> str | None:
        """Return why a value does not fit the control (`must be …`), or None where it does.

        The text never shows the value of a secret.
        """
        expected = self._expected(value)
        if expected is None:
            return None
        return f"must be {expected}" + ("" if self.is_encrypted else f", found {_shown(value)}")

    def _expected(self, value: object) -> str | None:
        if not self.holds_value:
            return "left alone: it is a button"
        if self.type == "json":
            return None if _is_json(value) else f"JSON, nested at most {MAX_NESTING} deep"
        if self.type == "boolean":
            return None if isinstance(value, bool) else "true or false"
        if self.type in _CHOICES:
            choices = [choice.value for choice in self.options or ()]
            if any(_is_same(choice, value) for choice in choices):
                return None
            return f"one of {', '.join(map(repr, choices))}"
        if self.type in _NUMBERS:
            return self._expected_number(value)
        if not _is_text(value):
            return "a text"
        return "a single line" if self.type == "string" and "\n" in value else None

    def _expected_number(self, value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_wire_number(value):
            return "a number"
        if self.min is not None and value < self.min:
            return f"at least {self.min}"
        if self.max is not None and value > self.max:
            return f"at most {self.max}"
        return None

    @model_validator(mode="after")
    def _fits_its_type(self) -> SettingItem:
        if self.type in _CHOICES and not self.options:
            raise ValueError(f"a {self.type} needs options, such as [{{value: a, label: A}}]")
        if self.options is not None and self.type not in _CHOICES:
            raise ValueError(f"options belong to a select or a button-group, not to a {self.type}")
        if any(limit is not None for limit in (self.min, self.max, self.step)) and self.type not in _NUMBERS:
            raise ValueError(f"min, max and step belong to a number or a slider, not to a {self.type}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        if self.step is not None and self.step <= 0:
            raise ValueError("step must be above 0")
        if self.options is not None and len({(c.value, isinstance(c.value, bool)) for c in self.options}) < len(
            self.options
        ):
            raise ValueError("two of the options have the same value")
        if self.secret and not self.holds_value:
            raise ValueError("a button cannot be secret")
        if self.secret_keys is not None and (self.type != "json" or self.secret):
            raise ValueError("secretKeys belong to a json that is not secret as a whole")
        if self.has_default and self.is_secret and self.default_value not in (None, ""):
            raise ValueError("a secret cannot have a default value: everybody can read a manifest")
        if self.has_default and self.default_value is not None:
            wrong = self.problem(self.default_value)
            if wrong is not None:
                raise ValueError(f"defaultValue {wrong}")
        return self


def _is_json(value: object, nesting: int = MAX_NESTING) -> bool:
    if isinstance(value, dict | list) and nesting == 0:
        return False
    if isinstance(value, dict):
        return all(_is_text(key) and _is_json(item, nesting - 1) for key, item in value.items())
    if isinstance(value, list):
        return all(_is_json(item, nesting - 1) for item in value)
    return value is None or _is_text(value) or (isinstance(value, int | float) and _is_wire_number(value))


def _is_text(value: object) -> TypeGuard[str]:
    """Return whether it is a text that can be written as UTF-8, which half of a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_wire_number(value: int | float) -> bool:
    """Return whether it is a number that every reader of JSON understands."""
    return -_MAX_INTEGER <= value < _MAX_INTEGER if isinstance(value, int) else math.isfinite(value)


def _is_same(one: object, other: object) -> bool:
    """Return whether two values are equal; true is not 1 here, while 1.0 is, as in JSON."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _shown(value: object) -> str:
    try:
        return f"{value!r:.80}"
    except Exception:  # an endless number, or an object of the embedding program that cannot be shown
        return f"a {type(value).__name__}"


class SettingValue(Model):
    """One setting in force: its full key, its value (`MASK` for a secret that is set) and where that comes from.

    `is_set` where there is a value, be it the declared default; a secret that is empty is not set.
    """

    key: str
    plugin: str
    value: JsonValue = None
    origin: Origin = "default"
    is_set: bool = False
    secret: bool = False


class SettingsChange(Model):
    """New values for settings of one plugin by key (full, or without its prefix); None takes the saved value back.

    To hooks, keys are full and secrets are shown as `MASK`; one that they hand on unchanged keeps its new value.
    """

    plugin: str
    values: dict[str, JsonValue] = Field(default_factory=dict)


class Settings(ServiceInterface, name="settings", version=2):
    """The settings of all plugins. A plugin reads its own through its context, without this service."""

    @reads
    async def options(self, plugin: str) -> list[SettingItem]:
        """Return the options that a plugin declares. Raises `NotFound`."""

    @acts("settings:read", "Read the settings of every plugin; secrets are masked.")
    async def values(self, plugin: str, *, call: CallContext | None = None) -> list[SettingValue]:
        """Return a plugin's settings in force. Raises `NotFound`."""

    @acts("settings:write", "Change the settings of every plugin.", level="override")
    async def save(self, change: SettingsChange, *, call: CallContext | None = None) -> list[SettingValue]:
        """Check and save new values; return all settings of the plugin then in force.

        Nothing is saved where one value is wrong (`InvalidInput`, all problems in the details), the plugin
        is unknown (`NotFound`) or a hook refuses (`Vetoed`).
        """

    @acts("settings:reveal", "Read the settings of every tool, with their secrets.", level="override", since=2)
    async def of_tool(self, plugin: str, tool_id: str, *, call: CallContext | None = None) -> list[SettingValue]:
        """Return the values in force of the settings that a plugin's tool declares, secrets as they are; those without
        a value are left out. Raises `NotFound` for an unknown plugin.
        """

    @acts(
        "settings:restore", "Put secrets back into documents that were edited without them.", level="override", since=2
    )
    async def restored(
        self, edited: dict[str, JsonValue], stored: list[dict[str, JsonValue]], *, call: CallContext | None = None
    ) -> dict[str, JsonValue]:
        """Return a document that somebody edited, with the secrets of what is stored where it is as they were shown it:
        answers have `MASK` in the place of each. Raises `InvalidInput` with the place of a mask that stands elsewhere.
        """


SETTINGS = ServiceKey(Settings)
