"""What the project has of triggers, and which kinds of them there are, both as they are now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tavern_host import PluginContext
from tavern_host.context import HookResult
from tavern_host.contracts.plugins import PLUGINS, PluginAsset
from tavern_host.storage.file_watch import WatchedFiles
from tavern_triggers.api.kinds import TriggerKindInfo
from tavern_triggers.api.triggers import TriggerKind
from tavern_triggers.files import KINDS, Found, read_triggers


class TriggerFiles:
    """The files of triggers, read again when one has changed."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self.folder = context.project.folder("triggers")
        self._watched = WatchedFiles(".json")
        self._plugins, self._revision = -1, -1
        self._brought: list[PluginAsset] = []
        self._found: Found = {}
        self.plugins: dict[str, str] = {}
        """The plugin of each trigger that one brings and the project has not, as it was when somebody asked."""

    async def now(self) -> Found:
        """Return the triggers by id, those of plugins too; of broken files what is wrong."""
        hooks, services = self._context.hooks, self._context.services
        if self._plugins != hooks.revision and services.has(PLUGINS):
            self._plugins, self._revision = hooks.revision, -1
            self._brought = await services.get(PLUGINS).assets("triggers")
        folders = [str(self.folder), *(asset.path for asset in self._brought)]
        revision = await self._watched.revision(*folders)
        if revision != self._revision:
            found, owners = dict(await asyncio.to_thread(read_triggers, self.folder)), dict[str, str]()
            for asset in self._brought:
                for id, trigger in (await asyncio.to_thread(read_triggers, Path(asset.path))).items():
                    is_free = id not in found or id in owners
                    if is_free and hooks.claim(owners, "trigger", id, asset.plugin):
                        found[id] = trigger
            self._found, self.plugins, self._revision = found, owners, revision
        return self._found


@dataclass(frozen=True)
class PluginKind:
    """A kind of a plugin, and how its handler is reached."""

    info: TriggerKindInfo
    result: HookResult[list[TriggerKindInfo]]


class Kinds:
    """The kinds of triggers."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._revision = -1
        self._all: dict[str, TriggerKind] = {}
        self.known: dict[str, PluginKind] = {}
        """Those of plugins, as they were when somebody asked."""

    async def now(self) -> dict[str, TriggerKind]:
        """Return all kinds, the host's own first."""
        hooks = self._context.hooks
        if self._revision != hooks.revision:
            self._revision, owners, known = hooks.revision, dict[str, str](), dict[str, PluginKind]()
            for result in await hooks.collect("tavern_register_trigger_kinds"):
                for info in result.value or []:
                    if hooks.claim(owners, "kind of trigger", info.name, result.plugin):
                        known[info.name] = PluginKind(info, result)
            self.known = known
            own = {name: (about, model.model_json_schema(), "") for name, (model, about) in KINDS.items()}
            added = {
                name: (one.info.description, one.info.config_schema, one.result.plugin) for name, one in known.items()
            }
            self._all = {
                name: TriggerKind(name=name, description=about, config_schema=schema, plugin=plugin)
                for name, (about, schema, plugin) in {**own, **added}.items()
            }
        return self._all
