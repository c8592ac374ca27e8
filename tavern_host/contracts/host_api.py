"""What routes of the host take and answer with, beside the models of other contracts."""

from __future__ import annotations

from pydantic import Field, JsonValue

from tavern_host.contracts.plugins import Placement, PluginInfo
from tavern_host.contracts.settings import Origin, SettingItem
from tavern_host.contracts.wire import Model, OpenModel


class ProblemDetails(OpenModel):
    """An error (RFC 9457). `code` is stable; `error`, `success` and `message` are what clients of the platform read."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    error: str
    success: bool = False
    message: str
    details: dict[str, JsonValue] = Field(default_factory=dict)


class Done(Model):
    """What was asked for was done."""

    success: bool = True
    message: str


class PluginSwitch(Model):
    """Whether a plugin is to be enabled."""

    enabled: bool = Field(strict=True)


class PluginPlacement(Model):
    """Where a plugin is to run; null: where its manifest and `host.yaml` say."""

    placement: Placement | None


class PluginsChanged(Done):
    """The plugins that were changed."""

    plugins: list[PluginInfo]


class SettingValues(OpenModel):
    """Settings by key: full ones, or without `extensions.{plugin}.`."""


class CommandArguments(OpenModel):
    """The arguments of a command by name, without dashes before it and with underscores in it."""


class SettingsSaved(Done):
    """The plugin's settings in force after the save, and what is to be said of them, as that a secret is short."""

    settings: dict[str, JsonValue]
    notices: list[str] = Field(default_factory=list)


class ConfigOption(SettingItem):
    """An option of a plugin with its value in force, and where that comes from."""

    secret: bool
    plugin: str
    value: JsonValue = None
    origin: Origin
    is_set: bool


class OpenProject(Model):
    """The absolute path of a project's folder."""

    path: str


class ServedProject(Model):
    """A project that the server serves."""

    id: str
    name: str
    path: str
    is_default: bool


class BlobQuery(Model):
    """As what a Blob is sent; else as what it was put as."""

    media_type: str | None = None


class Health(Model):
    """Whether all is well, and what is not."""

    status: str
    problems: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    """What an operator should look at, though the server takes work."""


class Deleted(Model):
    """Whether there was what was to be deleted."""

    deleted: bool


class PageQuery(Model):
    """A page of a list; each route says how long one is."""

    limit: int | None = Field(default=None, ge=0, le=999_999_999)
    offset: int | None = Field(default=None, ge=0, le=999_999_999)
