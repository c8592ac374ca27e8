"""The host: the kernel wired together. Stages: link → load → start → stop.

async with Host(project="my-project") as host:
    run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="hello"))
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self, TypeVar

from tavern_host.audit.log import AuditLog, HostAudit
from tavern_host.context import Project
from tavern_host.context.facilities import Kernel
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import Admission, CallContext, Principal
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.plugins import PLUGINS, Explanation, Placement, PluginInfo, RunningHost
from tavern_host.contracts.reviews import ReviewedPlugin, ReviewNote
from tavern_host.contracts.services import ServiceInterface, ServiceKey
from tavern_host.contracts.settings import SETTINGS
from tavern_host.contracts.ui import FrontendFiles
from tavern_host.events.bus import EventBus
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.plugins.discovery import Sources
from tavern_host.plugins.grants import GRANTS, SWITCHES, GrantStore, SwitchStore, stamp
from tavern_host.plugins.manager import Manager
from tavern_host.plugins.manifest import entry_folders
from tavern_host.plugins.record import Record
from tavern_host.plugins.registrations import Registrations
from tavern_host.plugins.report import check_in_order
from tavern_host.plugins.review import Review
from tavern_host.plugins.service import HostPlugins
from tavern_host.plugins.why import explain
from tavern_host.projects import (
    OPERATOR_FILE,
    PROJECT_FILE,
    Folders,
    environment_settings,
    find_project,
    make_project,
    read_project_file,
)
from tavern_host.runtime.boundary import Boundary, Observer
from tavern_host.runtime.in_flight import InFlight
from tavern_host.runtime.installed import first_party_part
from tavern_host.runtime.threads import run_in_thread
from tavern_host.services.calls import Provider
from tavern_host.services.registry import Views
from tavern_host.settings.file import SettingsFile
from tavern_host.settings.secrets import SecretBox
from tavern_host.settings.service import HostSettings
from tavern_host.settings.store import SettingsStore, plugin_of
from tavern_host.storage.blobs import BlobStore
from tavern_host.storage.files import remove_unfinished
from tavern_host.storage.running_hosts import RunningHosts

S = TypeVar("S", bound=ServiceInterface)

HostPlacement = Literal["in-process", "loopback", "process"]

OPERATOR = Principal(kind="user", id="operator")


class HostServices:
    """The operator's way to services: every view has all permissions."""

    def __init__(self, manager: Manager) -> None:
        self._views = Views(manager.services, InFlight(str(OPERATOR)), OPERATOR, None, True)

    def get(self, key: ServiceKey[S]) -> S:
        """Return the operator's view of a service. Raises `ServiceUnavailable`."""
        view: S = self._views.get(key)
        return view


