"""`tavern settings …`: shows and changes the settings of plugins.

Reads manifests and files only. Saving starts the host where a plugin may have a say in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pydantic import JsonValue

from tavern_host import SETTINGS, CommandOutput, Host, InvalidInput
from tavern_host.common.redaction import secrets_of, short_note
from tavern_host.contracts.documents import read_json
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.settings import SettingItem, Settings, SettingsChange, SettingValue

MakeHost = Callable[[], Host]
MAX_INPUT = 1 << 20
"""How long a value on standard input may be, in characters; as long as any may be."""
_HAVE_A_SAY = frozenset({"hook:server:settings:before-save", f"services.override:{SETTINGS.name}"})
"""The permissions of plugins that have a say in what is saved."""


async def show(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """List settings in force, and where each comes from."""
    host = _linked(make_host)
    asked = arguments.get("plugin")
    for problem in host.settings.problems(asked):
        yield CommandOutput(kind="progress", text=f"Warning: {problem}")
    plugins = [asked] if asked else list(dict.fromkeys(p.name for p in host.plugins() if p.config_options))
    values = [value for plugin in plugins for value in await host.settings.values(plugin)]
    rows = [[value.key, _text(value), value.origin if value.is_set else ""] for value in values]
    title = None if rows else "no settings"
    yield CommandOutput(kind="table", title=title, columns=["setting", "value", "from"], rows=rows)
    yield CommandOutput(kind="result", data=[_json(value) for value in values])


async def get(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Show the value in force of one setting."""
    host = _linked(make_host)
    item = host.settings.find(arguments["key"])
    value = await _value(host.settings, item)
    for problem in host.settings.problems(value.plugin):  # a saved value that cannot be used counts as none
        yield CommandOutput(kind="progress", text=f"Warning: {problem}")
    yield CommandOutput(kind="text", text=_text(value))
    yield CommandOutput(kind="result", data=_json(value))


async def save(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Save a value."""
    host = _linked(make_host)
    item = host.settings.find(arguments["key"])
    new = _parsed(item, _value_text(item, arguments))
    if item.is_encrypted and not arguments["stdin"] and _has_secret(new, item.secret_keys or ()):
        raise _visible(item)
    value = await _saved(host, item.key, new)
    yield CommandOutput(kind="message", text=f"{item.key} is saved.")
    if note := short_note(secrets_of(item, new)):
        yield CommandOutput(kind="progress", text=f"Warning: {note}")
    if value is not None and value.origin == "environment":
        text = f"The environment (TAVERN_SETTINGS) sets it too, so {_text(value)} stays in force."
        yield CommandOutput(kind="message", text=text)
    yield CommandOutput(kind="result", data=_json(value))


async def reset(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Take a saved value back."""
    host = _linked(make_host)
    key = host.settings.saved_key(arguments["key"])
    value = await _saved(host, key, None)
    if value is None:
        text = f"What was saved for {key} is taken back."
    elif value.is_set:
        text = f"{key} is {_text(value)} again, from the {value.origin}."
    else:
        text = f"{key} is not set any more."
    yield CommandOutput(kind="message", text=text)
    yield CommandOutput(kind="result", data=_json(value))


def _linked(make_host: MakeHost) -> Host:
    """Return a host that knows its plugins and has imported none."""
    host = make_host()
    host.link()
    return host


def _plugin_of(key: str) -> str:
    return key.split(".")[1]


async def _saved(host: Host, key: str, value: JsonValue) -> SettingValue | None:
    """Save a value and return the setting then in force, or None for one that no plugin declares."""
    change = SettingsChange(plugin=_plugin_of(key), values={key: value})
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
    plugins = [plugin for plugin in host.plugins() if plugin.state is PluginState.DISCOVERED]
    plugins = [plugin for plugin in plugins if not plugin.first_party or plugin.name == saved]
    return any(permission.name in _HAVE_A_SAY for plugin in plugins for permission in plugin.permissions)


async def _value(settings: Settings, item: SettingItem) -> SettingValue:
    if not item.holds_value:
        raise InvalidInput(f"{item.key} is a button and holds no value")
    return next(v for v in await settings.values(_plugin_of(item.key)) if v.key == item.key)


# --- values as text -------------------------------------------------------------------------------


def _value_text(item: SettingItem, arguments: dict[str, Any]) -> str:
    """Return the value's text from the command line or standard input."""
    value, from_input = arguments.get("value"), arguments["stdin"]
    if (value is None) != from_input:
        raise InvalidInput("give either a value or --stdin")
    if value is not None:
        if item.is_secret:
            raise _visible(item)
        return str(value)
    data = sys.stdin.buffer.read(4 * MAX_INPUT + 1)
    if len(data) > 4 * MAX_INPUT:
        raise InvalidInput(f"{item.key!r} is longer than {MAX_INPUT >> 10} KiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"standard input is not UTF-8 text (byte {error.start})") from None
    return text.removesuffix("\n").removesuffix("\r")


def _has_secret(value: JsonValue, keys: Sequence[str]) -> bool:
    """Return whether a JSON value holds a secret under one of these keys."""
    if isinstance(value, dict):
        return any(
            (key in keys and inner not in (None, "")) or _has_secret(inner, keys) for key, inner in value.items()
        )
    return isinstance(value, list) and any(_has_secret(inner, keys) for inner in value)


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
