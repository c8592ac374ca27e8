"""The `plugins` service: what plugins may know of each other, and decide with a permission."""

from __future__ import annotations

import asyncio

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.plugins import Explanation, PluginAsset, PluginInfo, Plugins, ServiceLayer
from tavern_host.plugins.manager import Manager
from tavern_host.plugins.operator import OPERATOR, Operator
from tavern_host.plugins.why import explain


class HostPlugins(Plugins):
    """Provides the service for one host."""

    def __init__(self, manager: Manager, operator: Operator) -> None:
        self._manager = manager
        self._operator = operator

    async def list_plugins(self) -> list[PluginInfo]:
        """Return every plugin."""
        return self._manager.infos()

    async def get(self, name: str) -> PluginInfo:
        """Return one plugin."""
        return self._manager.info(name)

    async def assets(self, kind: str) -> list[PluginAsset]:
        """Return the folders of a kind that loaded plugins declare."""
        if kind != "plugin":
            return self._manager.report.assets(kind)
        return await asyncio.to_thread(self._manager.report.assets, kind)  # it looks at all files of these folders

    async def service_stack(self, service: str) -> list[ServiceLayer]:
        """Return the providers of a service."""
        return self._manager.services.layers(service)

    async def why(self, subject: str) -> Explanation:
        """Explain a subject."""
        return explain(self._manager, subject)

    async def grant(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Grant a plugin what it asks for."""
        return await self._operator.grant(name, actor=_actor(call))

    async def revoke(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Take a plugin's grant back."""
        return await self._operator.revoke(name, actor=_actor(call))

    async def enable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Let a plugin be loaded again."""
        return await self._operator.enable(name, actor=_actor(call))

    async def disable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Unload a plugin until it is enabled again."""
        return await self._operator.disable(name, actor=_actor(call))

    async def reload(self, name: str | None = None, *, call: CallContext | None = None) -> list[PluginInfo]:
        """Reload one plugin, or all that have changed."""
        return await self._operator.reload(name, actor=_actor(call))


def _actor(call: CallContext | None) -> str:
    return str(call.principal) if call is not None else OPERATOR