class Host:
    """A running host. Use it with `async with`; `link()` alone is enough to list plugins.

    `project` is a folder (made if it does not exist), else found as `tavern` finds it. `plugins` are
    folders or imported modules beside the installed ones; `trust` names plugins that need no grant;
    `dev` are folders of plugins being written, loaded with all that they ask for. `without` names plugins
    to leave out, `third_party=False` leaves out all that are not first-party. `settings` are full
    keys with values, above all other layers. With `strict`, a plugin that is not in order fails the start.
    `create` makes a project that does not exist when the host starts, `sample` fills it with the plugins'
    samples (the default project always is). `folders` are the operator's, by default this user's.
    `placement` is `in-process`, or for tests `loopback`: everything that crosses a plugin's boundary is encoded and
    decoded; by default what `TAVERN_PLACEMENT` says. `observer` sees calls and events. `serving` tells the plugins
    that this host runs until it is stopped, as `tavern serve` does, not for one command. With `follow`, it carries out
    what commands in other processes decide while it runs: grants, switches, settings (see `watch_decisions`).
    """

    _tasks: tuple[asyncio.Task[None], ...] = ()
    _watchdog: Any = None

    def __init__(
        self,
        project: Path | str | None = None,
        *,
        plugins: Sequence[Path | ModuleType] = (),
        trust: Iterable[str] = (),
        dev: Sequence[Path] = (),
        without: Iterable[str] = (),
        third_party: bool = True,
        settings: Mapping[str, Any] | None = None,
        strict: bool = False,
        create: bool = True,
        sample: bool = False,
        placement: HostPlacement | None = None,
        observer: Observer | None = None,
        folders: Folders | None = None,
        serving: bool = False,
        follow: bool = False,
    ) -> None:
        self.folders = folders = folders or Folders.of_user()
        opened = find_project(project, folders, create=create)
        operator = folders.operator_file()
        self.project: Project = opened.project
        self._is_new, self._with_sample = opened.is_new, sample or opened.is_default
        self._strict, self._follows = strict, follow
        self._bus: EventBus | None = None
        self._observer = observer
        catalogue = Catalogue()
        state = folders.project_state(self.project)
        self.blobs = BlobStore(self.project.private / "blobs")
        log = self.project.private / "audit" / "audit.sqlite3"
        self.audit = AuditLog(log, anchor=state / "audit.json", limits=operator.audit)
        file = SettingsFile(state / "settings.json", SecretBox(folders.state))
        above = {**environment_settings(), **(settings or {})}
        self._store = SettingsStore(
            project=dict(opened.file.settings), operator=dict(operator.settings), environment=above, file=file
        )
        self._manager = Manager(
            sources=Sources(folders=[self.project.plugins], dev=dev, embedded=plugins, packages=folders.packages),
            review=Review(operator, frozenset(trust), frozenset(without), third_party),
            grants=GrantStore(state / GRANTS),
            switches=SwitchStore(state / SWITCHES),
            settings=self._store,
            catalogue=catalogue,
            boundary=_boundary(placement, catalogue, self._setting, observer),
            kernel=self._kernel(state, serving),
            publish=self._publish,
            audit=self.audit.record,
        )
        self._files = {path: stamp(path) for path in (self.project.root / PROJECT_FILE, folders.config / OPERATOR_FILE)}
        self._plugins = HostPlugins(self._manager, self.audit, RunningHosts(state / "hosts"), [*self._files])
        self.settings = HostSettings(
            self._store,
            self._manager.report.manifests,
            filter=self._filter,
            publish=self._publish,
            decision=self.audit.decision,
        )
        self.services = HostServices(self._manager)
        self.registrations: Registrations = self._manager.registrations

    def _kernel(self, state: Path, serving: bool) -> partial[Kernel]:
        """Return the maker of the facilities in every plugin's context; `state` is the operator's folder."""
        return partial(
            Kernel,
            project=self.project,
            operator_dir=state,
            bus=lambda: self.events,
            serving=serving,
            audit=self.audit,
            blobs=self.blobs,
            proxies=lambda: self._manager.review.operator.proxy,
        )

    @property
    def events(self) -> EventBus:
        """The event bus; it exists while the host runs."""
        if self._bus is None:
            raise RuntimeError("the host is not running: use it with `async with`")
        return self._bus

    def link(self) -> list[PluginInfo]:
        """Discover plugins and decide which may be loaded. Reads manifests, imports nothing."""
        self._link()
        return self.plugins()

    def _link(self) -> None:
        if not self._manager.records:
            self._manager.link()

    def plugins(self) -> list[PluginInfo]:
        """Return every plugin with its state, in load order; refused namesakes come last. The names of what their
        modules define are with `plugin` only."""
        return self._manager.infos()

    def plugins_revision(self) -> object:
        """Return a value that differs whenever `plugins` may return something else."""
        return self._manager.revision()

    def plugin(self, name: str) -> PluginInfo:
        """Return one plugin. Raises `NotFound`."""
        return self._manager.info(name)

    def folder(self, info: PluginInfo) -> Path | None:
        """Return the folder of a plugin's code with links resolved, or None for one that has none."""
        root = self._record(info).root
        return root.resolve() if root is not None else None

    def locate(self, file: str) -> str | None:
        """Return the plugin that a file of code belongs to, loaded or not, or None. Safe on any thread."""
        return self._manager.report.locate(file)

    def reviewed(self, info: PluginInfo) -> ReviewedPlugin | None:
        """Return the plugin as the plugins that review it see it, or None where it has no folders of files, or needs no
        review since it is first-party."""
        record = self._record(info)
        if record.manifest is None or record.root is None or record.first_party:
            return None
        folders = {key: str(path.absolute()) for key, path in entry_folders(record.manifest, record.root).items()}
        root = None if record.placement == "in-process" else str(record.root.absolute())
        return ReviewedPlugin(name=record.name, root=root, folders=folders) if folders or root is not None else None

    async def review(self, plugin: ReviewedPlugin) -> list[ReviewNote]:
        """Return the notes of the loaded plugins on one that is under review, of this host or of another."""
        answers = await self._manager.dispatcher.collect("tavern_review_plugin", {"plugin": plugin})
        return [note for answer in answers for note in answer.value]

    async def notes(self, info: PluginInfo, judge: Host, *, judged: bool = True) -> list[ReviewNote]:
        """Return the notes on a plugin of the plugins of another host, which is loaded for that alone; with `judged`
        also what its policy would refuse."""
        reviewed = self.reviewed(info)
        if reviewed is None:
            return []
        try:
            await judge.load()
            return await judge.review(reviewed.model_copy(update={"judged": judged}))
        finally:
            await judge.stop()

    def _record(self, info: PluginInfo) -> Record:
        """Return a record of this host's plugins; two of one name differ in their source. Raises `NotFound`."""
        same = (one for one in self._manager.name_conflicts if (one.name, one.source) == (info.name, info.source))
        return next(same, None) or self._manager.get(info.name)

    async def grant(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Grant a plugin exactly what it asks for now, and load it if the host runs."""
        return await self._plugins.grant(name, call=call)

    async def revoke(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Take a plugin's grant back; what it registered is gone when this returns."""
        return await self._plugins.revoke(name, call=call)

    async def enable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Let a plugin be loaded again that was disabled, and load it if the host runs."""
        return await self._plugins.enable(name, call=call)

    async def disable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Unload a plugin until it is enabled again; returns when its work in flight has ended."""
        return await self._plugins.disable(name, call=call)

    async def place(self, name: str, placement: Placement | None, *, call: CallContext | None = None) -> PluginInfo:
        """Run a plugin in the host's process or in one of its own; with None, as its manifest and `host.yaml` say."""
        return await self._plugins.place(name, placement, call=call)

    async def reload(self, name: str | None = None, *, call: CallContext | None = None) -> list[PluginInfo]:
        """Reload one plugin, or look for all that are new, changed or gone; return those that are there."""
        return await self._plugins.reload(name, call=call)

    def ask_to_reload(self, name: str | None = None) -> None:
        """Let the running hosts of this project reload a plugin, or look for all."""
        self._plugins.ask_to_reload(name)

    async def running_hosts(self) -> list[RunningHost]:
        """Return the hosts that follow decisions on this project, in other processes too, once each has carried out
        what was decided until now."""
        return await self._plugins.wait_for_hosts()

    def why(self, subject: str) -> Explanation:
        """Explain `service:NAME`, `hook:NAME`, `permission:NAME` or `plugin:NAME`; see `Plugins.why`."""
        return explain(self._manager, subject)

    def owned(self, name: str) -> dict[str, list[str]]:
        """Return the names of all that a plugin owns at this moment, by kind."""
        return self._manager.report.owned(name)

    @property
    def origins(self) -> list[str]:
        """The origins whose pages may send a token."""
        return self._manager.review.operator.origins

    async def watch_decisions(self, *, every: float = 0.5) -> None:
        """Follow what other processes of the operator decide (grants, switches, settings), and remove Blobs that nobody
        holds, until cancelled."""
        await asyncio.gather(self._plugins.watch(self._follow_files, every=every), self.blobs.sweep_always())

    def _follow_files(self) -> bool:
        """Take over what was changed in the saved settings, in `tavern.yaml` and in `host.yaml`; return whether one of
        these two was. Raises `InvalidFile` for one that cannot be read: what holds now holds until it is mended."""
        self.settings.follow()
        seen = {path: stamp(path) for path in self._files}
        if seen == self._files:
            return False
        self._files = seen
        self._read_files()
        return True

    def _read_files(self) -> None:
        project, operator = read_project_file(self.project.root), self.folders.operator_file()
        self.settings.set_files(dict(project.settings), dict(operator.settings))
        self._plugins.follow_operator(operator)

    def in_flight(self) -> int:
        """Return how much work of plugins is in flight: calls, and what they began that is to end."""
        return self._manager.lifecycle.in_flight()

    def begin_draining(self) -> int:
        """Tell plugins that the host stops as soon as what is in flight has ended, and return how much that is."""
        return self._manager.lifecycle.begin_draining()

    def report_failure(self, plugin: str, where: str, error: BaseException) -> None:
        """Report a failure of a plugin: in the log, and as a problem that people see."""
        self._manager.problems.failed(plugin, where, error)

    def call(self, user: str = OPERATOR.id, admission: Admission | None = None) -> CallContext:
        """Return the context of a call that the operator makes, or another user, by a request."""
        who = OPERATOR if user == OPERATOR.id else Principal.construct(kind="user", id=user)
        return CallContext.construct(principal=who, project=self.project.id, admission=admission)

    def frontend_files(self, plugin: str) -> FrontendFiles | None:
        """Return the files that are served under `/plugins/{plugin}/`, for a loaded plugin that has a front end."""
        loaded = self._manager.active.get(plugin)
        return loaded.frontend if loaded is not None else None

    async def load(self) -> None:
        """Import, admit and register plugins, without starting them (enough to know all commands). Writes nothing.

        Raises `RuntimeError` for a host that was loaded before.
        """
        self._check_unused()
        self._bus = EventBus(self._observer.published if self._observer is not None else None)
        self._link()
        self._provide_services()
        with contextlib.suppress(NotFound):  # where the installation is damaged, which the plugins' problems say
            watch = first_party_part("watchdog:Watchdog")
            self._watchdog = watch(self._manager.report.locate, self._manager.problems.blocked)
            self._watchdog.start()
        await self._manager.load_all()

    async def start(self) -> None:
        """Start all loaded plugins. Raises `AdmissionError` with `strict` where one is not in order."""
        if self._is_new:
            samples = [Path(asset.path) for asset in self._manager.report.assets("sample")] if self._with_sample else []
            make_project(self.project.root, samples)
            self._read_files()
            self._is_new = False
        self._tasks = (asyncio.create_task(self._remove_unfinished(), name="remove unfinished files"),)
        await self._manager.start_all()
        if self._follows:
            self._tasks += (asyncio.create_task(self.watch_decisions(), name="follow decisions"),)
        if self._strict:
            check_in_order(self.plugins())

    async def _remove_unfinished(self) -> None:
        """Remove what writers left that were killed, in the project and in the operator's folder."""
        for root in (self.project.root, self.folders.state):
            await run_in_thread(partial(remove_unfinished, root), what="removing unfinished files")

    async def stop(self) -> None:
        """Stop all plugins, newest first, and end every subscription."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._manager.stop_all()
        finally:
            if self._watchdog is not None:
                self._watchdog.stop()
            await self.audit.close()
            await self.blobs.close()
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

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _check_unused(self) -> None:
        if self._bus is not None:
            raise RuntimeError("a host runs once; make another one")

    def _provide_services(self) -> None:
        for key, instance in (
            (PLUGINS, self._plugins),
            (SETTINGS, self.settings),
            (AUDIT, HostAudit(self.audit, self._manager.catalogue.records)),
        ):
            handler = f"{type(instance).__module__}:{type(instance).__name__}"
            self._manager.services.add(Provider("tavern-host", handler, key.name, key.version, instance))

    def _setting(self, key: str) -> Any:
        """What the operator, or the environment, says for the full key of a plugin's setting; None for nothing."""
        record = self._manager.records.get(plugin_of(key) or "")
        layers = self._store.resolve(record.manifest).layers.get(key, {}) if record and record.manifest else {}
        return layers.get("environment", layers.get("operator"))

    def _publish(self, type: str, payload: Mapping[str, Any]) -> None:
        if self._bus is not None:
            self._bus.publish(type, payload)

    async def _filter(self, hook: str, value: Any, /, **arguments: Any) -> Any:
        return await self._manager.dispatcher.filter(hook, value, arguments)


def _boundary(
    placement: str | None, catalogue: Catalogue, setting: Callable[[str], Any], observer: Observer | None
) -> Boundary:
    """Return the boundary of a placement. Raises `InvalidInput` for an unknown one."""
    placement = placement or os.environ.get("TAVERN_PLACEMENT") or "in-process"
    boundary = Boundary(catalogue, setting)
    if placement == "loopback":
        boundary = first_party_part("loopback:Loopback")(catalogue.spec)
    elif placement == "process":
        boundary = first_party_part("placement:Isolated")(catalogue)
    elif placement != "in-process":
        raise InvalidInput(f"the placement is in-process, loopback or process, not {placement!r}")
    boundary.observers |= {"": observer} if observer is not None else {}
    return boundary
