"""The service `pluginChecks`: asks every plugin what is wrong with what another contributes to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tavern_devtools.api.checks import PLUGIN_CHECKS, PluginChecks, PluginFindings
from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_devtools.manifests import checked_plugin
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import PLUGINS, PluginState

if TYPE_CHECKING:
    from tavern_host import Host

HOOK = "tavern_check_plugin"
_IN_USE = (PluginState.LOADED, PluginState.STARTED)


class Checks(PluginChecks):
    """The provider of `pluginChecks`."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    async def check(self, plugin: CheckedPlugin, *, call: CallContext | None = None) -> list[Finding]:
        """Return the faults that all plugins find, by file and line."""
        answers = await self._context.hooks.collect(HOOK, plugin=plugin)
        found = [finding for answer in answers for finding in answer.value]
        return sorted(dict.fromkeys(found), key=lambda one: (one.file or "", one.line or 0, one.column or 0))

    async def check_loaded(self, *, call: CallContext | None = None) -> list[PluginFindings]:
        """Check third parties' plugins; what is known of one already is not reported a second time."""
        plugins = self._context.services.get(PLUGINS)
        roots = {asset.plugin: Path(asset.path) for asset in await plugins.assets("plugin")}
        found = []
        for info in await plugins.list_plugins():
            root = roots.get(info.name)
            if info.first_party or info.state not in _IN_USE or root is None:
                continue
            plugin = await asyncio.to_thread(checked_plugin, root, info.name, is_loaded=True)
            findings = await self.check(plugin)
            known = {(one.message, one.file) for one in (await plugins.get(info.name)).problems}
            for one in findings:
                if one.level == "error" and (one.message, one.file) not in known:
                    place: dict[str, Any] = {"file": one.file, "line": one.line, "column": one.column}
                    self._context.hooks.report(info.name, one.message, hint=one.hint, **place)
            found.append(PluginFindings(plugin=info.name, findings=findings))
        return found


async def check_loaded(host: Host) -> None:
    """Check the plugins of a host that has loaded them, for `tavern plugins list --check`."""
    with suppress(TavernError):
        await host.services.get(PLUGIN_CHECKS).check_loaded()


async def follow(context: PluginContext) -> None:
    """Check plugins now, and whenever they have changed, until cancelled: a host that serves says the same of them as
    the command does."""
    changed = context.events.subscribe("PLUGINS_CHANGED")
    checked = await _check_plugins(context)
    async for _ in changed:
        if checked != context.hooks.revision:
            checked = await _check_plugins(context)


async def _check_plugins(context: PluginContext) -> int:
    """Check plugins, and return the revision of the plugins that were checked."""
    revision = context.hooks.revision
    with suppress(TavernError):
        await context.services.get(PLUGIN_CHECKS).check_loaded()
    return revision
