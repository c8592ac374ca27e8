"""Admits, orders, loads and unloads plugins. Decides by manifests alone until a plugin is allowed to load."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tavern_host import __version__
from tavern_host.admission import admit
from tavern_host.context import Project
from tavern_host.contracts.errors import Conflict, NotFound, TavernError, describe
from tavern_host.contracts.http import RouteInfo
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import AdmissionError, PluginAsset, PluginInfo, PluginState, Problem
from tavern_host.discovery import Record, content_hash, discover
from tavern_host.dispatch import Answer, Dispatcher
from tavern_host.events import EventBus
from tavern_host.facilities import Lease, log_failure, make_context
from tavern_host.ledger import Ledger
from tavern_host.loaded import LoadedPlugin
from tavern_host.manifest import Entry
from tavern_host.ordering import dependency_problems, load_order
from tavern_host.permissions import Grant, GrantStore, Trust, asked, decide
from tavern_host.projects import OperatorFile
from tavern_host.routes import Registered, Registrations
from tavern_host.runtime import InProcessRuntime
from tavern_host.services import Provider, ServiceRegistry
from tavern_host.settings import SettingsStore
from tavern_host.threads import run_in_thread

IMPORT_DEADLINE = 30.0
SHUTDOWN_DEADLINE = 5.0
"""Seconds that importing a plugin, and its shutdown, may take."""

_log = logging.getLogger("tavern.plugins")


class Manager:
    """All plugins of one host, from discovery to unloading."""

    def __init__(
        self,
        *,
        project: Project,
        operator: OperatorFile,
        grants: GrantStore,
        settings: SettingsStore,
        embedded: Sequence[Path | ModuleType] = (),
        dev: Sequence[Path] = (),
        trust: Iterable[str] = (),
        bus: Callable[[], EventBus],
    ) -> None:
        self._project = project
        self._operator = operator
        self._grants = grants
        self._settings = settings
        self._embedded = embedded
        self._dev = dev
        self._trust = frozenset(trust)
        self._bus = bus
        self._running = False
        self._deciding = asyncio.Lock()
        self.records: dict[str, Record] = {}
        self.duplicates: list[Record] = []
        self.active: dict[str, LoadedPlugin] = {}
        self.ledger = Ledger()
        self.dispatcher = Dispatcher(self._report)
        self.services = ServiceRegistry(self._holds, operator.overrides)
        self.registrations = Registrations()

    # --- link: read and decide, import nothing ------------------------------------------------------

    def link(self) -> None:
        """Discover all plugins and decide from their manifests which may be loaded, in which order."""
        found = discover(folders=[self._project.plugins], dev=self._dev, embedded=self._embedded)
        named: dict[str, Record] = {}
        for record in found:
            if record.name in named:
                self.duplicates.append(record)
            else:
                named[record.name] = record
        self.records = {record.name: record for record in load_order(list(named.values()))}
        grants = self._grants.read()
        for record in self.records.values():
            self._decide(record, grants.get(record.name))
        self._check_dependencies()

    def _decide(self, record: Record, grant: Grant | None) -> None:
        """Set a record's permissions and, where it may not be loaded, its state and why."""
        manifest = record.manifest
        if manifest is None or record.state is PluginState.INVALID:
            return
        try:
            needs_hash = record.module is None and record.root is not None and record.has_code
            code_hash = content_hash(record.root) if needs_hash and record.root else None
        except OSError as error:
            message = f"{error.filename} cannot be read: {error.strerror}"
            record.refuse(PluginState.INVALID, Problem(message=message, hint="all of a plugin's code is reviewed"))
            return
        wanted, problems = asked(manifest, code_hash=f"sha256:{code_hash}" if code_hash else None)
        if manifest.nodes and manifest.nodes.namespace not in (None, manifest.name):
            namespace = manifest.nodes.namespace
            if not (record.first_party and namespace == "core"):
                hint = f"leave it out; it is {manifest.name!r} then"
                problems.append(Problem(message=f"nodes.namespace: {namespace!r} is not the plugin's own", hint=hint))
        record.permissions = decide(wanted, grant, record.source, trust=self._trust_in(record))
        if problems:
            record.refuse(PluginState.INVALID, *problems)
        elif not SpecifierSet(manifest.api_version).contains(Version(__version__), prereleases=True):
            hint = f"install a version of {manifest.name} for tavern-host {__version__}"
            message = f"it is made for tavern-host {manifest.api_version}; this is {__version__}"
            record.refuse(PluginState.INCOMPATIBLE, Problem(message=message, hint=hint))
        elif manifest.runtime.placement == "process" or manifest.runtime.wire != 1:
            message = "it asks to run in a process of its own, or for another wire version"
            record.refuse(PluginState.INCOMPATIBLE, Problem(message=message, hint="this host runs wire 1, in process"))
        elif record.name in self._operator.disabled:
            hint = "take it out of `disabled` in host.yaml"
            record.refuse(PluginState.DISABLED, Problem(message="the operator has disabled it", hint=hint))
        elif missing := [p.name for p in record.permissions if not p.granted]:
            message = f"it asks for {', '.join(missing)}, which nobody has granted"
            hint = f"look at `tavern plugins show {record.name}`, then `tavern plugins grant {record.name}`"
            record.refuse(PluginState.NEEDS_REVIEW, Problem(message=message, hint=hint))

    def _check_dependencies(self) -> None:
        for name, problem in dependency_problems(self.records):
            self.records[name].refuse(PluginState.INCOMPATIBLE, problem)

    def _holds(self, plugin: str, permission: str) -> bool:
        active = self.active.get(plugin)
        return active is not None and any(p.granted and p.name == permission for p in active.record.permissions)

    # --- load: import, admit, register ----------------------------------------------------------------

    async def load_all(self) -> None:
        """Load every plugin that may be loaded, in order; then prepare the hooks."""
        for record in self.records.values():
            if record.state is PluginState.DISCOVERED:
                await self._load(record)
        self._rebuild()

    async def _drop_dependents(self) -> None:
        """Take out every plugin that requires one which is not there any more."""
        for name, problem in dependency_problems(self.records):
            await self._unload(self.records[name])
            self.records[name].refuse(PluginState.INCOMPATIBLE, problem)

    async def _load(self, record: Record) -> None:
        began = time.perf_counter()
        assert record.manifest is not None
        lease = Lease(record.name)
        context = make_context(
            plugin=record.name,
            lease=lease,
            project=self._project,
            registry=self.services,
            settings=self._settings.of(record.manifest),
            bus=self._bus(),
            ledger=self.ledger,
            dispatcher=self.dispatcher,
            declared=self._declared,
            report=self._report,
        )
        active = LoadedPlugin(record, record.manifest, InProcessRuntime(record, context), context, lease)
        try:
            what = f"importing {record.name}"
            await run_in_thread(active.runtime.load, deadline=IMPORT_DEADLINE, what=what)
            record.timings["import"] = (time.perf_counter() - began) * 1000
            self.active[record.name] = active
            await admit(active, self.dispatcher, self.services, self.registrations)
            self._register(active)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            await self._fail(record, "loading", error)
            lease.end()
            active.runtime.unload()
            await self._drop_dependents()
        except asyncio.CancelledError:
            if record.name not in self.active:  # else stopping the host unloads it
                active.runtime.unload()
            raise
        else:
            record.state = PluginState.LOADED
            record.problems.extend(self._settings.problems(record.manifest))
        record.timings["load"] = (time.perf_counter() - began) * 1000

    def _register(self, active: LoadedPlugin) -> None:
        """Register what was admitted, each entry with its undo in the ledger."""
        name, declarations = active.record.name, active.declarations
        for override, infos in ((False, declarations.services), (True, declarations.overrides)):
            for info in infos:
                provider = Provider(name, info.handler, info.service, info.version, override=override)
                original = {"original": self.services.original_view(provider)} if override else {}
                provider.instance = active.runtime.open(info.handler, **original)
                provider.report = None if active.record.first_party else self._report
                close = getattr(provider.instance, "close", None)
                if close is not None:
                    self.ledger.add(name, "instance", info.service, close)
                kind = "override" if override else "service"
                self.ledger.add(name, kind, info.service, self.services.add(provider))
        for route in declarations.routes:
            call = self._caller(active, route.handler)
            if isinstance(route, RouteInfo):
                undo = self.registrations.add_route(Registered(name, route, call))
                self.ledger.add(name, "route", f"{route.method} {route.path}", undo)
            else:
                undo = self.registrations.add_message(Registered(name, route, call))
                self.ledger.add(name, "message", route.type, undo)
        for command in declarations.commands:
            call = self._caller(active, command.handler)
            undo = self.registrations.add_command(Registered(name, command, call))
            self.ledger.add(name, "command", command.name, undo)
        for declaration in declarations.ui:
            self.ledger.add(name, f"ui {declaration.kind}", declaration.target, lambda: None)

    def _caller(self, active: LoadedPlugin, handler: str) -> Callable[..., Any]:
        def call(argument: Any) -> Any:
            return active.runtime.call(handler, argument, active.context)

        return call

    def _declared(self, hook: str) -> list[Answer]:
        """Return what manifests contribute to a hook without code: the node modules under `nodes.entry`."""
        if hook != "tavern_register_nodes":
            return []
        return [
            Answer(name, nodes, active.runtime, active.context)
            for name, active in self.active.items()
            if (nodes := _with_namespace(active))
        ]

    def _rebuild(self) -> None:
        """Prepare the hooks anew, in load order."""
        order = [name for name in self.records if name in self.active]
        self.dispatcher.rebuild((name, self.active[name].implementations) for name in order)

    # --- start and stop -------------------------------------------------------------------------------

    async def start_all(self) -> None:
        """Call `tavern_startup` of every loaded plugin, in order; a failure costs that plugin."""
        self._running = True
        for name in self.records:
            if name in self.active:
                await self._start(self.active[name])

    async def _start(self, active: LoadedPlugin) -> None:
        began = time.perf_counter()
        record = active.record
        try:
            active.context.data_dir.mkdir(parents=True, exist_ok=True)
            for implementation in active.implementations:
                if implementation.info.hook == "tavern_startup":
                    await self.dispatcher.call_one(implementation, {})
        except Exception as error:
            await self._fail(record, "tavern_startup", error)
            await self._drop_dependents()
            self._rebuild()
        else:
            if self.active.get(record.name) is not active:
                return  # it had itself taken out
            active.started = True
            record.state = PluginState.STARTED
            record.timings["start"] = (time.perf_counter() - began) * 1000

    async def stop_all(self) -> None:
        """Stop and unload every plugin, in the reverse of the load order."""
        async with self._deciding:
            for name in [n for n in reversed(self.records) if n in self.active]:
                record = self.active[name].record
                await self._unload(record)
                record.state = PluginState.STOPPED
            self._running = False
            self._rebuild()

    async def _unload(self, record: Record) -> None:
        """Shut a plugin down within its deadline, then take back everything that it registered."""
        active = self.active.get(record.name)
        if active is None:
            return
        if active.started:
            for implementation in active.implementations:
                if implementation.info.hook == "tavern_shutdown":
                    try:
                        await self.dispatcher.call_one(implementation, {}, deadline=SHUTDOWN_DEADLINE)
                    except Exception as error:
                        self._report(record.name, "tavern_shutdown", error)
        active.lease.close()
        self.services.revoke(record.name)
        for entry, failure in await self.ledger.remove(record.name, deadline=SHUTDOWN_DEADLINE):
            self._report(record.name, f"closing its {entry.kind} {entry.name}", failure)
        active.lease.end()
        del self.active[record.name]
        active.runtime.unload()

    async def _fail(self, record: Record, where: str, error: BaseException) -> None:
        if isinstance(error, AdmissionError):
            problems = error.problems
        else:
            problems = [_problem_of(error, where, record.root)]
            log_failure(_log, record.name, where, error)
        await self._unload(record)
        record.refuse(PluginState.FAILED, *problems)

    # --- the operator's decisions -----------------------------------------------------------------------

    def get(self, name: str) -> Record:
        """Return a record. Raises `NotFound` with near names."""
        record = self.records.get(name)
        if record is None:
            hint = suggest(name, self.records)
            raise NotFound(f"there is no plugin {name!r}" + (f"; {hint}" if hint else ""))
        return record

    async def grant(self, name: str) -> None:
        """Grant a plugin exactly what it asks for now; a running host loads it at once."""
        async with self._deciding:
            record = self.get(name)
            if record.manifest is None or record.state in (PluginState.INVALID, PluginState.INCOMPATIBLE):
                raise AdmissionError(f"{name} cannot be granted anything: {record.problems[0]}", list(record.problems))
            self._grants.grant(name, record.source, record.permissions)
            await self._review_again(record)

    async def revoke(self, name: str) -> None:
        """Take a plugin's grant back; everything that it registered is gone when this returns.

        Raises `Conflict` for a plugin that needs no grant: first-party, trusted, or only adding things.
        """
        async with self._deciding:
            record = self.get(name)
            why = self._why_no_grant(record)
            if why is not None:
                raise Conflict(f"{name} needs no grant: {why}. To keep it out, name it under `disabled` in host.yaml")
            self._grants.revoke(name)
            await self._review_again(record)

    def _why_no_grant(self, record: Record) -> str | None:
        if record.first_party:
            return "it is first-party"
        if record.state is PluginState.INVALID:
            return None
        if all(p.level == "add" for p in record.permissions):
            return "it only adds things"
        if all(p.granted for p in decide(record.permissions, None, record.source, trust=self._trust_in(record))):
            return "it is loaded with --dev" if record.is_dev else "it is trusted"
        return None

    async def follow_grants(self) -> None:
        """Take over what was granted or taken back in the grants file by somebody else, such as
        `tavern plugins revoke` beside a running `tavern serve`."""
        async with self._deciding:
            grants = self._grants.read()
            for record in self.records.values():
                trust = self._trust_in(record)
                now = decide(record.permissions, grants.get(record.name), record.source, trust=trust)
                if [p.granted for p in record.permissions] != [p.granted for p in now]:
                    await self._review_again(record)

    def _trust_in(self, record: Record) -> Trust:
        if record.first_party or record.is_dev or record.name in self._trust:
            return "everything"
        return "permissions" if record.name in self._operator.trust else "nothing"

    async def _review_again(self, record: Record) -> None:
        """Decide anew on a plugin and on those that require it; in a running host, unload and load them."""
        if record.state is PluginState.INVALID:
            return
        affected = self._with_dependents(record)
        grants = self._grants.read()
        for one in reversed(affected):
            await self._unload(one)
        for one in affected:
            one.state, one.problems = PluginState.DISCOVERED, []
            self._decide(one, grants.get(one.name))
        self._check_dependencies()
        if not self._running:
            return
        for one in affected:
            if one.state is PluginState.DISCOVERED:
                await self._load(one)
                self._rebuild()
            if one.name in self.active:
                await self._start(self.active[one.name])
        self._rebuild()
        for one in affected:
            self._bus().publish("PLUGINS_CHANGED", {"name": one.name, "state": one.state.value})

    def _with_dependents(self, record: Record) -> list[Record]:
        """Return a plugin and all that require it, directly or not, in load order."""
        names = {record.name}
        for other in self.records.values():
            if (
                other.manifest
                and other.state is not PluginState.INVALID
                and names & set(other.manifest.requires.plugins)
            ):
                names.add(other.name)
        return [one for one in self.records.values() if one.name in names]

    # --- what is known ------------------------------------------------------------------------------------

    def info(self, record: Record) -> PluginInfo:
        """Return a record as data."""
        manifest = record.manifest
        frontend = manifest.frontend.info(record.name) if manifest and manifest.frontend else None
        return PluginInfo(
            name=record.name,
            display_name=manifest.display_name if manifest else record.name,
            version=manifest.version if manifest else "",
            description=manifest.description if manifest else None,
            frontend=frontend,
            config_options=list(manifest.config_options) if manifest and manifest.config_options else None,
            is_enabled=record.state is not PluginState.DISABLED,
            state=record.state,
            source=record.source,
            first_party=record.first_party,
            problems=[*record.problems, *self._conflicts(record.name)],
            permissions=list(record.permissions),
            timings={stage: round(ms, 2) for stage, ms in record.timings.items()},
            contributions=self._contributions(record),
        )

    def _contributions(self, record: Record) -> dict[str, list[str]]:
        owned = self.ledger.owned(record.name)
        active = self.active.get(record.name)
        if active is not None:
            owned["hook"] = [i.info.hook for i in active.implementations]
            nodes = _with_namespace(active)
            if nodes:
                owned["node"] = [n.full_type for n in nodes]
        return owned

    def assets(self, kind: str) -> list[PluginAsset]:
        """Return the folders of a kind (`tools`, `workflows`) that loaded plugins declare."""
        assets = []
        for name, active in self.active.items():
            manifest, root = active.record.manifest, active.record.root
            entry = getattr(manifest, kind, None)
            if root is None or not isinstance(entry, Entry):
                continue
            folder = (root / entry.entry).resolve()
            if folder.is_relative_to(root.resolve()):
                assets.append(PluginAsset(plugin=name, kind=kind, path=str(folder)))
        return assets

    def samples(self) -> list[Path]:
        """Return the sample folders that loaded plugins declare for a new project."""
        return [Path(asset.path) for asset in self.assets("sample")]

    def _conflicts(self, plugin: str) -> list[Problem]:
        """Return the unsettled conflicts over services that a plugin is part of, as they are now."""
        services = self.services
        conflicts = {s: services.conflict(s) for s in services.services()}
        return [c for s, c in conflicts.items() if c and any(o.plugin == plugin for o in services.overrides(s))]

    def _report(self, plugin: str, where: str, error: BaseException) -> None:
        """Record a failure with its plugin: in the log, and as a problem that people see."""
        log_failure(_log, plugin, where, error)
        record = self.records.get(plugin)
        if record is not None:
            problem = _problem_of(error, where, record.root)
            if problem not in record.problems:
                record.problems = [*record.problems[-19:], problem]


def _with_namespace(active: LoadedPlugin) -> list[Any]:
    manifest = active.manifest
    namespace = (manifest.nodes.namespace if manifest.nodes else None) or manifest.name
    return [n if n.namespace else n.model_copy(update={"namespace": namespace}) for n in active.runtime.nodes()]


def _problem_of(error: BaseException, where: str, root: Path | None) -> Problem:
    """Return an exception as a problem that names the plugin's own file and line where it can."""
    message = error.message if isinstance(error, TavernError) else describe(error)
    cause: BaseException = error.__cause__ if error.__cause__ is not None else error
    if isinstance(cause, SyntaxError) and cause.filename is not None:
        return Problem(message=f"{where}: {message}", file=cause.filename, line=cause.lineno)
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(cause.__traceback__)]
    foreign = [f for f in frames if not f[0].startswith(("<frozen", _KERNEL))]
    own = [f for f in foreign if root is not None and Path(f[0]).is_relative_to(root)]
    file, line = next(reversed(own or foreign), (None, None))
    return Problem(message=f"{where}: {message}", file=file, line=line)


_KERNEL = f"{Path(__file__).parent}{os.sep}"
