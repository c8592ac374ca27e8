"""`tavern settings …`: shows and changes the settings of plugins.

Reads manifests and files only. Saving starts the host where a plugin may have a say in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from pydantic import JsonValue

from tavern_host.cli.own_command import Command, MakeHost, linked, own_command
from tavern_host.contracts.commands import CommandInfo, CommandOutput, CommandParameter
from tavern_host.contracts.documents import read_json
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.settings import SETTINGS, SettingItem, Settings, SettingsChange, SettingValue
from tavern_host.hookspecs import hooks
from tavern_host.host import Host
from tavern_host.settings.redaction import masked
from tavern_host.settings.service import HOOK, MAX_VALUE
from tavern_host.settings.store import plugin_of

_KEY = CommandParameter(name="key", help="The setting, such as extensions.acme.colour; or acme.colour.", required=True)


async def _list(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = linked(make_host)
    asked = arguments.get("plugin")
    for problem in host.settings.problems(asked):
        yield CommandOutput(kind="progress", text=f"Warning: {problem}")
    plugins = [asked] if asked else list(dict.fromkeys(p.name for p in host.plugins() if p.config_options))
    values = [value for plugin in plugins for value in await host.settings.values(plugin)]
    rows = [[value.key, _text(value), value.origin if value.is_set else ""] for value in values]
    title = None if rows else "no settings"
    yield CommandOutput(kind="table", title=title, columns=["setting", "value", "from"], rows=rows)
    yield CommandOutput(kind="result", data=[_json(value) for value in values])


async def _get(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = linked(make_host)
    item = host.settings.find(arguments["key"])
    value = await _value(host.settings, item)
    yield CommandOutput(kind="text", text=_text(value))
    yield CommandOutput(kind="result", data=_json(value))


async def _set(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = linked(make_host)
    item = host.settings.find(arguments["key"])
    new = _parsed(item, _given(item, arguments))
    if item.is_encrypted and not arguments["stdin"] and masked(item, new) != new:
        raise _visible(item)
    value = await _saved(host, item.key, new)
    yield CommandOutput(kind="text", text=f"{item.key} is saved.")
    if value is not None and value.origin == "environment":
        text = f"The environment (TAVERN_SETTINGS) sets it too, so {_text(value)} stays in force."
        yield CommandOutput(kind="text", text=text)
    yield CommandOutput(kind="result", data=_json(value))


async def _reset(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = linked(make_host)
    key = host.settings.saved_key(arguments["key"])
    value = await _saved(host, key, None)
    if value is None:
        text = f"What was saved for {key} is taken back."
    elif value.is_set:
        text = f"{key} is {_text(value)} again, from the {value.origin}."
    else:
        text = f"{key} is not set any more."
    yield CommandOutput(kind="text", text=text)
    yield CommandOutput(kind="result", data=_json(value))


COMMANDS: tuple[tuple[CommandInfo, Command], ...] = (
    own_command(
        "settings list",
        "List the settings of all plugins, or of one, and where each value comes from.",
        _list,
        CommandParameter(name="plugin", help="The plugin's name."),
    ),
    own_command("settings get", "Print a setting's value.", _get, _KEY),
    own_command(
        "settings set",
        "Save a value for a setting. Before a value that begins with '-' write '--'.",
        _set,
        _KEY,
        CommandParameter(name="value", help="The value, in the form of its type; JSON for a json setting."),
        CommandParameter(name="--stdin", type="flag", help="Read the value from standard input, as secrets are."),
    ),
    own_command("settings reset", "Take back the value that was saved.", _reset, _KEY),
)


async def _saved(host: Host, key: str, value: JsonValue) -> SettingValue | None:
    """Save a value and return the setting then in force, or None for one that no plugin declares."""
    change = SettingsChange(plugin=plugin_of(key) or "", values={key: value})
    settings: Settings = host.settings
    try:
        if _has_a_say(host, change.plugin):
            await host.load()
            await host.start()
            settings = host.services.get(SETTINGS)
        values = await settings.save(change, call=host.call())
    finally:
        await host.stop()
    return next((value for value in values if value.key == key), None)


def _has_a_say(host: Host, saved: str) -> bool:
    """Return whether a plugin that will be loaded implements the hook or overrides the service; a first-party one has
    a say in its own settings alone."""
    wanted = {hooks()[HOOK].permission, f"services.override:{SETTINGS.name}"}
    plugins = [plugin for plugin in host.plugins() if plugin.state is PluginState.DISCOVERED]
    plugins = [plugin for plugin in plugins if not plugin.first_party or plugin.name == saved]
    return any(permission.name in wanted for plugin in plugins for permission in plugin.permissions)


async def _value(settings: Settings, item: SettingItem) -> SettingValue:
    if not item.holds_value:
        raise InvalidInput(f"{item.key} is a button and holds no value")
    return next(v for v in await settings.values(plugin_of(item.key) or "") if v.key == item.key)


# --- values as text -------------------------------------------------------------------------------


def _given(item: SettingItem, arguments: dict[str, Any]) -> str:
    """Return the value's text from the command line or standard input."""
    value, from_input = arguments.get("value"), arguments["stdin"]
    if (value is None) != from_input:
        raise InvalidInput("give either a value or --stdin")
    if value is not None:
        if item.is_secret:
            raise _visible(item)
        return str(value)
    data = sys.stdin.buffer.read(4 * MAX_VALUE + 1)
    if len(data) > 4 * MAX_VALUE:
        raise InvalidInput(f"{item.key!r} is longer than {MAX_VALUE >> 10} KiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not UTF-8 text (byte {error.start})") from None
    return text.removesuffix("\n").removesuffix("\r")


def _visible(item: SettingItem) -> InvalidInput:
    how = f"`tavern settings set {item.key} --stdin` reads the value from standard input"
    return InvalidInput(f"{item.key} is or holds a secret, and every user can see what a command is given: {how}")


def _parsed(item: SettingItem, text: str) -> JsonValue:
    """Return the value that a text stands for, by the setting's type. Raises `InvalidInput`."""
    if item.type in ("select", "button-group"):
        choices = [choice.value for choice in item.options or ()]
        return next((choice for choice in choices if _plain(choice) == text), text)
    if item.type not in ("number", "slider", "boolean", "json"):
        return text
    try:
        value: JsonValue = read_json(text, f"the value of {item.key}")
    except InvalidInput:
        if item.type == "json":
            raise
        return text  # the setting itself says what it expects
    return value


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: SettingValue) -> str:
    return _plain(value.value) if value.is_set else "(not set)"


def _json(value: SettingValue | None) -> JsonValue:
    return {**value.to_json(), "value": value.value} if value is not None else None
