"""All plugins of one host: what is known of each, and what the operator decides about them while it runs."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tavern_host.audit.log import AuditLog
from tavern_host.context import Project
from tavern_host.context.facilities import Kernel
from tavern_host.contracts.errors import Conflict, NotFound, TavernError
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import AdmissionError, PluginAsset, PluginInfo, PluginState, Problem
from tavern_host.events.bus import EventBus
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.hooks.dispatch import Answer, Dispatcher
from tavern_host.plugins.discovery import Record, discover, file_hashes, fingerprint, upgraded_since
from tavern_host.plugins.failures import log_failure, problem_of
from tavern_host.plugins.grants import GrantStore, SwitchStore
from tavern_host.plugins.lifecycle import Lifecycle
from tavern_host.plugins.loaded import LoadedPlugin
from tavern_host.plugins.manifest import Entry, Manifest
from tavern_host.plugins.ordering import dependency_problems, load_order
from tavern_host.plugins.permissions import decide
from tavern_host.plugins.registrations import Registrations
from tavern_host.plugins.review import Code, Review
from tavern_host.plugins.serialize import Decisions
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.threads import run_in_thread
from tavern_host.runtime.watchdog import Blocked
from tavern_host.services.registry import ServiceRegistry
from tavern_host.settings.store import SettingsStore

OPERATOR = "user:operator"
"""Who decides where nobody else is named."""

_log = logging.getLogger("tavern.plugins")


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
        operator_dir: Path,
        sources: Sources,
        review: Review,
        grants: GrantStore,
        switches: SwitchStore,
        settings: SettingsStore,
        catalogue: Catalogue,
        boundary: Boundary,
        bus: Callable[[], EventBus],
        audit: AuditLog,
        serving: bool,
    ) -> None:
        self._sources = sources
        self._grants = grants
        self._switches = switches
        self._seen_reloads = switches.load().reloads
        self._settings = settings
        self._bus = bus
        self._audit = audit.record
        self._running = False
        self._decisions = Decisions()
        self._coming: set[str] = set()
        self.review = review
        self.records: dict[str, Record] = {}
        self.duplicates: list[Record] = []
        self.dispatcher = Dispatcher(catalogue, self._report, self._tell)
        self.services = ServiceRegistry(catalogue, boundary, self._holds, review.operator.overrides)
        self.registrations = Registrations()
        kernel = Kernel(
            project,
            operator_dir,
            self.services,
            self.dispatcher,
            bus,
            self._declared,
            self._report,
            self._tell,
            serving,
            audit,
        )
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
        records = list(self.records.values())
        self._decide(records, self.review.codes(records))

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

    def _decide(self, records: Iterable[Record], codes: Mapping[str, Code]) -> None:
        """Decide anew on these records, and on what that means for those that require them."""
        grants, disabled = self._grants.read(), self._switches.load().disabled
        manifests = self.manifests()
        for record in records:
            name = record.name
            is_disabled = name in disabled
            self.review.decide(record, grants.get(name), codes[name], disabled=is_disabled, others=manifests)
        for name, problem in dependency_problems(self.records):
            self.records[name].refuse(PluginState.INCOMPATIBLE, problem)

    async def _decide_anew(self, records: Sequence[Record]) -> None:
        """As `_decide`, for records whose code is to be looked at, which may take time."""
        codes = await run_in_thread(lambda: self.review.codes(records), what="reading plugins")
        self._decide(records, codes)

    def _holds(self, plugin: str, permission: str) -> bool:
        return any(loaded.holds(permission) for loaded in self.lifecycle.loads_of(plugin))

    # --- from start to stop -------------------------------------------------------------------------

    async def load_all(self) -> None:
        """Load every plugin that may be loaded, in order; then prepare the hooks."""
        async with self._decisions.alone():
            with self._bringing_in(self.records):
                for record in self.records.values():
                    if record.state is PluginState.DISCOVERED:
                        await self._load_first(record)
            self._rebuild()

    async def _load_first(self, record: Record) -> None:
        """Load a plugin of a host that starts; a failure costs the plugin."""
        loaded = None
        try:
            loaded = await self.lifecycle.load(record)
            self.lifecycle.put_in(loaded)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if loaded is not None:
                await self.lifecycle.take_out(loaded)
            await self._cut_off(self._fail(record, "loading", error))
        else:
            record.state = PluginState.LOADED

    async def start_all(self) -> None:
        """Call `tavern_startup` of every loaded plugin, in order; a failure costs that plugin."""
        async with self._decisions.alone():
            self._running = True
            for loaded in [self.active[name] for name in self.records if name in self.active]:
                if loaded.record.state is not PluginState.LOADED:  # it was decided against while others were loaded
                    await self._cut_off(self._withdraw([loaded.record.name]))
                elif self._is_in_use(loaded):
                    await self._start_first(loaded)

    async def _start_first(self, loaded: LoadedPlugin) -> None:
        """Start a plugin of a host that starts; a failure costs the plugin."""
        record = loaded.record
        try:
            with self._bringing_in([record.name]):
                await self.lifecycle.start(loaded)
                await self._decisions.settled()
        except Exception as error:
            await self._cut_off(self._fail(record, "tavern_startup", error))
        else:
            if self._is_in_use(loaded):  # else it had itself taken out
                record.state = PluginState.STARTED

    async def stop_all(self) -> None:
        """Stop and unload every plugin, in the reverse of the load order."""
        self.lifecycle.hurry()
        async with self._decisions.alone():
            await self.lifecycle.interrupt_all()
            for loaded in [self.active[name] for name in reversed(self.records) if name in self.active]:
                await self.lifecycle.take_out(loaded)
                loaded.record.state = PluginState.STOPPED
            self._running = False
            await self.lifecycle.drained()
            self._rebuild()

    # --- coming and going ---------------------------------------------------------------------------

    async def _bring_in(self, record: Record) -> list[LoadedPlugin]:
        """Load and start a plugin, and put it in the place of what is loaded of it now; return what is withdrawn.

        A failure costs the plugin: the load that there was of it goes too, and those of plugins that require it.
        """
        name, where, loaded = record.name, "loading", None
        before = self.active.get(name)
        if before is None:
            await self.lifecycle.drained(name)  # what it may hold for itself alone is free again
        try:
            with self._bringing_in([name]):
                loaded = await self.lifecycle.load(record)
                if self._is_wanted(record, PluginState.DISCOVERED):
                    where, record.state = "tavern_startup", PluginState.LOADED
                    if before is None:
                        self.lifecycle.provide(loaded)  # it may use its own services when it starts
                    await self.lifecycle.start(loaded)
                await self._decisions.settled()
            if not self._is_wanted(record, PluginState.LOADED):  # so one of its own hooks decided
                await self.lifecycle.take_out(loaded)
                return []
            where = "loading"
            self.lifecycle.put_in(loaded)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            withdrawn = self._fail(record, where, error)
            if loaded is not None:
                await self.lifecycle.take_out(loaded)
            return [one for one in dict.fromkeys([*withdrawn, before]) if one is not None and one is not loaded]
        record.state = PluginState.STARTED
        self._rebuild()
        return [before] if before is not None else []

    def _is_wanted(self, record: Record, state: PluginState) -> bool:
        return record.state is state and self.records.get(record.name) is record

    def _is_in_use(self, loaded: LoadedPlugin) -> bool:
        return self.active.get(loaded.record.name) is loaded

    @contextlib.contextmanager
    def _bringing_in(self, names: Iterable[str]) -> Iterator[None]:
        """Refuse to bring in these plugins once more within the block, as their own hooks might ask."""
        names = set(names)
        self._coming |= names
        try:
            yield
        finally:
            self._coming -= names

    def _check_not_coming(self, name: str | None) -> None:
        coming = self._coming if name is None else self._coming & {name}
        if coming:
            names = ", ".join(sorted(coming)) if len(coming) < 4 else "the host"
            raise Conflict(f"{names} is being started: ask again when that is done")

    def _fail(self, record: Record, where: str, error: BaseException) -> list[LoadedPlugin]:
        """Withdraw a plugin that failed, and every plugin that requires it; return their loads."""
        if isinstance(error, AdmissionError):
            problems = error.problems
        else:
            problems = [problem_of(error, where, record.root, record.name)]
            log_failure(_log, record.name, where, error)
        record.refuse(PluginState.FAILED, *problems)
        self._audit("plugin.failed", actor="system:host", subject=record.name, details={"where": where})
        names = [record.name]
        for name, problem in dependency_problems(self.records):
            self.records[name].refuse(PluginState.INCOMPATIBLE, problem)
            names.append(name)
        return self._withdraw(names)

    def _withdraw(self, names: Iterable[str]) -> list[LoadedPlugin]:
        """Offer nothing of plugins any more; return their loads."""
        going = [self.active[name] for name in names if name in self.active]
        for loaded in going:
            loaded.views.keep()
        for loaded in going:
            self.lifecycle.withdraw(loaded)
        self._rebuild()
        return going

    async def _cut_off(self, withdrawn: Iterable[LoadedPlugin]) -> None:
        """Take loads out at once, whatever is under way in them."""
        going = _users_first(withdrawn)
        for loaded in going:
            self.lifecycle.cut_off(loaded)
        for loaded in going:
            await self.lifecycle.take_out(loaded)

    def _rebuild(self) -> None:
        """Prepare the hooks anew, in load order."""
        order = [name for name in self.records if name in self.active]
        self.dispatcher.set_plugins((name, self.active[name].implementations) for name in order)

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
        await self._decisions.carry_out(lambda: self._grant(name, actor))

    async def _grant(self, name: str, actor: str) -> None:
        record = self.get(name)
        self._check_not_coming(name)
        if record.manifest is None or record.state in (PluginState.INVALID, PluginState.INCOMPATIBLE):
            raise AdmissionError(f"{name} cannot be granted anything: {record.problems[0]}", list(record.problems))
        self._grants.grant(name, record.source, record.permissions, record.manifest.version)
        permissions = [p.name for p in record.permissions]
        self._audit("plugin.granted", actor=actor, subject=name, details={"permissions": permissions})
        await self._let_come(name)

    async def revoke(self, name: str, *, actor: str = OPERATOR) -> None:
        """Take a plugin's grant back; everything that it registered is gone when this returns.

        What is under way in it is not waited for. Raises `Conflict` for a plugin that needs no grant: first-party,
        trusted, or only adding things.
        """
        await self._decisions.carry_out(lambda: self._revoke(name, actor))

    async def _revoke(self, name: str, actor: str) -> None:
        record = self.get(name)
        why = self.review.why_no_grant(record)
        if why is not None:
            hint = f"to keep it out, disable it: `tavern plugins disable {name}`"
            raise Conflict(f"{name} needs no grant: {why}; {hint}")
        self._grants.revoke(name)
        self._audit("plugin.revoked", actor=actor, subject=name)
        await self._review_again([record], drain=False)

    async def enable(self, name: str, *, actor: str = OPERATOR) -> None:
        """Let a plugin be loaded that was disabled; a running host loads it at once.

        Raises `Conflict` where `host.yaml` or this run's options keep it out.
        """
        await self._decisions.carry_out(lambda: self._enable(name, actor))

    async def _enable(self, name: str, actor: str) -> None:
        record = self.get(name)
        self._check_not_coming(name)
        out = self.review.left_out(record, disabled=False)
        if out is not None:
            raise Conflict(f"{name} cannot be enabled here: {out}")
        if name in self._switches.load().disabled:
            self._switches.enable(name)
            self._audit("plugin.enabled", actor=actor, subject=name)
        await self._let_come(name)

    async def disable(self, name: str, *, actor: str = OPERATOR) -> None:
        """Take a plugin out until it is enabled again.

        Returns when what was under way in it has finished, or was given up at its deadline; to a plugin that has
        itself taken out, at once.
        """
        names = await self._decisions.carry_out(lambda: self._disable(name, actor))
        if actor not in (f"plugin:{one}" for one in names):  # it would wait for itself
            for one in names:
                await self.lifecycle.drained(one)

    async def _disable(self, name: str, actor: str) -> list[str]:
        record = self.get(name)
        if name not in self._switches.load().disabled:
            self._switches.disable(name)
            self._audit("plugin.disabled", actor=actor, subject=name)
        affected = [one.name for one in self._with_dependents([record])]
        await self._review_again([record])
        return affected

    async def reload(self, name: str | None = None, *, actor: str = OPERATOR) -> list[str]:
        """Read one plugin anew, or look for all that are new, changed or gone; return the names of those concerned.

        What is under way finishes with the code that it began with. Raises `NotFound`, and `Conflict` for a
        plugin whose code came with the host, or with the program that it is part of.
        """
        return await self._decisions.carry_out(lambda: self._reload(name, actor))

    async def _reload(self, name: str | None, actor: str) -> list[str]:
        self._check_not_coming(name)
        known = self.records.get(name or "")
        if known is not None and (why := _why_not_anew(known)):
            raise Conflict(f"{name} {why}: restart the host to read it anew")
        seen, self.duplicates = await self._look()
        if name is not None and name not in seen:
            self.get(name)  # says what there is
        concerned = self._news(seen) if name is None else [name]
        names = await self._take_over(seen, concerned)
        self._audit("plugins.reloaded", actor=actor, subject=name or "", details={"plugins": names})
        return names

    def ask_to_reload(self, name: str | None) -> None:
        """Let running hosts of the project reload a plugin, or look for all. Raises `NotFound`."""
        if name is not None:
            self.get(name)
        self._switches.ask_to_reload(name or "")

    async def follow(self) -> None:
        """Take over what was decided by somebody else in the operator's files, such as `tavern plugins revoke` beside
        a running `tavern serve`. Raises `InvalidFile` where one of them was damaged."""
        asked = await self._decisions.carry_out(self._follow)
        for name in asked:
            with contextlib.suppress(TavernError):  # it was uninstalled since
                await self.reload(name or None)

    async def _follow(self) -> list[str]:
        """Follow grants and switches; return what is asked to be reloaded."""
        grants, switches = self._grants.read(), self._switches.load()
        revoked: list[Record] = []
        switched: list[Record] = []
        changed: list[Record] = []
        for name, record in self.records.items():
            now = decide(record.permissions, grants.get(name), record.source, trust=self.review.trust_in(record))
            if [p.granted for p in record.permissions] != [p.granted for p in now]:
                (revoked if name in self.active and name not in grants else changed).append(record)
            elif name in switches.disabled:
                switched += [record] if name in self.active else []
            elif record.state is PluginState.DISABLED and self.review.left_out(record, disabled=False) is None:
                changed.append(record)
        if revoked:
            await self._review_again(revoked, drain=False)
        if switched:
            await self._review_again(switched)
        if changed:
            await self._review_again(await self._current([record.name for record in changed]))
        asked = [name for name, when in switches.reloads.items() if when > self._seen_reloads.get(name, 0.0)]
        self._seen_reloads = switches.reloads
        return asked

    # --- carrying decisions out ---------------------------------------------------------------------------

    async def _let_come(self, name: str) -> None:
        """Bring in a plugin that may be in use now, as it is now on disk; one that is in use stays as it is."""
        if name in self.active:
            self._rebuild()
        else:
            await self._review_again(await self._current([name]))

    async def _current(self, names: Collection[str]) -> list[Record]:
        """Return the records of plugins, read anew in a running host where the files have changed."""
        if self._running:
            old = [self.records[name] for name in names if _why_not_anew(self.records[name]) is None]
            changed = await run_in_thread(lambda: [r.name for r in old if _has_changed(r)], what="looking at plugins")
            if changed:
                seen, _ = await self._look()
                self._replace(seen, [name for name in changed if name in seen])
        return [self.records[name] for name in names]

    async def _look(self) -> tuple[dict[str, Record], list[Record]]:
        """Discover all plugins anew; return them by name, and those whose name is taken."""

        def look() -> tuple[list[Record], list[Record]]:
            importlib.invalidate_caches()  # something may have been installed in this very second
            return self._discover()

        found, duplicates = await run_in_thread(look, what="looking for plugins")
        return {record.name: record for record in found}, duplicates

    def _news(self, seen: Mapping[str, Record]) -> list[str]:
        """Return the plugins that are gone, new, changed on disk, or failed and worth another try."""
        gone = [name for name in self.records if name not in seen]
        return [*gone, *(name for name, record in seen.items() if self._is_news(record))]

    def _is_news(self, record: Record) -> bool:
        known = self.records.get(record.name)
        if known is None or known.source != record.source:
            return True
        if _why_not_anew(known) is not None:
            return False
        was_wrong = known.state in (PluginState.FAILED, PluginState.INVALID)
        return was_wrong or known.fingerprint != record.fingerprint

    def _replace(self, seen: Mapping[str, Record], names: Collection[str]) -> None:
        """Put the records that were seen of plugins in the place of those that there are; None seen, none is left."""
        others = [record for name, record in self.records.items() if name not in names]
        new = [seen[name] for name in names if name in seen]
        self.records = {record.name: record for record in load_order([*others, *new])}

    async def _take_over(self, seen: Mapping[str, Record], concerned: Sequence[str]) -> list[str]:
        """Take over what was seen of plugins, and with each, of those that require it; return the names concerned."""
        waiting = await self._waiting(concerned)
        changing = [name for name in concerned if name not in waiting]
        gone = [name for name in changing if name not in seen]
        users = self._with_dependents([self.records[n] for n in changing if n in self.records], gone)
        anew = [r.name for r in users if r.name in seen and _why_not_anew(r) is None]
        self._replace(seen, dict.fromkeys([*changing, *anew]))
        await self._review_again([self.records[n] for n in changing if n in self.records], gone=gone)
        return list(concerned)

    async def _waiting(self, names: Iterable[str]) -> set[str]:
        """Return which plugins must go on as they are, since what they, or those that require them, stand on was
        upgraded beneath them; say so with each."""
        groups = {n: self._with_dependents([self.records[n]]) for n in names if n in self.active}
        records = {record.name: record for group in groups.values() for record in group if record.name in self.active}
        upgraded = await run_in_thread(
            lambda: {name: upgraded_since(record) for name, record in records.items()}, what="looking at distributions"
        )
        waiting = set()
        for name, group in groups.items():
            found = sorted({one for record in group for one in upgraded.get(record.name, ())})
            _say_pending(self.records[name], found)
            waiting |= {name} if found else set()
        return waiting

    async def _review_again(self, records: Iterable[Record], *, drain: bool = True, gone: Collection[str] = ()) -> None:
        """Decide anew on plugins and on those that require them; in a running host, take out and bring in.

        With `drain`, what is under way in what is taken out goes on for a while; else it loses everything at once.
        """
        affected = self._with_dependents(records, gone)
        await self._decide_anew([r for r in affected if r.state is not PluginState.INVALID])
        if not self._running:
            return
        names = list(dict.fromkeys([*gone, *(record.name for record in affected)]))
        coming = [record for record in affected if record.state is PluginState.DISCOVERED]
        for name in names:
            if name in self.active:
                self.active[name].views.keep()  # what is replaced goes on with what it has
        withdrawn = self._withdraw(set(names) - {record.name for record in coming})
        if not drain:
            await self._cut_off(withdrawn)
            withdrawn = []
        try:
            for record in coming:
                if self._is_wanted(record, PluginState.DISCOVERED):  # what it requires may have failed meanwhile
                    withdrawn += await self._bring_in(record)
        finally:
            self.lifecycle.retire(_users_first(withdrawn))
        for name in names:
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

    def info(self, record: Record, *, collected: bool = True) -> PluginInfo:
        """Return a record as data, with or without the names of what is collected from its modules, for which they
        may have to be imported."""
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
            contributions=self.contributions(record.name, collected=collected),
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

    def contributions(self, name: str, *, collected: bool = True) -> dict[str, list[str]]:
        """Return the names of what a plugin has registered, by kind, with or without what its modules define."""
        loaded = self.active.get(name)
        if loaded is None:
            return {}
        owned = {**loaded.ledger.owned(), "hook": [i.info.hook for i in loaded.implementations]}
        for hook, kind in self.dispatcher.catalogue.collected().items() if collected else ():
            if names := [getattr(item, kind.title) for item in loaded.runtime.collect(hook)]:
                owned[kind.name] = names
        return owned

    def owned(self, name: str) -> dict[str, list[str]]:
        """Return everything in the ledgers of a plugin, that of loads on their way out included."""
        owned: dict[str, list[str]] = {}
        for loaded in self.lifecycle.loads_of(name):
            for kind, names in loaded.ledger.owned().items():
                owned.setdefault(kind, []).extend(names)
        return owned

    def assets(self, kind: str) -> list[PluginAsset]:
        """Return the folders of a kind (`tools`, `workflows`) that loaded plugins declare, or their own: `plugin`."""
        assets = []
        for name, loaded in [*self.active.items()]:
            root, entry = loaded.record.root, getattr(loaded.manifest, kind, None)
            if kind == "plugin" and root is not None:
                changed = _differs_from_review(loaded.record)
                assets.append(PluginAsset(plugin=name, kind=kind, path=str(root.resolve()), changed=changed))
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
        """Return what the modules that manifests name contribute to a hook."""
        return [
            Answer(items, loaded.runtime, loaded.context, loaded.in_flight)
            for loaded in self.active.values()
            if (items := loaded.runtime.collect(hook))
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


def _users_first(loads: Iterable[LoadedPlugin]) -> list[LoadedPlugin]:
    """Return loads in such an order that each comes before those of plugins that it requires."""
    loads = list(loads)
    order = [record.name for record in load_order([loaded.record for loaded in loads])]
    return sorted(loads, key=lambda loaded: order.index(loaded.record.name), reverse=True)


def _why_not_anew(record: Record) -> str | None:
    """Return why the code of a plugin cannot be read anew while the process runs, or None."""
    if record.first_party:
        return "is first-party"
    if record.source.startswith("embedded:"):
        return "was handed over by the program that the host is part of"
    return None


def _has_changed(record: Record) -> bool:
    return record.root is not None and fingerprint(record.root) != record.fingerprint


def _say_pending(record: Record, upgraded: Sequence[str]) -> None:
    """Say with a plugin that it goes on as it is until the host is restarted, or nothing any more."""
    record.pending_restart = bool(upgraded)
    for told in (record.notes, record.problems):
        told[:] = [problem for problem in told if not problem.message.startswith("pending restart")]
    if upgraded:
        message = f"pending restart: {', '.join(upgraded)} was upgraded while the host ran"
        problem = Problem(message=message, hint="restart the host; until then the version that is loaded goes on")
        record.notes.append(problem)
        record.problems.append(problem)


def _differs_from_review(record: Record) -> bool:
    """Return whether a plugin's folder had to be reviewed and is another one by now. Blocking."""
    if record.root is None or record.reviewed is None or fingerprint(record.root) == record.fingerprint:
        return False
    try:
        return file_hashes(record.root) != record.reviewed
    except OSError:
        return True
