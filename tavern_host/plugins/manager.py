"""The plugins of one host: linked, loaded, started, stopped, and reconciled when a decision on one changes.

What the operator decides is in `service`, what is known of plugins as data in `report`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tavern_host.context.facilities import Kernel
from tavern_host.contracts.errors import Conflict, Misconfigured
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.names import look_up
from tavern_host.contracts.plugins import NOT_RELOADED, AdmissionError, PluginInfo, PluginState, Problem
from tavern_host.events.bus import EventBus
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.hooks.dispatch import Dispatcher, LoadedHookResult
from tavern_host.plugins.discovery import Sources, discover
from tavern_host.plugins.grants import GrantStore, SwitchStore
from tavern_host.plugins.lifecycle import Lifecycle
from tavern_host.plugins.operator_file import OperatorFile
from tavern_host.plugins.ordering import dependency_problems, load_order
from tavern_host.plugins.permissions import Publishers
from tavern_host.plugins.record import LoadedPlugin, Record, log_failure, problem_of
from tavern_host.plugins.registrations import Registrations
from tavern_host.plugins.report import Problems, Report
from tavern_host.plugins.review import Code, Review
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.installed import first_party_part
from tavern_host.runtime.serial_executor import SerialExecutor
from tavern_host.runtime.threads import run_in_thread
from tavern_host.services.registry import ServiceRegistry
from tavern_host.settings.store import SettingsStore

Audit = Callable[..., object]
"""Records an event in the audit log: `audit(event, actor=, subject=, details=)`."""


@dataclass(eq=False, kw_only=True)
class Manager:
    """Discovers, reviews, loads, starts and unloads plugins. One operation runs at a time.

    `kernel` makes what plugins' contexts stand on, of the parts that the manager gives it by name; `publish` publishes
    an event of the host.
    """

    sources: Sources
    review: Review
    grants: GrantStore
    switches: SwitchStore
    settings: SettingsStore
    catalogue: Catalogue
    boundary: Boundary
    kernel: Callable[..., Kernel]
    publish: Callable[[str, Mapping[str, Any]], object]
    audit: Audit

    def __post_init__(self) -> None:
        self._loading: set[str] = set()
        self.is_running = False
        self.operations = SerialExecutor()
        self.records: dict[str, Record] = {}
        self.name_conflicts: list[Record] = []
        self.problems = Problems(self.records, self.audit)
        self.dispatcher = Dispatcher(self.catalogue, self.problems.failed, self.problems.add)
        self.services = ServiceRegistry(self.catalogue, self.boundary, self._holds, self.review.operator.overrides)
        self.registrations = Registrations()
        parts = self.kernel(services=self.services, dispatcher=self.dispatcher, declared=self._collected)
        self.lifecycle = Lifecycle(parts, self.boundary, self.settings, self.registrations)
        self.active = self.lifecycle.active
        self.report = Report(self.records, self.lifecycle, self.services, self.settings)

    def get(self, name: str) -> Record:
        """Return a record. Raises `NotFound` with near names."""
        return look_up("plugin", name, self.records)

    def calls_of(self, name: str, **who: Any) -> AsyncIterator[Event | Gap]:
        """Return the calls of a loaded plugin as they end, and record who follows. Raises `NotFound`, `Conflict`."""
        calls_of, place_of = first_party_part("call_tracing:calls_of"), partial(self.problems.of, name)
        calls: AsyncIterator[Event | Gap] = calls_of(self, name, EventBus, place_of)
        self.audit("plugin.traced", subject=name, **who)
        return calls

    def info(self, name: str) -> PluginInfo:
        """Return a plugin as data. Raises `NotFound`."""
        return self.report.info(self.get(name))

    def infos(self) -> list[PluginInfo]:
        """Return every plugin in load order, refused namesakes last; without the names of what modules define."""
        records = [*self.records.values(), *self.name_conflicts]
        return [self.report.info(record, collected=False) for record in records]

    def revision(self) -> object:
        """Return a stamp that differs whenever `infos` may say something else; cheap, since it copies nothing."""
        owned = [loaded.ledger.revision for loaded in self.active.values()]
        said = [
            (r.read_at, r.state, r.pending_restart, r.permissions, *r.problems, *r.timings.values())
            for r in [*self.records.values(), *self.name_conflicts]
        ]
        return self.dispatcher.revision, self.settings.revision, owned, said

    def _collected(self, hook: str) -> list[LoadedHookResult]:
        return self.lifecycle.collected(hook)

    def _holds(self, plugin: str, permission: str) -> bool:
        return any(permission in loaded.granted for loaded in self.lifecycle.loads_of(plugin))

    # --- link: read and review, import nothing --------------------------------------------------------

    def link(self) -> None:
        """Discover all plugins and decide from their manifests which may be loaded, in which order."""
        found, self.name_conflicts = discover(self.sources)
        self.set_records(found.values())
        for name in self.review.without:
            self.get(name)
        records = list(self.records.values())
        for record in records:
            if record.first_party and record.module is not None and record.manifest is not None:
                self.catalogue.add_first_party(record.module, record.manifest.publishes)
        self._review(records, self.review.codes(records))

    def set_records(self, records: Iterable[Record]) -> None:
        """Keep these records and no others, in load order. Raises `InvalidFile` where the grants cannot be read."""
        records, grants = list(records), self.grants.read()
        for record in records:
            if (grant := grants.get(record.name)) is not None and grant.source == record.source:
                record.since = (grant.since or grant.granted_at).timestamp()
        ordered = load_order(records)
        self.records.clear()
        self.records.update({record.name: record for record in ordered})

    def _review(self, records: Iterable[Record], codes: Mapping[str, Code]) -> None:
        """Decide on these records, and on what that means for those that require them."""
        grants, switches = self.grants.read(), self.switches.load()
        publishers = Publishers(self.report.manifests())
        for record in records:
            name = record.name
            self.review.decide(record, grants.get(name), codes.get(name), switches=switches, publishers=publishers)
            if record.state in (PluginState.INVALID, PluginState.INCOMPATIBLE):
                self._keep_load(record, record.problems)
        self._refuse_dependents(may_stay=True)
        self._refuse_dependents()  # of those that stay: what they require may be gone

    def _refuse_dependents(self, *, may_stay: bool = False) -> list[str]:
        """Refuse every plugin whose requirements are not met, but with `may_stay` those whose active load can stay;
        return their names."""
        names = []
        for name, problems in dependency_problems(self.records):
            record = self.records[name]
            if record.state is PluginState.NEEDS_REVIEW:
                for problem in problems:
                    record.add_problem(problem)
            elif not may_stay or not self._keep_load(record, problems):
                record.refuse(PluginState.INCOMPATIBLE, *problems)
                names.append(name)
        return names

    def _keep_load(self, record: Record, problems: Iterable[Problem]) -> bool:
        """Let the active load of a plugin stay, with its record, where `record` is of a version that cannot take its
        place for these problems; return whether there is such a load."""
        active = self.active.get(record.name)
        if active is None or active.record is record or active.record.state is not PluginState.STARTED:
            return False
        kept = self.records[record.name] = active.record
        kept.problems = [one for one in kept.problems if not one.message.startswith(NOT_RELOADED)]
        kept.pending_restart |= record.pending_restart
        for one in problems:
            kept.add_problem(one.model_copy(update={"message": f"{NOT_RELOADED}: {one.message}"}))
        return True

    # --- load, start, stop ----------------------------------------------------------------------------

    async def load_all(self) -> None:
        """Load every plugin that may be loaded, in order; then register their hooks."""
        async with self.operations.exclusive():
            with self._marked_loading(self.records):
                for record in list(self.records.values()):
                    if record.state is PluginState.DISCOVERED:
                        await self._load_at_start(record)
            self.update_hooks()

    async def _load_at_start(self, record: Record) -> None:
        """Load a plugin of a host that starts; a failure costs the plugin."""
        try:
            self.lifecycle.activate(await self.lifecycle.load(record))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            await self._unload_at_once(self._fail(record, self._failure(record, "loading", error)))
        else:
            record.state = PluginState.LOADED

    async def start_all(self) -> None:
        """Call `tavern_startup` of every loaded plugin, in order; a failure costs that plugin."""
        async with self.operations.exclusive():
            self.is_running = True
            for loaded in self._in_load_order():
                if loaded.record.state is not PluginState.LOADED:  # it was refused while others were loaded
                    await self._unload_at_once(self._deactivate([loaded.record.name]))
                elif self._is_active(loaded):
                    await self._start_at_start(loaded)

    async def _start_at_start(self, loaded: LoadedPlugin) -> None:
        """Start a plugin of a host that starts; a failure costs the plugin. Raises `Misconfigured` where a host that
        serves would do without what its operator has set up."""
        record = loaded.record
        try:
            with self._marked_loading([record.name]):
                await self.lifecycle.start(loaded)
                await self.operations.nested_done()
        except Exception as error:
            if isinstance(error, Misconfigured) and record.first_party and loaded.context.serving:
                raise
            problems = self._failure(record, "tavern_startup", error)
            await self._unload_at_once(self._fail(record, problems))
        else:
            if self._is_active(loaded):  # else its own hook had it unloaded
                record.state = PluginState.STARTED

    async def stop_all(self) -> None:
        """Stop every plugin, then unload them, in the reverse of the load order: while one is stopped, all services are
        there."""
        self.lifecycle.stop_waiting()
        async with self.operations.exclusive():
            await self.lifecycle.interrupt_active()
            for step in (self.lifecycle.shut_down, self.lifecycle.unload):
                for loaded in reversed(self._in_load_order()):
                    await step(loaded)
                    loaded.record.state = PluginState.STOPPED
            self.is_running = False
            await self.lifecycle.drained()
            self.update_hooks()

    def follow_operator(self, operator: OperatorFile) -> None:
        """Decide from now on as the operator's file says; what that changes for plugins is for `reconcile`."""
        self.review = replace(self.review, operator=operator)
        self.services.reorder(operator.overrides)
        self.update_hooks()

    def _in_load_order(self) -> list[LoadedPlugin]:
        return [self.active[name] for name in self.records if name in self.active]

    def update_hooks(self) -> None:
        """Register the hooks of the active plugins, in load order."""
        self.dispatcher.set_plugins((one.record.name, one.implementations) for one in self._in_load_order())

    def _is_active(self, loaded: LoadedPlugin) -> bool:
        return self.active.get(loaded.record.name) is loaded

    @contextlib.contextmanager
    def _marked_loading(self, names: Iterable[str]) -> Iterator[None]:
        """Refuse to load these plugins once more within the block, as their own hooks might ask."""
        names = set(names)
        self._loading |= names
        try:
            yield
        finally:
            self._loading -= names

    def check_not_loading(self, name: str | None) -> None:
        """Raise `Conflict` while this plugin (None: any) is being loaded or started."""
        loading = self._loading if name is None else self._loading & {name}
        if loading:
            names = ", ".join(sorted(loading)) if len(loading) < 4 else "the host"
            raise Conflict(f"{names} is being started: ask again when that is done")

    # --- reconcile, in a running host ------------------------------------------------------------------

    async def reconcile(self, records: Iterable[Record], *, drain: bool = True, gone: Collection[str] = ()) -> None:
        """Review plugins and those that require them again, and those of `gone`, which have no record any more.

        In a running host, load and unload accordingly. With `drain`, work in flight in what is unloaded may end; else
        it loses everything at once.
        """
        affected = self.with_dependents(records, gone)
        reviewed = [r for r in affected if r.state is not PluginState.INVALID]
        self._review(affected, await run_in_thread(lambda: self.review.codes(reviewed), what="reading plugins"))
        if not self.is_running:
            return
        affected = [self.records[record.name] for record in affected]
        names = list(dict.fromkeys([*gone, *(record.name for record in affected)]))
        loading = [record for record in affected if record.state is PluginState.DISCOVERED]
        staying = {record.name for record in affected if record.state is PluginState.STARTED}  # see _keep_load
        for name in set(names) - staying:
            if name in self.active:
                self.active[name].views.pin()  # work in flight keeps the views that it has
        replaced = self._deactivate(set(names) - {record.name for record in loading} - staying)
        if not drain:
            await self._unload_at_once(replaced)
            replaced = []
        try:
            for record in loading:
                if self._is_wanted(record, PluginState.DISCOVERED):  # what it requires may have failed meanwhile
                    may_stay = all(one.record.name not in record.required for one in replaced)
                    replaced += await self._load_and_start(record, may_stay=may_stay)
        finally:
            self.lifecycle.drain(_dependents_first(replaced))
        for name in names:
            state = self.records[name].state.value if name in self.records else "gone"
            self.publish("PLUGINS_CHANGED", {"name": name, "state": state})

    def with_dependents(self, records: Iterable[Record], gone: Iterable[str] = ()) -> list[Record]:
        """Return plugins and all that require them or those of `gone`, directly or not, in load order."""
        names = {*gone, *(record.name for record in records)}
        for other in self.records.values():
            if other.state is not PluginState.INVALID and names & set(other.required):
                names.add(other.name)
        return [one for one in self.records.values() if one.name in names]

    async def _load_and_start(self, record: Record, *, may_stay: bool) -> list[LoadedPlugin]:
        """Load and start a plugin, and activate it in place of its active load; return the deactivated loads.

        After a failure the active load stays, unless it stands on another that was replaced. Else the failure costs the
        plugin, and the plugins that require it.
        """
        name, where, loaded = record.name, "loading", None
        before = self.active.get(name)
        if before is None:
            await self.lifecycle.drained(name)  # what it may hold for itself alone is free again
        try:
            with self._marked_loading([name]):
                loaded = await self.lifecycle.load(record)
                if self._is_wanted(record, PluginState.DISCOVERED):
                    where, record.state = "tavern_startup", PluginState.LOADED
                    if before is None:
                        self.lifecycle.provide(loaded)  # it may use its own services when it starts
                    await self.lifecycle.start(loaded)
                await self.operations.nested_done()
            if not self._is_wanted(record, PluginState.LOADED):  # one of its own hooks had it refused
                await self.lifecycle.unload(loaded)
                return []
            where = "loading"
            self.lifecycle.activate(loaded)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            problems = self._failure(record, where, error)
            kept = before if may_stay and self._keep_load(record, problems) else None
            deactivated = self._fail(record, problems) if kept is None else []
            if loaded is not None:
                await self.lifecycle.unload(loaded)
            if kept is not None:
                kept.views.unpin()
                return []
            return [one for one in dict.fromkeys([*deactivated, before]) if one is not None and one is not loaded]
        record.state = PluginState.STARTED
        self.update_hooks()
        return [before] if before is not None else []

    def _is_wanted(self, record: Record, state: PluginState) -> bool:
        return record.state is state and self.records.get(record.name) is record

    def _failure(self, record: Record, where: str, error: BaseException) -> list[Problem]:
        """Log and audit that a plugin failed; return why."""
        self.audit("plugin.failed", actor="system:host", subject=record.name, details={"where": where})
        if isinstance(error, AdmissionError):
            return error.problems
        log_failure(record.name, where, error)
        return [problem_of(error, where, record.root, record.name)]

    def _fail(self, record: Record, problems: Iterable[Problem]) -> list[LoadedPlugin]:
        """Deactivate a plugin that failed, and every plugin that requires it; return their loads."""
        record.refuse(PluginState.FAILED, *problems)
        return self._deactivate([record.name, *self._refuse_dependents()])

    def _deactivate(self, names: Iterable[str]) -> list[LoadedPlugin]:
        """Deactivate plugins; return their loads."""
        loads = [self.active[name] for name in names if name in self.active]
        for loaded in loads:
            loaded.views.pin()
        for loaded in loads:
            self.lifecycle.deactivate(loaded)
        if loads:
            self.update_hooks()
        return loads

    async def _unload_at_once(self, loads: Iterable[LoadedPlugin]) -> None:
        """Unload, whatever is in flight."""
        ordered = _dependents_first(loads)
        for loaded in ordered:
            self.lifecycle.revoke(loaded)
        for loaded in ordered:
            await self.lifecycle.unload(loaded)


def _dependents_first(loads: Iterable[LoadedPlugin]) -> list[LoadedPlugin]:
    """Return loads in such an order that each comes before those of plugins that it requires."""
    loads = list(loads)
    order = [record.name for record in load_order([loaded.record for loaded in loads])]
    return sorted(loads, key=lambda loaded: order.index(loaded.record.name), reverse=True)
