"""Loads, activates, starts, drains and unloads single plugins. Which ones, and when, is the manager's decision.

A load that is unloaded is first deactivated: nothing of it is offered any more. Then its work in flight is drained, it
is shut down, and everything that it owns is released. Meanwhile another load of the plugin may be active already.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tavern_host.context.facilities import Kernel, make_context
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.plugins import AdmissionError, Problem
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.hooks.dispatch import LoadedHookResult, call_of
from tavern_host.plugins.admission import admit
from tavern_host.plugins.frontend import frontend_files
from tavern_host.plugins.record import LoadedPlugin, Record
from tavern_host.plugins.registrations import Registered, Registrations
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.in_flight import InFlight, expire
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.ledger import Ledger
from tavern_host.runtime.package_path import imported_otherwise, search
from tavern_host.runtime.source import Entry, PluginSource
from tavern_host.runtime.threads import run_in_thread
from tavern_host.services.calls import Provider
from tavern_host.settings.store import SettingsStore

IMPORT_DEADLINE = 30.0
PREPARE_DEADLINE = 900.0
OPEN_DEADLINE = 10.0
SHUTDOWN_DEADLINE = 5.0
DRAIN_DEADLINE = 10.0
CANCEL_GRACE = 1.0
"""Seconds for importing a plugin, for importing one whose packages may have to be installed first, for making one
provider, for its shutdown, for its work in flight to end, and for work that was cancelled to end."""


class Lifecycle:
    """All loads of plugins in one host: the active ones by name, those that are loading, and those that drain."""

    def __init__(
        self, kernel: Kernel, boundary: Boundary, settings: SettingsStore, registrations: Registrations
    ) -> None:
        self._kernel = kernel
        self._boundary = boundary
        self._settings = settings
        self._registrations = registrations
        self._loading: set[LoadedPlugin] = set()
        self._draining: dict[asyncio.Task[None], LoadedPlugin] = {}
        self._drain_timers: set[asyncio.Timeout] = set()
        self._imported: dict[str, Record | None] = {}
        self._counts: Counter[str] = Counter()
        self.active: dict[str, LoadedPlugin] = {}

    def loads(self) -> list[LoadedPlugin]:
        """Return all loads, the active ones first."""
        return [*self.active.values(), *self._loading, *self._draining.values()]

    def loads_of(self, name: str) -> list[LoadedPlugin]:
        """Return all loads of a plugin, the active one first."""
        return [loaded for loaded in self.loads() if loaded.record.name == name]

    def collected(self, hook: str) -> list[LoadedHookResult]:
        """Return the answers to a hook of the modules that manifests name."""
        return [
            LoadedHookResult(items, loaded.runtime, loaded.context, loaded.in_flight)
            for loaded in list(self.active.values())
            if (items := loaded.runtime.collect(hook))
        ]

    # --- loading -------------------------------------------------------------------------------------

    async def load(self, record: Record) -> LoadedPlugin:
        """Import a plugin and look at all that it wants to register; nothing of it is offered yet.

        The code of an installed package is read again where it was imported for another record. Raises
        `AdmissionError`, `DeadlineExceeded`, or what importing raised.
        """
        manifest = record.manifest
        assert manifest is not None
        if record.placement == "in-process":
            _check_imported(record)
        in_flight = InFlight(record.name, self._code_name(record, manifest), first_party=record.first_party)
        in_flight.observer, ledger = self._boundary.observer_of(record.name), Ledger()
        granted = frozenset(p.name for p in record.permissions if p.granted)
        views = self._kernel.services.views(in_flight, granted.__contains__, first_party=record.first_party)
        settings = self._settings.of(manifest)
        context = make_context(self._kernel, in_flight, ledger, views, settings, manifest.permissions.events)
        runtime = self._boundary.runtime(_source(record, self._kernel.dispatcher.catalogue), context)
        loaded = LoadedPlugin(record, manifest, runtime, context, in_flight, ledger, views, settings, granted)
        self._loading.add(loaded)
        restore = self._refresh_modules(record, runtime)
        began = time.perf_counter()
        try:
            deadline = IMPORT_DEADLINE if record.placement == "in-process" else PREPARE_DEADLINE
            await run_in_thread(runtime.load, deadline=deadline, what=f"importing {record.name}")
            loaded.frontend = await asyncio.to_thread(frontend_files, record) if manifest.frontend is not None else None
            record.timings["import"] = (time.perf_counter() - began) * 1000
            await admit(loaded, self._kernel.dispatcher, self._kernel.services, self._registrations)
            await self._open_providers(loaded)
        except BaseException:
            await self._release(loaded)
            restore()
            raise
        finally:
            record.timings["load"] = (time.perf_counter() - began) * 1000
        return loaded

    def _code_name(self, record: Record, manifest: Manifest) -> str:
        """Return the name of this load's code; see `context.HookResult`.

        Which code of an installed package a later load reads is unknown, so each of those has a unique name.
        """
        self._counts[record.name] += 1
        count, code_hash = self._counts[record.name], record.code_hash
        again = [f"load {count}", *([os.urandom(16).hex()] if code_hash is None else [])] if count > 1 else []
        return ", ".join([manifest.version, *([] if code_hash is None else [code_hash]), *again])

    def _refresh_modules(self, record: Record, runtime: InProcessRuntime) -> Callable[[], None]:
        """Let the modules of an installed package be imported again if those imported are another record's; return
        what undoes that where the import fails."""
        module = record.module
        if module is None or record.why_not_reloadable is not None or record.placement != "in-process":
            return lambda: None
        before = self._imported.get(module, record)  # modules that the process had imported already are as good
        self._imported[module] = record
        search_as_before = search(record.path) if record.path is not None else lambda: None
        undo = runtime.forget_modules() if before is not record or _is_stale(record) else None

        def restore() -> None:
            search_as_before()
            self._imported[module] = before if undo is not None else None  # None: only a part was imported
            if undo is not None:
                undo()

        return restore

    async def _open_providers(self, loaded: LoadedPlugin) -> None:
        """Make the providers of a plugin's services, on a thread with a deadline; nothing is offered yet.

        Those of the host's own plugins are made at their first call, so that a start need not import all of them.
        """
        name, first_party, declared = loaded.record.name, loaded.record.first_party, loaded.declarations
        for info in (*declared.services, *declared.overrides):
            provider = Provider(name, info.handler, info.service, info.version, in_flight=loaded.in_flight)
            provider.override = info in declared.overrides
            original = {"original": loaded.views.original(provider)} if provider.override else {}
            open_it = partial(loaded.runtime.open, info.handler, **original)
            if first_party and not provider.override:
                provider.opening = open_it
            else:
                provider.report = None if first_party else self._kernel.dispatcher.report
                what = f"making {info.service} of {name}"
                provider.instance = await run_in_thread(open_it, deadline=OPEN_DEADLINE, what=what)
            if provider.instance is None or hasattr(provider.instance, "close"):
                loaded.ledger.add("instance", info.service, provider.close)
            loaded.providers.append(provider)

    def activate(self, loaded: LoadedPlugin) -> None:
        """Offer everything that was admitted, in place of the load that was active before.

        At no moment is neither of them active. The caller updates the hooks.
        """
        name, declarations, ledger = loaded.record.name, loaded.declarations, loaded.ledger
        if (before := self.active.get(name)) is not None:
            self.deactivate(before)
        self._loading.discard(loaded)
        self.active[name] = loaded
        self.provide(loaded)
        for provider in loaded.providers:
            if provider.override:
                ledger.add("override", provider.service, self._kernel.services.add(provider), offer=True)
        answer = LoadedHookResult(None, loaded.runtime, loaded.context, loaded.in_flight)
        for route in declarations.routes:
            call = partial(answer.call, route.handler)
            one = Registered(name, route, call, loaded.runtime.schema, loaded.record.first_party)
            self._registrations.add(one, ledger)
        for command in declarations.commands:
            start = partial(_start, loaded, command.handler)
            self._registrations.add(Registered(name, command, start, loaded.runtime.schema), ledger)
        for declaration in declarations.ui:
            ledger.add(f"ui {declaration.kind}", declaration.target, lambda: None, offer=True)

    def provide(self, loaded: LoadedPlugin) -> None:
        """Offer what a plugin publishes and the services that it provides, unless that was done before."""
        if loaded.is_provided:
            return
        loaded.is_provided = True
        declarations, ledger = loaded.declarations, loaded.ledger
        if declarations.published.hooks or declarations.published.interfaces:
            undo = self._kernel.dispatcher.catalogue.publish(loaded.record.name, declarations.published)
            published = ", ".join([*declarations.published.interfaces, *declarations.published.hooks])
            ledger.add("published", published, undo)
        for provider in loaded.providers:
            if not provider.override:
                ledger.add("service", provider.service, self._kernel.services.add(provider), offer=True)

    async def start(self, loaded: LoadedPlugin) -> None:
        """Make a plugin's data folder and call its `tavern_startup`. Raises what that raises."""
        began = time.perf_counter()
        loaded.context.data_dir.mkdir(parents=True, exist_ok=True)
        for implementation in loaded.implementations:
            if implementation.info.hook == "tavern_startup":
                await self._kernel.dispatcher.call_one(implementation, {})
        loaded.started = True
        loaded.record.timings["start"] = (time.perf_counter() - began) * 1000

    # --- unloading -----------------------------------------------------------------------------------

    def deactivate(self, loaded: LoadedPlugin) -> None:
        """Offer nothing of a load any more. The caller updates the hooks."""
        if self.active.get(loaded.record.name) is loaded:
            del self.active[loaded.record.name]
        loaded.views.pin()
        for entry, failure in loaded.ledger.withdraw():
            self._kernel.dispatcher.report(loaded.record.name, f"taking back its {entry.kind} {entry.name}", failure)

    def revoke(self, loaded: LoadedPlugin) -> None:
        """Deactivate a load, and let it reach no service from now on."""
        self.deactivate(loaded)
        loaded.views.revoke()

    async def unload(self, loaded: LoadedPlugin) -> None:
        """Shut a load down within its deadline, then release all that it owns; work in flight is not waited for."""
        self.deactivate(loaded)
        await self.shut_down(loaded)
        await self._release(loaded)

    async def shut_down(self, loaded: LoadedPlugin) -> None:
        """Call `tavern_shutdown` of a load that was started, once, within its deadline."""
        implementations, loaded.started = loaded.implementations if loaded.started else [], False
        for implementation in implementations:
            if implementation.info.hook == "tavern_shutdown":
                try:
                    await self._kernel.dispatcher.call_one(implementation, {}, deadline=SHUTDOWN_DEADLINE)
                except Exception as error:
                    self._kernel.dispatcher.report(loaded.record.name, "tavern_shutdown", error)

    async def _release(self, loaded: LoadedPlugin) -> None:
        loaded.in_flight.start_closing()
        for provider in loaded.providers:
            self._kernel.services.end(provider)
        loaded.views.revoke()
        loaded.settings.close()
        try:
            for entry, failure in await loaded.ledger.remove(deadline=SHUTDOWN_DEADLINE):
                self._kernel.dispatcher.report(loaded.record.name, f"closing its {entry.kind} {entry.name}", failure)
        finally:
            loaded.in_flight.close()
            loaded.runtime.unload()
            self._loading.discard(loaded)

    # --- draining ------------------------------------------------------------------------------------

    def drain(self, loads: Iterable[LoadedPlugin]) -> None:
        """Let the work in flight of deactivated loads end, up to a deadline, and then unload them, in the background.

        Those that require others come first in `loads`, and are unloaded before them.
        """
        for loaded in loads:
            name = loaded.record.name
            dependents = [task for task, other in self._draining.items() if name in other.record.required]
            task = asyncio.create_task(self._drain(loaded, dependents), name=f"draining {name}")
            self._draining[task] = loaded
            task.add_done_callback(self._drain_done)

    def _drain_done(self, task: asyncio.Task[None]) -> None:
        loaded = self._draining.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._kernel.dispatcher.report(loaded.record.name, "being unloaded", error)

    async def _drain(self, loaded: LoadedPlugin, dependents: list[asyncio.Task[None]]) -> None:
        if not await self._wait_idle(loaded):
            await self._interrupt([loaded])
        if dependents:
            await asyncio.wait(dependents)
        await self.unload(loaded)

    async def _wait_idle(self, loaded: LoadedPlugin) -> bool:
        """Wait until nothing of a load is in flight, apart from the requester; return whether it was in time."""
        timer = asyncio.timeout(0 if self._kernel.is_stopping else DRAIN_DEADLINE)
        self._drain_timers.add(timer)
        try:
            async with timer:
                await loaded.in_flight.wait_idle()
        except TimeoutError:
            return False
        finally:
            self._drain_timers.discard(timer)
        return True

    async def _interrupt(self, loads: Sequence[LoadedPlugin]) -> None:
        """Cancel everything that is in flight in these loads, calls last, and give it a moment to end."""
        for calls in (False, True):
            asked = [one.in_flight.cancel(calls=calls, report=self._kernel.dispatcher.report) for one in loads]
            if any(asked):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CANCEL_GRACE):
                        for loaded in loads:
                            await loaded.in_flight.wait_idle()

    async def drained(self, name: str | None = None) -> None:
        """Wait for the loads of a plugin, or of all, that drain."""
        me = asyncio.current_task()
        tasks = [t for t, loaded in self._draining.items() if t is not me and name in (None, loaded.record.name)]
        if tasks:
            await asyncio.wait(tasks)

    def in_flight(self) -> int:
        """Return how much work is in flight in all loads."""
        return sum(loaded.in_flight.count for loaded in self.loads())

    def begin_draining(self) -> int:
        """Tell plugins that the host will stop, and return how much work is in flight."""
        self._kernel.is_draining = True
        return self.in_flight()

    def stop_waiting(self) -> None:
        """Let draining loads, now and later, wait no longer for their work in flight."""
        self._kernel.is_stopping = True
        for timer in tuple(self._drain_timers):
            expire(timer)

    async def interrupt_active(self) -> None:
        """Cancel the work in flight of the active plugins, and give it a moment to end."""
        await self._interrupt(list(self.active.values()))


