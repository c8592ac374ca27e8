"""The `plugins` service: what is known of the plugins of one host, and what the operator, or a plugin that may, decides
about them: grant, revoke, enable, disable, reload. It follows the operator's files as well.

Each decision is written to the audit log first, then to its file; the manager carries it out in a running host.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tavern_host.audit.log import AuditLog
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, TavernError, describe
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.packages import PACKAGES_FILE
from tavern_host.contracts.plugins import (
    AdmissionError,
    AskedPermission,
    DescribedRoute,
    Explanation,
    FileVersions,
    Placement,
    PluginAsset,
    PluginInfo,
    Plugins,
    PluginState,
    Problem,
    Reloaded,
    RunningHost,
    ServiceLayer,
)
from tavern_host.plugins.discovery import discover, fingerprint, upgraded_since
from tavern_host.plugins.grants import stamp
from tavern_host.plugins.manager import Manager
from tavern_host.plugins.operator_file import OperatorFile
from tavern_host.plugins.permissions import decide
from tavern_host.plugins.record import Record
from tavern_host.plugins.why import explain
from tavern_host.runtime.threads import run_in_thread
from tavern_host.storage.running_hosts import RunningHosts

_log = logging.getLogger("tavern.plugins")


class HostPlugins(Plugins):
    """Provides the service for one host; decisions that are made without a call are the operator's."""

    def __init__(self, manager: Manager, audit: AuditLog, running: RunningHosts, files: Sequence[Path]) -> None:
        self._manager = manager
        self._running = running
        self._reloads: dict[str, Reloaded] = {}
        self._dev_seen: dict[str, int] = {}
        self._dev_tried: dict[str, int] = {}
        self._grants = manager.grants
        self._switches = manager.switches
        self._seen_reloads = manager.switches.load().reloads
        self._files = files
        self._packages = (manager.sources.packages or Path()) / PACKAGES_FILE
        self._seen_packages = stamp(self._packages)
        self._audit = audit

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

    async def figures(self) -> list[Figure]:
        """Return the calls of hook implementations, and the open sockets."""
        sockets = Figure(name="sockets", kind="gauge", help="Open.", value=self._manager.registrations.sockets)
        return [*self._manager.dispatcher.tally.figures(), sockets]

    async def routes(self) -> list[DescribedRoute]:
        """Return all routes; a plugin that names a type which is not there is reported."""
        return await asyncio.to_thread(self._manager.registrations.described, self._manager.problems.failed)

    async def permissions(self) -> list[AskedPermission]:
        """Return every permission with the plugins that ask for it."""
        return self._manager.report.permissions()

    async def why(self, subject: str) -> Explanation:
        """Explain a subject."""
        return explain(self._manager, subject)

    def trace(self, name: str, *, call: CallContext | None = None) -> AsyncIterator[Event | Gap]:
        """Follow the calls of a loaded plugin; that somebody does is in the audit log."""
        return self._manager.calls_of(name, **_maker(call))

    # --- decisions ------------------------------------------------------------------------------------

    async def grant(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Grant a plugin exactly what it asks for now; a running host loads it at once."""

        async def grant(record: Record) -> None:
            self._manager.check_not_loading(name)
            if record.manifest is None or record.state in (PluginState.INVALID, PluginState.INCOMPATIBLE):
                raise AdmissionError(f"{name} cannot be granted anything: {record.problems[0]}", list(record.problems))
            asked, version = record.permissions, record.manifest.version
            async with self._decision(call, "plugin.granted", name, {"permissions": [p.name for p in asked]}):
                await asyncio.to_thread(self._grants.grant, name, record.source, asked, version)
            await self._load_if_allowed(name)

        return await self._decided(name, grant)

    async def revoke(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Take a plugin's grant back; everything that it registered is gone when this returns. Its work in flight is
        not waited for. Raises `Conflict` for a plugin that needs no grant: first-party, trusted, or only adding."""

        async def revoke(record: Record) -> None:
            why = self._manager.review.why_no_grant(record)
            if why is not None:
                hint = f"to keep it out, disable it: `tavern plugins disable {name}`"
                raise Conflict(f"{name} needs no grant: {why}; {hint}")
            async with self._decision(call, "plugin.revoked", name):
                await asyncio.to_thread(self._grants.revoke, name)
            await self._manager.reconcile([record], drain=False)

        return await self._decided(name, revoke)

    async def enable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Let a plugin be loaded that was disabled; a running host loads it at once.

        Raises `Conflict` where `host.yaml` or this run's options keep it out.
        """

        async def enable(record: Record) -> None:
            self._manager.check_not_loading(name)
            out = self._manager.review.left_out(record, disabled=False)
            if out is not None:
                raise Conflict(f"{name} cannot be enabled here: {out}")
            if name in self._switches.load().disabled:
                async with self._decision(call, "plugin.enabled", name):
                    await asyncio.to_thread(self._switches.enable, name)
            await self._load_if_allowed(name)

        return await self._decided(name, enable)

    async def disable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Unload a plugin until it is enabled again. Returns when its work in flight has ended, or was given up at its
        deadline; at once to a plugin that disables itself."""
        affected: list[str] = []

        async def disable(record: Record) -> None:
            if name not in self._switches.load().disabled:
                async with self._decision(call, "plugin.disabled", name):
                    await asyncio.to_thread(self._switches.disable, name)
            affected.extend(one.name for one in self._manager.with_dependents([record]))
            await self._manager.reconcile([record])

        await self._decided(name, disable)
        if _maker(call)["actor"] not in (f"plugin:{one}" for one in affected):  # it would wait for itself
            for one in affected:
                await self._manager.lifecycle.drained(one)
        return self._manager.info(name)

    async def place(self, name: str, placement: Placement | None, *, call: CallContext | None = None) -> PluginInfo:
        """Run a plugin there from now on, or with None where its manifest and `host.yaml` say; a running host loads it
        there at once, while what is in flight ends where it began.

        Raises `Conflict` for a plugin that is not placed, or of which `host.yaml` says another place.
        """

        async def place(record: Record) -> None:
            self._manager.check_not_loading(name)
            said = self._manager.review.operator.placement.get(name)
            if record.first_party or (said is not None and said != placement):
                why = (
                    "is first-party and runs in the host's process" if record.first_party else f"is {said} in host.yaml"
                )
                raise Conflict(f"{name} {why}")
            async with self._decision(call, "plugin.placed", name, {"placement": placement}):
                await asyncio.to_thread(self._switches.place, name, placement)
            await self._manager.reconcile(await self._refreshed([name]))

        return await self._decided(name, place)

    async def reload(self, name: str | None = None, *, call: CallContext | None = None) -> list[PluginInfo]:
        """Reload one plugin, or look for all that are new, changed or gone; return those concerned. One that is gone is
        as it was, in the state `gone`.

        Work in flight ends with the code that it began with. Raises `NotFound`, and `Conflict` for a plugin whose
        code came with the host, or with the program that it is part of.
        """

        async def reload() -> list[str]:
            self._manager.check_not_loading(name)
            known = self._manager.records.get(name or "")
            if known is not None and (why := known.why_not_reloadable):
                raise Conflict(f"{name} {why}: restart the host to reload it")
            seen, self._manager.name_conflicts = await self._discover()
            if name is not None and name not in seen:
                self._manager.get(name)  # raises for an unknown name
            names = self._changed(seen) if name is None else [name]
            before.update({one: self._manager.info(one) for one in names if one in self._manager.records})
            await self._apply(seen, names)
            self._audit.record("plugins.reloaded", subject=name or "", details={"plugins": names}, **_maker(call))
            return names

        before: dict[str, PluginInfo] = {}
        names = await self._manager.operations.run(reload)
        there = self._manager.records
        gone = {"state": PluginState.GONE}
        return [self._manager.info(one) if one in there else before[one].model_copy(update=gone) for one in names]

    async def _decided(self, name: str, decision: Callable[[Record], Awaitable[None]]) -> PluginInfo:
        """Carry out a decision on a plugin when its turn comes; return the plugin as it is then."""

        async def decide() -> None:
            await self._see_new([name])
            await decision(self._manager.get(name))

        await self._manager.operations.run(decide)
        return self._manager.info(name)

    def _decision(
        self, call: CallContext | None, action: str, name: str, details: Mapping[str, Any] | None = None
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Return the block that carries a decision out: entered when it is in the audit log, on disk."""
        return self._audit.decision(action, subject=name, details=details, **_maker(call))

    def ask_to_reload(self, name: str | None = None) -> None:
        """Let running hosts of the project reload a plugin, or look for all. Raises `NotFound` for one that neither
        this host nor a running one knows."""
        if name is not None and not any(host.plugin(name) for host in self._running.all()):
            self._manager.get(name)
        self._switches.ask_to_reload(name or "")

    async def wait_for_hosts(self) -> list[RunningHost]:
        """Return the running hosts of the project, once each has carried out what was decided until now."""
        return await self._running.wait_for_hosts(self._stamps)

    def _stamps(self) -> FileVersions:
        return self._grants.changed(), self._switches.changed(), stamp(self._packages), *map(stamp, self._files)

    # --- following the operator's files -----------------------------------------------------------------

    async def watch(self, follow_files: Callable[[], bool], *, every: float) -> None:
        """Look every `every` seconds for decisions of other processes (grants, switches; `follow_files` takes over
        settings and `host.yaml`, and returns whether there was anything) and for changes of plugins that are being
        written, until cancelled; the commands that decided read what became of it."""
        seen: FileVersions = ()
        with self._running.registered() as answer:
            while True:
                await asyncio.sleep(every)
                try:
                    changed = follow_files()
                    changed |= await self._follow_dev()
                    if changed or self._stamps() != seen:
                        seen = self._stamps()
                        answer(await self._followed(seen))
                except (TavernError, OSError) as error:
                    _log.error("the operator's files cannot be followed: %s", describe(error))

    async def _followed(self, stamps: FileVersions) -> RunningHost:
        """Follow the operator's files; return what became of it. While one is damaged, what holds now holds."""
        problem = None
        try:
            await self.follow()
        except (TavernError, OSError) as error:
            problem = f"it cannot follow the operator's files: {describe(error)}"
            _log.error(problem)
        plugins = self._manager.infos()
        return RunningHost(process=os.getpid(), stamps=stamps, plugins=plugins, reloads=self._reloads, problem=problem)

    async def _follow_dev(self) -> bool:
        """Reload the plugins that are being written whose files have changed and rest since the last look; return
        whether there were any."""
        records = [record for record in self._manager.records.values() if record.is_dev and record.root is not None]
        if not records:
            return False
        roots = {r.name: r.root for r in records if r.root is not None}
        now = await asyncio.to_thread(lambda: {name: fingerprint(root, is_dev=True) for name, root in roots.items()})
        seen, self._dev_seen = self._dev_seen, now
        resting = [r for r in records if now[r.name] == seen.get(r.name) != r.fingerprint]
        changed = [r.name for r in resting if self._dev_tried.get(r.name) != now[r.name]]
        for name in changed:
            self._dev_tried[name] = now[name]
            with contextlib.suppress(TavernError):  # the problem stands in its record
                await self.reload(name)
        return bool(changed)

    def follow_operator(self, operator: OperatorFile) -> None:
        """Take over what `host.yaml` says now; `follow` carries it out."""
        self._manager.follow_operator(operator)

    async def follow(self) -> None:
        """Carry out what another process decided in the operator's files, such as `tavern plugins revoke` beside a
        running `tavern serve`. Raises `InvalidFile` where one of them was damaged."""
        asked = await self._manager.operations.run(self._follow)
        for name in asked:
            try:
                plugins = await self.reload(name or None)
                gone = [plugin.name for plugin in plugins if plugin.state is PluginState.GONE]
                there = [plugin.name for plugin in plugins if plugin.name not in gone]
                self._reloads[name] = Reloaded(plugins=there, gone=gone)
            except TavernError as error:
                self._reloads[name] = Reloaded(error=error.message)

    async def _follow(self) -> list[str]:
        """Follow grants and switches; return what is asked to be reloaded."""
        manager, grants, switches = self._manager, self._grants.read(), self._switches.load()
        await self._see_new(grants)
        revoked: list[Record] = []
        disabled: list[Record] = []
        changed: list[str] = []
        for name, record in manager.records.items():
            now = decide(record.permissions, grants.get(name), record.source, trust=manager.review.trust_in(record))
            if [p.granted for p in record.permissions] != [p.granted for p in now]:
                if name in manager.active and name not in grants:
                    revoked.append(record)
                else:
                    changed.append(name)
            elif manager.review.left_out(record, disabled=name in switches.disabled) is not None:
                disabled += [record] if name in manager.active else []
            elif record.state is PluginState.DISABLED or record.placement != manager.review.placement(record, switches):
                changed.append(name)
        if revoked:
            await manager.reconcile(revoked, drain=False)
        if disabled:
            await manager.reconcile(disabled)
        if changed:
            await manager.reconcile(await self._refreshed(changed))
        asked = [name for name, when in switches.reloads.items() if when > self._seen_reloads.get(name, 0.0)]
        self._seen_reloads = switches.reloads
        before, self._seen_packages = self._seen_packages, stamp(self._packages)
        return asked if before == self._seen_packages else [*asked, ""]

    # --- reloading ------------------------------------------------------------------------------------

    async def _load_if_allowed(self, name: str) -> None:
        """Load a plugin that may be loaded now, as it is on disk; an active one stays as it is."""
        if name in self._manager.active:
            self._manager.update_hooks()
        else:
            await self._manager.reconcile(await self._refreshed([name]))

    async def _see_new(self, names: Iterable[str]) -> None:
        """Let a running host know the plugins of these names that were added since it looked for plugins."""
        unknown = set(names) - set(self._manager.records)
        if unknown and self._manager.is_running:
            seen, self._manager.name_conflicts = await self._discover()
            if new := unknown & set(seen):
                await self._apply(seen, [*new])

    async def _refreshed(self, names: Collection[str]) -> list[Record]:
        """Return the records of plugins, in a running host read again where their files have changed."""
        records = self._manager.records
        if self._manager.is_running:
            old = [records[name] for name in names if records[name].why_not_reloadable is None]
            changed = await run_in_thread(lambda: [r.name for r in old if _has_changed(r)], what="looking at plugins")
            if changed:
                seen, _ = await self._discover()
                self._replace(seen, [name for name in changed if name in seen])
        return [records[name] for name in names]

    async def _discover(self) -> tuple[dict[str, Record], list[Record]]:
        """Discover all plugins again; return them by name, and those whose name is taken."""

        def look() -> tuple[dict[str, Record], list[Record]]:
            importlib.invalidate_caches()  # something may have been installed in this very second
            return discover(self._manager.sources)

        return await run_in_thread(look, what="looking for plugins")

    def _changed(self, seen: Mapping[str, Record]) -> list[str]:
        """Return the plugins that are gone, new, changed on disk, or failed and worth another try."""
        gone = [name for name in self._manager.records if name not in seen]
        return [*gone, *(name for name, record in seen.items() if self._is_changed(record))]

    def _is_changed(self, record: Record) -> bool:
        known = self._manager.records.get(record.name)
        if known is None or known.source != record.source:
            return True
        if known.why_not_reloadable is not None:
            return False
        failed = known.state in (PluginState.FAILED, PluginState.INVALID)
        return failed or known.fingerprint != record.fingerprint

    def _replace(self, seen: Mapping[str, Record], names: Collection[str]) -> None:
        """Replace the records of plugins by those seen; one that was not seen is removed."""
        others = [record for name, record in self._manager.records.items() if name not in names]
        self._manager.set_records([*others, *(seen[name] for name in names if name in seen)])

    async def _apply(self, seen: Mapping[str, Record], names: Sequence[str]) -> None:
        """Reload plugins as they were seen, and those that require them, unless they wait for a restart."""
        manager = self._manager
        waiting = await self._pending_restart(names)
        changing = [name for name in names if name not in waiting]
        gone = [name for name in changing if name not in seen]
        users = manager.with_dependents([manager.records[n] for n in changing if n in manager.records], gone)
        reloaded = [r.name for r in users if r.name in seen and r.why_not_reloadable is None]
        self._replace(seen, dict.fromkeys([*changing, *reloaded]))
        await manager.reconcile([manager.records[n] for n in changing if n in manager.records], gone=gone)

    async def _pending_restart(self, names: Iterable[str]) -> set[str]:
        """Return which plugins must stay as they are, since a distribution that they, or those that require them, have
        imported was upgraded; report it against each."""
        manager = self._manager
        groups = {n: manager.with_dependents([manager.records[n]]) for n in names if n in manager.active}
        records = {r.name: r for group in groups.values() for r in group if r.name in manager.active}
        upgraded = await run_in_thread(
            lambda: {name: upgraded_since(record) for name, record in records.items()}, what="looking at distributions"
        )
        waiting = set()
        for name, group in groups.items():
            found = sorted({one for record in group for one in upgraded.get(record.name, ())})
            _report_pending(manager.records[name], found)
            waiting |= {name} if found else set()
        return waiting


def _maker(call: CallContext | None) -> dict[str, Any]:
    """Return who makes a decision, as the audit log takes it."""
    return {"actor": str(call.principal), "plugin": call.via} if call is not None else {"actor": "user:operator"}


def _has_changed(record: Record) -> bool:
    return record.root is not None and fingerprint(record.root, is_dev=record.is_dev) != record.fingerprint


def _report_pending(record: Record, upgraded: Sequence[str]) -> None:
    """Report against a plugin that it stays as it is until the host is restarted, or no longer."""
    record.pending_restart = bool(upgraded)
    message = f"pending restart: {', '.join(upgraded)} was upgraded while the host ran"
    problem = Problem(message=message, hint="restart the host; until then the loaded version stays in use")
    for reported in (record.notes, record.problems):
        others = [one for one in reported if not one.message.startswith("pending restart")]
        reported[:] = [*others, problem] if upgraded else others
