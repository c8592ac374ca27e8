"""Settings over HTTP: `/api/plugins/{name}/settings` and `/api/config`, in the platform's JSON shapes.

Goes through the `settings` service, so that its overrides apply here too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tavern_host import PLUGINS, SETTINGS, HttpRequest, HttpResponse, PluginContext
from tavern_host.common.redaction import secrets_of, short_note
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import SettingItem, SettingsChange, SettingValue


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a plugin's settings in force."""
    values = await context.services.get(SETTINGS).values(request.parameters["name"], call=request.call)
    return HttpResponse(data=_flat(values))


async def save(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Save the values in the body."""
    body = request.json_body()
    if not isinstance(body, dict):
        raise InvalidInput('the body must be an object of new values by key, such as {"maxItems": 5}')
    change = SettingsChange.model_construct(plugin=request.parameters["name"], values=body)
    settings = context.services.get(SETTINGS)
    values = await settings.save(change, call=request.call)
    options = {option.key: option for option in await settings.options(change.plugin)}
    new = {key if key in options else f"extensions.{change.plugin}.{key}": value for key, value in body.items()}
    note = short_note(one for key in new.keys() & options.keys() for one in secrets_of(options[key], new[key]))
    message = f"The settings of {change.plugin} are saved. {note}".strip()
    shown = {"settings": _flat(values), "notices": [note] if note else []}
    return HttpResponse(data={"success": True, "message": message, **shown})


async def config(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the options of all plugins that are not disabled, each with its value and where that comes from."""
    settings = context.services.get(SETTINGS)
    plugins = await context.services.get(PLUGINS).list_plugins()
    options: list[Any] = []
    for name in dict.fromkeys(plugin.name for plugin in plugins if plugin.is_enabled and plugin.config_options):
        values = {value.key: value for value in await settings.values(name, call=request.call)}
        options += [_option(name, item, values.get(item.key)) for item in await settings.options(name)]
    return HttpResponse(data=options)


def _flat(values: Iterable[SettingValue]) -> dict[str, Any]:
    return {value.key: value.value for value in values}


def _option(plugin: str, item: SettingItem, value: SettingValue | None) -> dict[str, Any]:
    """Return an option as the platform's `SettingItemConfig`, with our fields; a button has no value."""
    value = value or SettingValue(key=item.key, plugin=plugin)
    return {
        **item.to_json(),
        "secret": item.is_secret,
        "plugin": plugin,
        "value": value.value,
        "origin": value.origin,
        "isSet": value.is_set,
    }
