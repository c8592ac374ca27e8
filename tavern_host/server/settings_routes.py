"""Settings over HTTP: `/api/plugins/{name}/settings` and `/api/config`, in the platform's JSON shapes.

Goes through the `settings` service, so that its overrides apply here too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from tavern_host.contracts.documents import read_json
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import SETTINGS, SettingItem, SettingsChange, SettingValue
from tavern_host.server.gate import call_of
from tavern_host.server.routes import route
from tavern_host.server.served import host_of


async def _show(request: web.Request) -> web.Response:
    """Answer with a plugin's settings in force by full key; secrets are masked, what is not set is null."""
    host = host_of(request)
    values = await host.services.get(SETTINGS).values(request.match_info["name"], call=call_of(host))
    return web.json_response(_flat(values))


async def _save(request: web.Request) -> web.Response:
    """Save the values in the body; keys are full, or without `extensions.{plugin}.`."""
    host = host_of(request)
    change = SettingsChange.model_construct(plugin=request.match_info["name"], values=await _body(request))
    values = await host.services.get(SETTINGS).save(change, call=call_of(host))
    message = f"The settings of {change.plugin} are saved."
    return web.json_response({"success": True, "message": message, "settings": _flat(values)})


async def _config(request: web.Request) -> web.Response:
    """Answer with the options of all plugins that are not disabled, each with its value and where that comes from."""
    host = host_of(request)
    settings = host.services.get(SETTINGS)
    options: list[dict[str, Any]] = []
    for name in dict.fromkeys(plugin.name for plugin in host.plugins() if plugin.is_enabled and plugin.config_options):
        values = {value.key: value for value in await settings.values(name, call=call_of(host))}
        options += [_option(name, item, values.get(item.key)) for item in await settings.options(name)]
    return web.json_response(options)


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


async def _body(request: web.Request) -> dict[str, Any]:
    body = read_json(await request.read(), "the body")
    if not isinstance(body, dict):
        raise InvalidInput('the body must be an object of new values by key, such as {"maxItems": 5}')
    return body


_VALUES = "tavern_host.contracts.host_api:SettingValues"

ROUTES = (
    route("GET", "/api/plugins/{name}/settings", _show, answer=_VALUES),
    route(
        "POST",
        "/api/plugins/{name}/settings",
        _save,
        body=_VALUES,
        answer="tavern_host.contracts.host_api:SettingsSaved",
        access="operate",
    ),
    route("GET", "/api/config", _config, answer="tavern_host.contracts.host_api:ConfigOption[]"),
)
