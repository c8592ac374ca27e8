"""What the host's own routes take and answer with, beside the models that other contracts hold."""

from __future__ import annotations

from pydantic import Field, JsonValue

from tavern_host.contracts.plugins import PluginInfo
from tavern_host.contracts.services import Level
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


class PluginsChanged(Done):
    """The plugins that were changed."""

    plugins: list[PluginInfo]


class AskingPlugin(Model):
    """A plugin that asks for a permission."""

    name: str
    granted: bool


class AskedPermission(Model):
    """A permission, in one plain sentence, with the plugins that ask for it."""

    name: str
    level: Level
    description: str
    plugins: list[AskingPlugin]


class SettingValues(OpenModel):
    """Settings by key: full ones, or without `extensions.{plugin}.`."""


class SettingsSaved(Done):
    """The plugin's settings in force after the save."""

    settings: dict[str, JsonValue]


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
