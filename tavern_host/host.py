"""The host: the kernel wired together. Stages: link → load → start → stop.

async with Host(project="my-project") as host:
    run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="hello"))
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

from tavern_host.context import Project
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import TavernError, describe
from tavern_host.contracts.plugins import (
    PLUGINS,
    AdmissionError,
    PluginAsset,
    PluginInfo,
    Plugins,
    PluginState,
    ServiceLayer,
)
from tavern_host.contracts.services import ServiceInterface, ServiceKey
from tavern_host.events import EventBus
from tavern_host.manager import Manager
from tavern_host.permissions import GrantStore
from tavern_host.projects import Folders, environment_settings, find_project, make_project, read_project_file
from tavern_host.routes import Registrations
from tavern_host.services import Provider
from tavern_host.settings import SettingsStore

S = TypeVar("S", bound=ServiceInterface)

_log = logging.getLogger("tavern.plugins")

OPERATOR = Principal(kind="user", id="operator")


class HostServices:
    """The operator's way to services: every view has all permissions."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def get(self, key: ServiceKey[S]) -> S:
        """Return the operator's view of a service. Raises `ServiceUnavailable`."""
        view: S = self._manager.services.operator_view(key, OPERATOR)
        return view


class Host:
    """A running host. Use it with `async with`; `link()` alone is enough to list plugins.

    `project` is a folder (made if it does not exist), else found as `tavern` finds it. `plugins` are
    folders or imported modules beside the installed ones; `trust` names plugins that need no grant;
    `dev` are folders of plugins being written, loaded with all that they ask for. `settings` are full
    keys with values, above all other layers. With `strict`, a plugin that is not in order fails the start.
    `create` makes a project that does not exist when the host starts, `sample` fills it with the plugins'
    samples (the default project always is). `folders` are the operator's, by default this user's.
    """

    def __init__(
        self,
        project: Path | str | None = None,
        *,
        plugins: Sequence[Path | ModuleType] = (),
        trust: Iterable[str] = (),
        dev: Sequence[Path] = (),
        settings: Mapping[str, Any] | None = None,
        strict: bool = False,
        create: bool = True,
        sample: bool = False,
        folders: Folders | None = None,
    ) -> None:
        folders = folders or Folders.of_user()
        opened = find_project(project, folders, create=create)
        operator = folders.operator_file()
        self.project: Project = opened.project
        self.folders = folders
        self._is_new = opened.is_new
        self._with_sample = sample or opened.is_default
        self._strict = strict
        self._bus: EventBus | None = None
        self._settings = SettingsStore(
            project=dict(opened.file.settings),
            operator=dict(operator.settings),
            environment={**environment_settings(), **(settings or {})},
        )
        self._grants = GrantStore(folders.project_state(self.project) / "grants.json")
        self._manager = Manager(
            project=self.project,
            operator=operator,
            grants=self._grants,
            settings=self._settings,
            embedded=plugins,
            dev=dev,
            trust=trust,
            bus=lambda: self.events,
        )
        self.services = HostServices(self._manager)

    @property
    def events(self) -> EventBus:
        """The event bus; it exists while the host runs."""
        if self._bus is None:
            raise RuntimeError("the host is not running: use it with `async with`")
        return self._bus

    @property
    def registrations(self) -> Registrations:
        """The routes, messages and commands of the loaded plugins."""
        return self._manager.registrations

    def link(self) -> list[PluginInfo]:
        """Discover plugins and decide which may be loaded. Reads manifests, imports nothing."""
        if not self._manager.records:
            self._manager.link()
        return self.plugins()

    def plugins(self) -> list[PluginInfo]:
        """Return every plugin with its state, in load order; refused namesakes come last."""
        records = [*self._manager.records.values(), *self._manager.duplicates]
        return [self._manager.info(record) for record in records]

    def plugin(self, name: str) -> PluginInfo:
        """Return one plugin. Raises `NotFound`."""
        return self._manager.info(self._manager.get(name))

    async def grant(self, name: str) -> PluginInfo:
        """Grant a plugin exactly what it asks for now, and load it if the host runs."""
        await self._manager.grant(name)
        return self.plugin(name)

    async def revoke(self, name: str) -> PluginInfo:
        """Take a plugin's grant back; what it registered is gone when this returns."""
        await self._manager.revoke(name)
        return self.plugin(name)

    async def watch_grants(self, *, every: float = 0.5) -> None:
        """Follow what other processes of the operator grant and take back, until cancelled."""
        seen = self._grants.changed()
        while True:
            await asyncio.sleep(every)
            if (changed := self._grants.changed()) != seen:
                seen = changed
                try:
                    await self._manager.follow_grants()
                except (TavernError, OSError) as error:  # a damaged file: what holds now holds until it is mended
                    _log.error("grants cannot be followed: %s", describe(error))

    def call(self) -> CallContext:
        """Return the context of a call that the operator makes."""
        return CallContext(principal=OPERATOR, project=self.project.id)

    def frontend_folder(self, plugin: str) -> Path | None:
        """Return the folder that is served under `/plugins/{plugin}/`, for a loaded plugin that has one."""
        active = self._manager.active.get(plugin)
        if active is None or active.record.root is None or active.record.manifest is None:
            return None
        frontend = active.record.manifest.frontend
        folder = frontend.folder() if frontend is not None else None
        return active.record.root / folder if folder is not None else None

    async def load(self) -> None:
        """Import, admit and register plugins, without starting them (enough to know all commands). Writes nothing.

        Raises `RuntimeError` for a host that was loaded before.
        """
        self._check_unused()
        self._bus = EventBus()
        self.link()
        self._provide_plugins()
        await self._manager.load_all()

    async def start(self) -> None:
        """Start all loaded plugins. Raises `AdmissionError` with `strict` where one is not in order."""
        if self._is_new:
            make_project(self.project.root, self._manager.samples() if self._with_sample else ())
            self._settings.set_project(dict(read_project_file(self.project.root).settings))
            self._is_new = False
        await self._manager.start_all()
        if self._strict:
            bad = [
                p for p in self.plugins() if p.state not in (PluginState.STARTED, PluginState.DISABLED) or p.problems
            ]
            if bad:
                lines = [f"  {p.name} is {p.state.value}: {problem}" for p in bad for problem in p.problems]
                problems = [problem for p in bad for problem in p.problems]
                raise AdmissionError("not all plugins are in order:\n" + "\n".join(lines), problems)

    async def stop(self) -> None:
        """Stop all plugins, newest first, and end every subscription."""
        await self._manager.stop_all()
        if self._bus is not None:
            await self._bus.close()

    async def __aenter__(self) -> Self:
        self._check_unused()
        try:
            await self.load()
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _check_unused(self) -> None:
        if self._bus is not None:
            raise RuntimeError("a host runs once; make another one")

    def _provide_plugins(self) -> None:
        provider = Provider("tavern-host", "tavern_host.host:HostPlugins", PLUGINS.name, PLUGINS.version)
        provider.instance = HostPlugins(self, self._manager)
        self._manager.services.add(provider)


class HostPlugins(Plugins):
    """The `plugins` service: what plugins may know of each other."""

    def __init__(self, host: Host, manager: Manager) -> None:
        self._host = host
        self._manager = manager

    async def list_plugins(self) -> list[PluginInfo]:
        """Return every plugin."""
        return self._host.plugins()

    async def get(self, name: str) -> PluginInfo:
        """Return one plugin."""
        return self._host.plugin(name)

    async def assets(self, kind: str) -> list[PluginAsset]:
        """Return the folders of a kind that loaded plugins declare."""
        return self._manager.assets(kind)

    async def service_stack(self, service: str) -> list[ServiceLayer]:
        """Return the providers of a service."""
        return self._manager.services.layers(service)

    async def grant(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Grant a plugin what it asks for."""
        return await self._host.grant(name)

    async def revoke(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Take a plugin's grant back."""
        return await self._host.revoke(name)
