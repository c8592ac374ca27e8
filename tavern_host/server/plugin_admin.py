"""Plugins and the decisions about them over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

from aiohttp import web

from tavern_host.contracts.documents import read_json, read_model
from tavern_host.contracts.http import EncodedOnce
from tavern_host.contracts.languages import CATALOGUE
from tavern_host.contracts.plugins import PluginInfo
from tavern_host.host import Host
from tavern_host.server.bodies import body_of
from tavern_host.server.gate import call_of
from tavern_host.server.plugin_routes import answered
from tavern_host.server.routes import route
from tavern_host.server.served import SERVED, host_of

_ENCODED: WeakKeyDictionary[Host, dict[str, EncodedOnce[PluginInfo]]] = WeakKeyDictionary()
"""The plugins of each host as they are listed, by language."""


async def _list_plugins(request: web.Request) -> web.Response:
    """List all plugins that were found."""
    host, language = host_of(request), CATALOGUE.get().language
    by_language = _ENCODED.setdefault(host, {})
    if (encoded := by_language.get(language)) is None:
        as_seen = partial(_as_seen, host.project.id, host is request.app[SERVED].default)
        encoded = by_language[language] = EncodedOnce(as_seen)
    revision = host.plugins_revision()
    return answered(request, encoded.known(revision) or encoded.answer(host.plugins(), revision))


async def _show_plugin(request: web.Request) -> web.Response:
    """Show a plugin."""
    return web.json_response(_shown(request, host_of(request).plugin(request.match_info["name"])))


def _shown(request: web.Request, plugin: PluginInfo) -> dict[str, Any]:
    """Return a plugin as clients see it, its front end with the addresses that it has in its project."""
    host = host_of(request)
    return _as_seen(host.project.id, host is request.app[SERVED].default, plugin)


def _as_seen(project: str, is_default: bool, plugin: PluginInfo) -> dict[str, Any]:
    shown = plugin.in_words()
    if plugin.frontend is not None and not is_default:
        shown["frontend"] = plugin.frontend.below(f"/projects/{project}").to_json()
    return shown


async def _decided(request: web.Request, decision: Literal["grant", "revoke", "enable", "disable"]) -> PluginInfo:
    """Carry out a decision about the plugin that the path names."""
    host = host_of(request)
    plugin: PluginInfo = await getattr(host, decision)(request.match_info["name"], call=call_of(host))
    return plugin


async def _grant_plugin(request: web.Request) -> web.Response:
    """Grant a plugin what it asks for, as it was reviewed."""
    return web.json_response(_shown(request, await _decided(request, "grant")))


async def _revoke_plugin(request: web.Request) -> web.Response:
    """Take back what was granted to a plugin."""
    return web.json_response(_shown(request, await _decided(request, "revoke")))


async def _switch_plugin(request: web.Request) -> web.Response:
    """Enable or disable a plugin: `{"enabled": true}` (the platform's shape)."""
    from tavern_host.contracts.host_api import PluginSwitch

    name = request.match_info["name"]
    switch = read_model(PluginSwitch, read_json(await body_of(request), "the body"), "the body")
    plugin = await _decided(request, "enable" if switch.enabled else "disable")
    return _done(request, f"{name} is {plugin.state.value}", [plugin])


async def _place_plugin(request: web.Request) -> web.Response:
    """Run a plugin in the host's process, or in one of its own."""
    from tavern_host.contracts.host_api import PluginPlacement

    wanted = read_model(PluginPlacement, read_json(await body_of(request), "the body"), "the body")
    host = host_of(request)
    plugin = await host.place(request.match_info["name"], wanted.placement, call=call_of(host))
    return web.json_response(_shown(request, plugin))


async def _reload(request: web.Request) -> web.Response:
    """Reload the plugin that the path names; without a name, all that are new, changed or gone."""
    host = host_of(request)
    plugins = await host.reload(request.match_info.get("name"), call=call_of(host))
    changed = ", ".join(f"{p.name} is {p.state.value}" for p in plugins)
    return _done(request, changed or "no plugin is new, changed or gone", plugins)


def _done(request: web.Request, message: str, plugins: list[PluginInfo]) -> web.Response:
    body = {"success": True, "message": message, "plugins": [_shown(request, plugin) for plugin in plugins]}
    return web.json_response(body)


_PLUGIN = "tavern_host.contracts.plugins:PluginInfo"
_CHANGED = "tavern_host.contracts.host_api:PluginsChanged"
_PLACEMENT = "tavern_host.contracts.host_api:PluginPlacement"
_SWITCH = "tavern_host.contracts.host_api:PluginSwitch"

ROUTES = (
    route("GET", "/api/plugins", _list_plugins, answer=f"{_PLUGIN}[]"),
    route("POST", "/api/plugins/reload", _reload, answer=_CHANGED, access="operate"),
    route("GET", "/api/plugins/{name}", _show_plugin, answer=_PLUGIN),
    route("PUT", "/api/plugins/{name}/state", _switch_plugin, body=_SWITCH, answer=_CHANGED, access="operate"),
    route("PUT", "/api/plugins/{name}/placement", _place_plugin, body=_PLACEMENT, answer=_PLUGIN, access="operate"),
    route("POST", "/api/plugins/{name}/grant", _grant_plugin, answer=_PLUGIN, access="operate"),
    route("POST", "/api/plugins/{name}/revoke", _revoke_plugin, answer=_PLUGIN, access="operate"),
    route("POST", "/api/plugins/{name}/reload", _reload, answer=_CHANGED, access="operate"),
)
