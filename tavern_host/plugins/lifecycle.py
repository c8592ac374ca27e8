"""Loads, registers, starts and takes out single plugins. Which ones and when is the manager's to say.

A plugin that is taken out first stops being offered, then finishes what is under way, then is shut down and
everything that it owns is taken back; meanwhile another load of it may be in its place already.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from tavern_host.context.facilities import Kernel, make_context
from tavern_host.contracts.errors import PluginFailure, TavernError
from tavern_host.contracts.http import HttpResponse, MessageInfo, RouteInfo, SocketReply
from tavern_host.contracts.services import ServiceInfo
from tavern_host.hooks.dispatch import Answer
from tavern_host.plugins.admission import admit
from tavern_host.plugins.discovery import Record
from tavern_host.plugins.loaded import LoadedPlugin, source_of
from tavern_host.plugins.manifest import Manifest
from tavern_host.plugins.registrations import Registered, Registrations
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.in_flight import InFlight, expire
from tavern_host.runtime.in_process import PluginRuntime
from tavern_host.runtime.ledger import Ledger
from tavern_host.runtime.threads import run_in_thread
from tavern_host.services.calls import Provider
from tavern_host.settings.store import SettingsStore

IMPORT_DEADLINE = 30.0
OPEN_DEADLINE = 10.0
SHUTDOWN_DEADLINE = 5.0
DRAIN_DEADLINE = 10.0
CANCEL_GRACE = 1.0
"""Seconds for importing a plugin, for making one provider, for its shutdown, to finish what is under way, and to
end what was cancelled."""


class Lifecycle:
    """All loads of plugins in one host: those in use, by name, those on their way in, and those on their way out."""

    def __init__(
        self, kernel: Kernel, boundary: Boundary, settings: SettingsStore, registrations: Registrations
    ) -> None:
        self._kernel = kernel
        self._boundary = boundary
        self._settings = settings
        self._registrations = registrations
        self._coming: set[LoadedPlugin] = set()
        self._draining: dict[asyncio.Task[None], LoadedPlugin] = {}
        self._drain_timers: set[asyncio.Timeout] = set()
        self._is_in_a_hurry = False
        self._imported: dict[str, Record | None] = {}
        self._counts: Counter[str] = Counter()
        self.active: dict[str, LoadedPlugin] = {}

    def loads(self) -> list[LoadedPlugin]:
        """Return all loads, those in use first."""
        return [*self.active.values(), *self._coming, *self._draining.values()]

    def loads_of(self, name: str) -> list[LoadedPlugin]:
        """Return all loads of a plugin, that in use first."""
        return [loaded for loaded in self.loads() if loaded.record.name == name]

    # --- coming -----------------------------------------------------------------------------------

    async def load(self, record: Record) -> LoadedPlugin:
        """Import a plugin and look at all that it wants to register; nothing of it is offered yet.

        The code of an installed package is read anew where it was imported for another record. Raises
        `AdmissionError`, `DeadlineExceeded`, or what importing raised.
        """
        manifest = record.manifest
        assert manifest is not None
        in_flight, ledger = InFlight(record.name, self._code_name(record, manifest)), Ledger()
        granted = frozenset(p.name for p in record.permissions if p.granted)
        views = self._kernel.services.views(record.name, granted.__contains__)
        settings = self._settings.of(manifest)
        context = make_context(
            self._kernel,
            in_flight=in_flight,
            ledger=ledger,
            views=views,
            settings=settings,
            events=manifest.permissions.events,
        )
        runtime = self._boundary.runtime(source_of(record, self._kernel.dispatcher.catalogue), context)
        loaded = LoadedPlugin(record, manifest, runtime, context, in_flight, ledger, views, settings, granted)
        self._coming.add(loaded)
        restore = self._read_anew(record, runtime)
        began = time.perf_counter()
        try:
            await run_in_thread(runtime.load, deadline=IMPORT_DEADLINE, what=f"importing {record.name}")
            record.timings["import"] = (time.perf_counter() - began) * 1000
            await admit(loaded, self._kernel.dispatcher, self._kernel.services, self._registrations)
            await self._open_providers(loaded)
        except BaseException:
            await self._take_back(loaded)
            restore()
            raise
        finally:
            record.timings["load"] = (time.perf_counter() - began) * 1000
        return loaded

    def _code_name(self, record: Record, manifest: Manifest) -> str:
        """Return what names the code of the load that begins; see `context.Contribution`.

        Nothing says what code of an installed package a later load reads, so that one has a name of its own for ever.
        """
        self._counts[record.name] += 1
        parts = [manifest.version]
        if record.code_hash is not None:
            parts.append(record.code_hash)
        if self._counts[record.name] > 1:
            parts.append(f"load {self._counts[record.name]}")
            if record.code_hash is None:
                parts.append(os.urandom(16).hex())
        return ", ".join(parts)

    def _read_anew(self, record: Record, runtime: PluginRuntime) -> Callable[[], None]:
        """Let the code of an installed package be read from its files if that which was imported is another record's;
        return what takes that back where the import fails."""
        module = record.module
        if module is None or record.first_party or record.source.startswith("embedded:"):
            return lambda: None
        before = self._imported.get(module, record)  # what somebody else has imported is as good
        self._imported[module] = record
        put_back = runtime.forget_modules() if before is not record else None

        def restore() -> None:
            self._imported[module] = before if put_back is not None else None  # None: only a part was imported
            if put_back is not None:
                put_back()

        return restore

    async def _open_providers(self, loaded: LoadedPlugin) -> None:
        """Make what provides a plugin's services, on a thread with a deadline; nothing is offered yet.

        What the host's own plugins provide is made when it is first called, so that a start need not import it all.
        """
        declared = loaded.declarations
        for info in (*declared.services, *declared.overrides):
            await self._open_provider(loaded, info, is_override=info in declared.overrides)

    async def _open_provider(self, loaded: LoadedPlugin, info: ServiceInfo, *, is_override: bool) -> None:
        name = loaded.record.name
        provider = Provider(
            name, info.handler, info.service, info.version, override=is_override, in_flight=loaded.in_flight
        )
        original = {"original": loaded.views.original(provider)} if is_override else {}
        open_it = functools.partial(loaded.runtime.open, info.handler, **original)
        if loaded.record.first_party and not is_override:
            provider.opening = open_it
        else:
            provider.report = None if loaded.record.first_party else self._kernel.report
            what = f"making {info.service} of {name}"
            provider.instance = await run_in_thread(open_it, deadline=OPEN_DEADLINE, what=what)
        if provider.instance is None or hasattr(provider.instance, "close"):
            loaded.ledger.add("instance", info.service, provider.close)
        loaded.providers.append(provider)

    def put_in(self, loaded: LoadedPlugin) -> None:
        """Offer everything that was admitted, in the place of the load that was offered before.

        Nobody sees a moment without either. The caller rebuilds the hooks.
        """
        before = self.active.get(loaded.record.name)
        if before is not None:
            self.withdraw(before)
        self._coming.discard(loaded)
        self.active[loaded.record.name] = loaded
        self.provide(loaded)
        declarations, ledger, name = loaded.declarations, loaded.ledger, loaded.record.name
        for provider in loaded.providers:
            if provider.override:
                ledger.add("override", provider.service, self._kernel.services.add(provider), offer=True)
        for route in declarations.routes:
            call = self._caller(loaded, route)
            if isinstance(route, RouteInfo):
                undo = self._registrations.add_route(Registered(name, route, call))
                ledger.add("route", f"{route.method} {route.path}", undo, offer=True)
            else:
                undo = self._registrations.add_message(Registered(name, route, call))
                ledger.add("message", route.type, undo, offer=True)
        for command in declarations.commands:
            undo = self._registrations.add_command(Registered(name, command, _starter(loaded, command.handler)))
            ledger.add("command", command.name, undo, offer=True)
        for declaration in declarations.ui:
            ledger.add(f"ui {declaration.kind}", declaration.target, lambda: None, offer=True)

    def provide(self, loaded: LoadedPlugin) -> None:
        """Offer what a plugin publishes, and the services that it provides, once."""
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

    def _caller(self, loaded: LoadedPlugin, info: RouteInfo | MessageInfo) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        """Return what calls the handler of a route or message; its own exceptions are reported at the plugin."""
        name, answer = loaded.record.name, Answer(None, loaded.runtime, loaded.context, loaded.in_flight)
        where = f"{info.method} {info.path}" if isinstance(info, RouteInfo) else f"the message {info.type}"

        async def call(argument: Any) -> Any:
            try:
                return _expected(info, await answer.call(info.handler, argument))
            except TavernError as error:
                if isinstance(error, PluginFailure):
                    self._kernel.report(name, where, error)
                raise
            except Exception as error:
                self._kernel.report(name, where, error)
                raise PluginFailure(f"{name} failed in {where}; the log says why", plugin=name) from None

        return call

    async def start(self, loaded: LoadedPlugin) -> None:
        """Make a plugin's data folder and call its `tavern_startup`. Raises what that raises."""
        began = time.perf_counter()
        loaded.context.data_dir.mkdir(parents=True, exist_ok=True)
        for implementation in loaded.implementations:
            if implementation.info.hook == "tavern_startup":
                await self._kernel.dispatcher.call_one(implementation, {})
        loaded.started = True
        loaded.record.timings["start"] = (time.perf_counter() - began) * 1000

    # --- going --------------------------------------------------------------------------------------

    def withdraw(self, loaded: LoadedPlugin) -> None:
        """Offer nothing of a load any more, from now on. The caller rebuilds the hooks."""
        if self.active.get(loaded.record.name) is loaded:
            del self.active[loaded.record.name]
        loaded.views.keep()
        for entry, failure in loaded.ledger.withdraw():
            self._kernel.report(loaded.record.name, f"taking back its {entry.kind} {entry.name}", failure)

    def retire(self, going: Iterable[LoadedPlugin]) -> None:
        """Let loads that were withdrawn finish what is under way, up to a deadline, then take them out.

        Those that require others come first in `going`, and go before them.
        """
        for loaded in going:
            name = loaded.record.name
            users = [task for task, other in self._draining.items() if name in other.manifest.requires.plugins]
            task = asyncio.create_task(self._drain(loaded, users), name=f"taking out {name}")
            self._draining[task] = loaded
            task.add_done_callback(self._drained)

    def _drained(self, task: asyncio.Task[None]) -> None:
        loaded = self._draining.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._kernel.report(loaded.record.name, "being taken out", error)

    async def _drain(self, loaded: LoadedPlugin, users: list[asyncio.Task[None]]) -> None:
        if not await self._idle(loaded, DRAIN_DEADLINE):
            await self._interrupt([loaded])
        if users:
            await asyncio.wait(users)
        await self.take_out(loaded)

    async def _idle(self, loaded: LoadedPlugin, deadline: float) -> bool:
        """Wait until nothing of a load is under way, what asked for this apart; return whether that came in time."""
        timer = asyncio.timeout(0 if self._is_in_a_hurry else deadline)
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
        """Ask everything that is under way in these loads to end, calls last, and give it a moment to do so."""
        for calls in (False, True):
            asked = [self._cancel_uses(loaded, calls=calls) for loaded in loads]
            if not any(asked):
                continue
            try:
                async with asyncio.timeout(CANCEL_GRACE):
                    for loaded in loads:
                        await loaded.in_flight.wait_idle()
            except TimeoutError:
                continue

    def _cancel_uses(self, loaded: LoadedPlugin, *, calls: bool) -> bool:
        """Ask what is in flight in a load to end; return whether there was anything to ask."""

        def report(error: Exception) -> None:
            self._kernel.report(loaded.record.name, "being interrupted", error)

        return loaded.in_flight.cancel(calls=calls, report=report)

    async def interrupt_all(self) -> None:
        """Ask everything that is under way in the plugins in use to end, and give it a moment to do so."""
        await self._interrupt(list(self.active.values()))

    def cut_off(self, loaded: LoadedPlugin) -> None:
        """Offer nothing of a load any more, and let it reach no service, from now on."""
        self.withdraw(loaded)
        loaded.views.revoke()

    async def take_out(self, loaded: LoadedPlugin) -> None:
        """Shut a load down within its deadline, then take back everything that it owns; nothing is waited for."""
        self.withdraw(loaded)
        if loaded.started:
            loaded.started = False
            for implementation in loaded.implementations:
                if implementation.info.hook == "tavern_shutdown":
                    try:
                        await self._kernel.dispatcher.call_one(implementation, {}, deadline=SHUTDOWN_DEADLINE)
                    except Exception as error:
                        self._kernel.report(loaded.record.name, "tavern_shutdown", error)
        await self._take_back(loaded)

    async def _take_back(self, loaded: LoadedPlugin) -> None:
        loaded.in_flight.start_closing()
        for provider in loaded.providers:
            self._kernel.services.end(provider)
        loaded.views.revoke()
        loaded.settings.close()
        try:
            for entry, failure in await loaded.ledger.remove(deadline=SHUTDOWN_DEADLINE):
                self._kernel.report(loaded.record.name, f"closing its {entry.kind} {entry.name}", failure)
        finally:
            loaded.in_flight.close()
            loaded.runtime.unload()
            self._coming.discard(loaded)

    async def drained(self, name: str | None = None) -> None:
        """Wait for the loads of a plugin, or of all, that are on their way out."""
        me = asyncio.current_task()
        tasks = [t for t, loaded in self._draining.items() if t is not me and name in (None, loaded.record.name)]
        if tasks:
            await asyncio.wait(tasks)

    def hurry(self) -> None:
        """Let the time of everything that is on its way out, now or later, be over."""
        self._is_in_a_hurry = True
        for timer in tuple(self._drain_timers):
            expire(timer)


def _expected(info: RouteInfo | MessageInfo, result: Any) -> Any:
    """Return what a handler answered, data as JSON. Raises `TypeError` or `ValueError` for what is no answer."""
    if isinstance(info, RouteInfo):
        if not isinstance(result, HttpResponse):
            raise TypeError(f"{info.handler} returned {type(result).__name__}, expected an HttpResponse")
        if result.body is None:
            try:
                return result.model_copy(update={"body": json.dumps(result.data, allow_nan=False).encode()})
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"{info.handler} returned data that is not JSON: {error}") from None
    elif not isinstance(result, list | tuple) or not all(isinstance(reply, SocketReply) for reply in result):
        raise TypeError(f"{info.handler} returned {type(result).__name__}, expected a list of SocketReply")
    return result


def _starter(loaded: LoadedPlugin, handler: str) -> Callable[[Any], Any]:
    def start(arguments: Any) -> Any:
        return loaded.runtime.call(handler, arguments, loaded.context)

    return start
