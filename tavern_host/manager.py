"""All plugins of one host: what is known of each, and what the operator decides about them while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from tavern_host.boundary import Boundary
from tavern_host.catalogue import Catalogue
from tavern_host.context import Project
from tavern_host.contracts.errors import Conflict, NotFound, TavernError
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import AdmissionError, PluginAsset, PluginInfo, PluginState, Problem
from tavern_host.discovery import Record, discover, upgraded_since
from tavern_host.dispatch import Answer, Dispatcher
from tavern_host.events import EventBus
from tavern_host.facilities import Kernel
from tavern_host.failures import log_failure, problem_of
from tavern_host.grants import GrantStore, SwitchStore
from tavern_host.lifecycle import Lifecycle
from tavern_host.loaded import LoadedPlugin
from tavern_host.manifest import Entry, Manifest
from tavern_host.ordering import dependency_problems, load_order
from tavern_host.permissions import decide
from tavern_host.review import Review
from tavern_host.routes import Registrations
from tavern_host.services import ServiceRegistry
from tavern_host.settings import SettingsStore
from tavern_host.threads import run_in_thread
from tavern_host.watchdog import Blocked

OPERATOR = "user:operator"
"""Who decides where nobody else is named."""

_log = logging.getLogger("tavern.plugins")


class Recorder(Protocol):
    """Writes into the audit log; see `audit.AuditLog.record`."""

    def __call__(self, action: str, *, actor: str, subject: str = "", details: dict[str, Any] | None = None) -> None:
        """Record an entry."""


@dataclass(frozen=True)
class Sources:
    """Where plugins come from besides the installed ones: folders of the project, those being written, and those
    that an embedding program hands over."""

    folders: Sequence[Path] = ()
    dev: Sequence[Path] = ()
    embedded: Sequence[Path | ModuleType] = ()


class Manager:
    """Discovers, decides, loads and takes out plugins. One decision is carried out at a time."""

    def __init__(
        self,
        *,
        project: Project,
        sources: Sources,
        review: Review,
        grants: GrantStore,
        switches: SwitchStore,
        settings: SettingsStore,
        catalogue: Catalogue,
        boundary: Boundary,
        bus: Callable[[], EventBus],
        record: Recorder,
    ) -> None:
        self._sources = sources
        self._grants = grants
        self._switches = switches
        self._seen_reloads = switches.load().reloads
        self._settings = settings
        self._bus = bus
        self._audit = record
        self._running = False
        self._deciding = asyncio.Lock()
        self.review = review
        self.records: dict[str, Record] = {}
        self.duplicates: list[Record] = []
        self.dispatcher = Dispatcher(catalogue, self._report, self._tell)
        self.services = ServiceRegistry(catalogue, boundary, self._holds, review.operator.overrides)
        self.registrations = Registrations()
        kernel = Kernel(project, self.services, self.dispatcher, bus, self._declared, self._report, self._tell)
        self.lifecycle = Lifecycle(kernel, boundary, settings, self.registrations)

    @property
    def active(self) -> dict[str, LoadedPlugin]:
        """The plugins in use, by name."""
        return self.lifecycle.active

    @property
    def grants(self) -> GrantStore:
        """What the operator granted."""
        return self._grants

    # --- link: read and decide, import nothing ------------------------------------------------------

    def link(self) -> None:
        """Discover all plugins and decide from their manifests which may be loaded, in which order."""
        found, self.duplicates = self._discover()
        self.records = {record.name: record for record in load_order(found)}
        self._check_names()
        self._decide(self.records.values())

    def _discover(self) -> tuple[list[Record], list[Record]]:
        """Return the records of all plugins that can be seen, and those whose name is taken."""
        sources = self._sources
        named: dict[str, Record] = {}
        duplicates = []
        for record in discover(folders=sources.folders, dev=sources.dev, embedded=sources.embedded):
            if record.name in named:
                duplicates.append(record)
            else:
                named[record.name] = record
        return list(named.values()), duplicates

    def _check_names(self) -> None:
        for name in self.review.without:
            self.get(name)

    def _decide(self, records: Iterable[Record]) -> None:
        """Decide anew on these records, and on what that means for those that require them."""
        grants, disabled = self._grants.read(), self._switches.load().disabled
        manifests = self.manifests()
        for record in records:
            self.review.decide(record, grants.get(record.name), disabled=record.name in disabled, others=manifests)
        for name, problem in dependency_problems(self.records):
            self.records[name].refuse(PluginState.INCOMPATIBLE, problem)

    def _holds(self, plugin: str, permission: str) -> bool:
        return any(loaded.holds(permission) for loaded in self.lifecycle.loads_of(plugin))

    # --- load and start -------------------------------------------------------------------------------

    async def load_all(self) -> None:
        """Load every plugin that may be loaded, in order; then prepare the hooks."""
        for record in self.records.values():
            if record.state is PluginState.DISCOVERED:
                await self._bring_in(record, rebuild=False)
        self._rebuild()

    async def start_all(self) -> None:
        """Call `tavern_startup` of every loaded plugin, in order; a failure costs that plugin."""
        self._running = True
        for name in self.records:
            if name in self.active:
                await self._start(self.active[name])

    async def _bring_in(self, record: Record, *, fresh: bool = False, rebuild: bool = True) -> None:
        """Load a plugin and put it in the place of what is loaded of it now; a failure costs the plugin, both of it."""
        before, loaded = self.active.get(record.name), None
        try:
            loaded = await self.lifecycle.load(record, fresh=fresh)
            self.lifecycle.put_in(loaded)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if loaded is not None:
                await self.lifecycle.take_out(loaded)
            if before is not None:
                self._let_go(before)
            await self._fail(record, "loading", error)
            return
        record.state = PluginState.LOADED
        if rebuild:
            self._rebuild()
        if before is not None:
            self._let_go(before)

    def _let_go(self, loaded: LoadedPlugin) -> None:
        """Offer a load no more, and take it out once what is under way has finished."""
        self.lifecycle.withdraw(loaded)
        self.lifecycle.retire(loaded)

    async def _start(self, loaded: LoadedPlugin) -> None:
        record = loaded.record
        try:
            await self.lifecycle.start(loaded)
        except Exception as error:
            await self._fail(record, "tavern_startup", error)
        else:
            if self.active.get(record.name) is loaded:  # else it had itself taken out
                record.state = PluginState.STARTED

    async def stop_all(self) -> None:
        """Stop and unload every plugin, in the reverse of the load order."""
        self.lifecycle.hurry()
        async with self._deciding:
            for name in [n for n in reversed(self.records) if n in self.active]:
                loaded = self.active[name]
                await self.lifecycle.take_out(loaded)
                loaded.record.state = PluginState.STOPPED
            self._running = False
            self.lifecycle.hurry()
            await self.lifecycle.drained()
            self._rebuild()

    def _rebuild(self) -> None:
        """Prepare the hooks anew, in load order."""
        order = [name for name in self.records if name in self.active]
        self.dispatcher.rebuild((name, self.active[name].implementations) for name in order)

    async def _fail(self, record: Record, where: str, error: BaseException) -> None:
        """Take out a plugin that failed, and every plugin that requires it."""
        if isinstance(error, AdmissionError):
            problems = error.problems
        else:
            problems = [problem_of(error, where, record.root, record.name)]
            log_failure(_log, record.name, where, error)
        if record.name in self.active:
            await self.lifecycle.take_out(self.active[record.name])
        record.refuse(PluginState.FAILED, *problems)
        self._audit("plugin.failed", actor="system:host", subject=record.name, details={"where": where})
        for name, problem in dependency_problems(self.records):
            if name in self.active:
                await self.lifecycle.take_out(self.active[name])
            self.records[name].refuse(PluginState.INCOMPATIBLE, problem)
        self._rebuild()

    # --- the operator's decisions -----------------------------------------------------------------------

    def get(self, name: str) -> Record:
        """Return a record. Raises `NotFound` with near names."""
        record = self.records.get(name)
        if record is None:
            hint = suggest(name, self.records)
            raise NotFound(f"there is no plugin {name!r}" + (f"; {hint}" if hint else ""))
        return record

    async def grant(self, name: str, *, actor: str = OPERATOR) -> None:
        """Grant a plugin exactly what it asks for now; a running host loads it at once."""
        async with self._deciding:
            record = self.get(name)
            if record.manifest is None or record.state in (PluginState.INVALID, PluginState.INCOMPATIBLE):
                raise AdmissionError(f"{name} cannot be granted anything: {record.problems[0]}", list(record.problems))
            self._grants.grant(name, record.source, record.permissions, record.manifest.version)
            permissions = [p.name for p in record.permissions]
            self._audit("plugin.granted", actor=actor, subject=name, details={"permissions": permissions})
            await self._review_again([record])

    async def revoke(self, name: str, *, actor: str = OPERATOR) -> None:
        """Take a plugin's grant back; everything that it registered is gone when this returns.

        Raises `Conflict` for a plugin that needs no grant: first-party, trusted, or only adding things.
        """
        async with self._deciding:
            record = self.get(name)
            why = self.review.why_no_grant(record)
            if why is not None:
                hint = f"to keep it out, disable it: `tavern plugins disable {name}`"
                raise Conflict(f"{name} needs no grant: {why}; {hint}")
            self._grants.revoke(name)
            self._audit("plugin.revoked", actor=actor, subject=name)
            await self._review_again([record])

    async def enable(self, name: str, *, actor: str = OPERATOR) -> None:
        """Let a plugin be loaded that was disabled; a running host loads it at once.

        Raises `Conflict` where `host.yaml` or this run's options keep it out.
        """
        async with self._deciding:
            record = self.get(name)
            out = self.review.left_out(record, disabled=False)
            if out is not None:
                raise Conflict(f"{name} cannot be enabled here: {out}")
            if name in self._switches.load().disabled:
                self._switches.enable(name)
                self._audit("plugin.enabled", actor=actor, subject=name)
            if name not in self.active:
                await self._review_again([record])

    async def disable(self, name: str, *, actor: str = OPERATOR) -> None:
        """Take a plugin out until it is enabled again.

        Returns when what was under way in it has finished, or was given up at its deadline.
        """
        async with self._deciding:
            record = self.get(name)
            if name not in self._switches.load().disabled:
                self._switches.disable(name)
                self._audit("plugin.disabled", actor=actor, subject=name)
            affected = [one.name for one in self._with_dependents([record])]
            await self._review_again([record], drain=True)
        for one in affected:
            await self.lifecycle.drained(one)

    async def reload(self, name: str | None = None, *, actor: str = OPERATOR) -> list[str]:
        """Read one plugin anew, or look for all that are new, changed or gone; return the names of those concerned.

        What is under way finishes with the code that it began with. Raises `NotFound`, and `Conflict` for a
        first-party plugin.
        """
        async with self._deciding:
            if name is not None and name in self.records and self.records[name].first_party:
                raise Conflict(f"{name} is first-party: restart the host to read it anew")
            found, duplicates = await run_in_thread(self._discover, what="looking for plugins")
            seen = {record.name: record for record in found}
            if name is not None and name not in seen:
                self.get(name)  # says what there is
            concerned = [name] if name is not None else self._what_changed(seen)
            self.duplicates = duplicates
            names = await self._take_over(seen, concerned)
            self._audit("plugins.reloaded", actor=actor, subject=name or "", details={"plugins": names})
            return names

    def ask_to_reload(self, name: str | None) -> None:
        """Let running hosts of the project reload a plugin, or look for all. Raises `NotFound`."""
        if name is not None:
            self.get(name)
        self._switches.ask_to_reload(name or "")

    def _what_changed(self, seen: dict[str, Record]) -> list[str]:
        """Return the plugins that are gone, new, changed on disk, or not in order and worth another try."""
        gone = [name for name in self.records if name not in seen]
        return [*gone, *(name for name, record in seen.items() if self._is_news(record))]

    def _is_news(self, record: Record) -> bool:
        known = self.records.get(record.name)
        if known is None or known.source != record.source:
            return True
        if known.first_party:
            return False
        was_wrong = known.state in (PluginState.FAILED, PluginState.INVALID, PluginState.INCOMPATIBLE)
        return was_wrong or known.fingerprint != record.fingerprint

    async def _take_over(self, seen: dict[str, Record], concerned: Collection[str]) -> list[str]:
        """Put new records in the place of old ones, load what may be loaded, and take out what is gone."""
        waiting = [name for name in concerned if name in seen and self._pending_restart(name)]
        concerned = [name for name in concerned if name not in waiting]
        before = dict(self.records)
        current = [seen[n] if n in concerned else r for n, r in self.records.items() if n in seen or n not in concerned]
        current += [seen[name] for name in concerned if name in seen and name not in before]
        self.records = {record.name: record for record in load_order(current)}
        for name in [name for name in concerned if name not in seen]:
            if name in self.active:
                self._let_go(self.active[name])
        records = [self.records[name] for name in concerned if name in self.records]
        await self._review_again(records, drain=True, fresh=True, gone=[n for n in concerned if n not in seen])
        return [*concerned, *waiting]

    def _pending_restart(self, name: str) -> bool:
        """Say with a plugin that it goes on as it is where what it stands on was upgraded beneath it."""
        record = self.records.get(name)
        if record is None or name not in self.active:
            return False
        upgraded = upgraded_since(record)
        record.pending_restart = bool(upgraded)
        if upgraded:
            message = f"pending restart: {', '.join(upgraded)} was upgraded while the host ran"
            problem = Problem(message=message, hint="restart the host; until then the version that is loaded goes on")
            record.problems = [*(p for p in record.problems if not p.message.startswith("pending restart")), problem]
        return bool(upgraded)

    async def follow(self) -> None:
        """Take over what was decided by somebody else in the operator's files, such as `tavern plugins revoke` beside
        a running `tavern serve`. Raises `InvalidFile` where one of them was damaged."""
        async with self._deciding:
            grants, switches = self._grants.read(), self._switches.load()
            reviewed, switched = [], []
            for name, record in self.records.items():
                trust = self.review.trust_in(record)
                now = decide(record.permissions, grants.get(name), record.source, trust=trust)
                if [p.granted for p in record.permissions] != [p.granted for p in now]:
                    reviewed.append(record)
                elif (name in switches.disabled) is (name in self.active) or (
                    name not in switches.disabled
                    and record.state is PluginState.DISABLED
                    and self.review.left_out(record, disabled=False) is None
                ):
                    switched.append(record)
            if reviewed:
                await self._review_again(reviewed)
            if switched:
                await self._review_again(switched, drain=True)
        asked = [name for name, when in switches.reloads.items() if when > self._seen_reloads.get(name, 0.0)]
        self._seen_reloads = switches.reloads
        for name in asked:
            with contextlib.suppress(TavernError):  # it was uninstalled since
                await self.reload(name or None)

    async def _review_again(
        self, records: Iterable[Record], *, drain: bool = False, fresh: bool = False, gone: Sequence[str] = ()
    ) -> None:
        """Decide anew on plugins and on those that require them; in a running host, take out and load.

        With `drain`, what is under way in what is taken out goes on for a while; else it loses everything at once.
        """
        affected = self._with_dependents(records, gone)
        self._decide([r for r in affected if r.state is not PluginState.INVALID])
        if not self._running:
            return
        staying = [record for record in affected if record.state is PluginState.DISCOVERED]
        for record in reversed(affected):
            loaded = self.active.get(record.name)
            if loaded is None or (drain and record in staying):
                continue
            if drain:
                self._let_go(loaded)
            else:
                await self.lifecycle.take_out(loaded)
        self._rebuild()
        for record in staying:
            if record.state is not PluginState.DISCOVERED:
                continue  # what it requires failed in the meantime
            if record.name not in self.active:
                await self.lifecycle.drained(record.name)  # what it may hold for itself alone is free again
            await self._bring_in(record, fresh=fresh)
            if record.name in self.active:
                await self._start(self.active[record.name])
        for name in [*gone, *(record.name for record in affected)]:
            state = self.records[name].state.value if name in self.records else "gone"
            self._bus().publish("PLUGINS_CHANGED", {"name": name, "state": state})

    def _with_dependents(self, records: Iterable[Record], gone: Iterable[str] = ()) -> list[Record]:
        """Return plugins and all that require them, directly or not, in load order."""
        names = {*gone, *(record.name for record in records)}
        for other in self.records.values():
            is_readable = other.manifest is not None and other.state is not PluginState.INVALID
            if is_readable and other.manifest and names & set(other.manifest.requires.plugins):
                names.add(other.name)
        return [one for one in self.records.values() if one.name in names]

    # --- what is known ------------------------------------------------------------------------------------

    def info(self, record: Record) -> PluginInfo:
        """Return a record as data."""
        manifest = record.manifest
        frontend = manifest.frontend.info(record.name) if manifest and manifest.frontend else None
        options = [o.model_dump(mode="json", exclude_unset=True) for o in manifest.config_options] if manifest else []
        settings = self._settings.problems(manifest) if manifest else []
        return PluginInfo(
            name=record.name,
            display_name=manifest.display_name if manifest else record.name,
            version=manifest.version if manifest else "",
            description=manifest.description if manifest else None,
            frontend=frontend,
            config_options=options or None,
            is_enabled=record.state is not PluginState.DISABLED,
            state=record.state,
            source=record.source,
            first_party=record.first_party,
            pending_restart=record.pending_restart,
            problems=[*record.problems, *settings, *self._conflicts(record.name)],
            permissions=list(record.permissions),
            timings={stage: round(ms, 2) for stage, ms in record.timings.items()},
            contributions=self.contributions(record.name),
        )

    def manifests(self) -> dict[str, Manifest]:
        """Return the manifests of all plugins by name, valid ones only."""
        return {
            name: r.manifest for name, r in self.records.items() if r.manifest and r.state is not PluginState.INVALID
        }

    def locate(self, file: str) -> str | None:
        """Return the plugin that a file of code belongs to, or None. Asked from another thread."""
        path = Path(file)
        roots = ((name, loaded.record.root) for name, loaded in tuple(self.active.items()))
        return next((name for name, root in roots if root is not None and path.is_relative_to(root)), None)

    def say_blocked(self, blocked: Blocked) -> None:
        """Say with a plugin that it kept the event loop, and so everybody, waiting."""
        record = self.records.get(blocked.plugin or "")
        if record is None or not blocked.over:
            return
        problem = Problem(
            message=f"{blocked.function} kept the whole host waiting for {blocked.seconds:.1f} s",
            hint="let it await, or run it in a thread (a node declared `blocking`)",
            file=blocked.file,
            line=blocked.line,
        )
        record.problems = [*record.problems[-19:], problem]
        details = {"seconds": round(blocked.seconds, 1), "where": f"{blocked.file}:{blocked.line}"}
        self._audit("plugin.blocked", actor="system:host", subject=record.name, details=details)

    def contributions(self, name: str) -> dict[str, list[str]]:
        """Return the names of what a plugin has registered, by kind."""
        loaded = self.active.get(name)
        if loaded is None:
            return {}
        owned = {**loaded.ledger.owned(), "hook": [i.info.hook for i in loaded.implementations]}
        nodes = [n.full_type for n in _with_namespace(loaded)]
        return {**owned, "node": nodes} if nodes else owned

    def owned(self, name: str) -> dict[str, list[str]]:
        """Return everything in the ledgers of a plugin, that of loads on their way out included."""
        owned: dict[str, list[str]] = {}
        for loaded in self.lifecycle.loads_of(name):
            for kind, names in loaded.ledger.owned().items():
                owned.setdefault(kind, []).extend(names)
        return owned

    def assets(self, kind: str) -> list[PluginAsset]:
        """Return the folders of a kind (`tools`, `workflows`) that loaded plugins declare."""
        assets = []
        for name, loaded in self.active.items():
            root, entry = loaded.record.root, getattr(loaded.manifest, kind, None)
            if root is None or not isinstance(entry, Entry):
                continue
            folder = (root / entry.entry).resolve()
            if folder.is_relative_to(root.resolve()):
                assets.append(PluginAsset(plugin=name, kind=kind, path=str(folder)))
        return assets

    def samples(self) -> list[Path]:
        """Return the sample folders that loaded plugins declare for a new project."""
        return [Path(asset.path) for asset in self.assets("sample")]

    def _declared(self, hook: str) -> list[Answer]:
        """Return what manifests contribute to a hook without code: the node modules under `nodes.entry`."""
        if hook != "tavern_register_nodes":
            return []
        return [
            Answer(nodes, loaded.runtime, loaded.context, loaded.lease)
            for loaded in self.active.values()
            if (nodes := _with_namespace(loaded))
        ]

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
            self._add_problem(record, problem_of(error, where, record.root, plugin))

    def _tell(self, plugin: str, problem: Problem) -> None:
        """Say with a plugin, once, what somebody found wrong with what it contributed."""
        record = self.records.get(plugin)
        if record is not None and self._add_problem(record, problem):
            _log.warning("%s: %s", plugin, problem)

    def _add_problem(self, record: Record, problem: Problem) -> bool:
        """Keep a problem where it is new, of the newest twenty; return whether it was."""
        if problem in record.problems:
            return False
        record.problems = [*record.problems[-19:], problem]
        return True


def _with_namespace(loaded: LoadedPlugin) -> list[Any]:
    manifest = loaded.manifest
    namespace = (manifest.nodes.namespace if manifest.nodes else None) or manifest.name
    return [n if n.namespace else n.model_copy(update={"namespace": namespace}) for n in loaded.runtime.nodes()]