def _start(loaded: LoadedPlugin, handler: str, arguments: Any) -> Any:
    return call_of(loaded.runtime, loaded.in_flight, handler)(handler, arguments, loaded.context)


def _is_stale(record: Record) -> bool:
    """Return whether the process has imported a package out of the folder of another version."""
    places = getattr(sys.modules.get(record.module or ""), "__path__", None)
    return record.path is not None and places is not None and str(record.root) not in list(places)


def _check_imported(record: Record) -> None:
    """Raise `AdmissionError` for a package that brings another version of what the process has imported."""
    found = imported_otherwise(record.path, record.module or "") if record.path is not None else []
    record.pending_restart = bool(found)
    if found:
        message = f"pending restart: {', '.join(found)} was upgraded while the host ran"
        raise AdmissionError(message, [Problem(message=message, hint="restart the host")], plugin=record.name)


def _source(record: Record, catalogue: Catalogue) -> PluginSource:
    """Return a plugin as a runtime needs it; modules that its manifest names are collected by hook."""
    entries = {}
    for hook, kind in catalogue.collected().items():
        declared = getattr(record.manifest, catalogue.hooks[hook].field or "", None)
        if declared is not None and kind.collector is not None:
            options = declared.model_dump(exclude={"entry"}, exclude_none=True)
            entries[hook] = Entry(declared.entry, kind.collector, options)
    source = PluginSource(record.name, record.module, record.root, record.reviewed, record.first_party, entries)
    assert record.manifest is not None
    came, _, distribution = record.source.partition(":")
    return replace(
        source,
        path=record.path,
        distribution=distribution if came in ("entry-point", "package") else None,
        placement=record.placement,
        needs=record.manifest.runtime,
        publishes=record.manifest.publishes.names,
    )
