"""The parts of a `PluginContext`, each attributed to one plugin and closed with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tavern_host.audit.log import AuditLog, PluginAudit
from tavern_host.common.event_types import check_permitted
from tavern_host.common.proxies import ProxySettings, proxy_for, proxy_variables
from tavern_host.context import HookResult, PluginContext, Project
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import handler_of
from tavern_host.contracts.errors import Forbidden, PermissionDenied, one_line
from tavern_host.contracts.events import Event
from tavern_host.contracts.manifest import EventPermissions
from tavern_host.contracts.plugins import Problem
from tavern_host.events.bus import WAITING, BusSubscription, EventBus
from tavern_host.hooks.catalogue import owner
from tavern_host.hooks.dispatch import Dispatcher, LoadedHookResult
from tavern_host.runtime.deadline import contained
from tavern_host.runtime.in_flight import InFlight, requester
from tavern_host.runtime.ledger import Ledger
from tavern_host.runtime.threads import GRACE
from tavern_host.services.registry import ServiceRegistry, Views
from tavern_host.settings.store import PluginSettings
from tavern_host.storage.blobs import BlobStore

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp

T = TypeVar("T")


class PluginEvents:
    """The event bus; see `context.Events`. `permissions` are the event patterns that the plugin was granted. What a
    plugin reads is a copy, but for the host's own plugins, which change nothing in it."""

    def __init__(
        self, bus: EventBus, ledger: Ledger, in_flight: InFlight, permissions: EventPermissions, *, copies: bool
    ) -> None:
        self._copies = copies
        self._plugin = in_flight.plugin
        self._bus = bus
        self.is_read = bus.is_read
        self._ledger = ledger
        self._in_flight = in_flight
        self.permissions = permissions
        self._may_publish = lru_cache(partial(self._check, "publish"))  # of plain texts, as the bus asks for them

    def publish(self, type: str, payload: Mapping[str, Any]) -> Event:
        """Publish an event in the plugin's name."""
        if self._in_flight.is_closed:
            raise self._in_flight.refusal()
        self._check("publish", type)
        return self._bus.publish(type, payload, plugin=self._plugin)

    def publish_all(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Publish events in the plugin's name."""
        if self._in_flight.is_closed:
            raise self._in_flight.refusal()
        self._bus.publish_all(events, plugin=self._plugin, may_publish=self._may_publish)

    def subscribe(self, *types: str, since: int | None = None, limit: int = WAITING) -> BusSubscription:
        """Subscribe; the subscription ends with the plugin."""
        self._in_flight.check()
        for wanted in types or ("*",):
            self._check("subscribe", wanted)
        subscription = self._bus.subscribe(*types, since=since, limit=limit, copy=self._copies)
        subscription.on_close = self._ledger.add("subscription", ", ".join(types) or "*", subscription.close)
        return subscription

    def _check(self, what: Literal["publish", "subscribe"], type: str) -> None:
        check_permitted(self._plugin, self.permissions, what, type)


class PluginTasks:
    """Background tasks; see `context.Tasks`."""

    def __init__(
        self, ledger: Ledger, in_flight: InFlight, report: Callable[[str, str, BaseException], object]
    ) -> None:
        self._plugin = in_flight.plugin
        self._ledger = ledger
        self._in_flight = in_flight
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str, finish: bool = False) -> asyncio.Task[T]:
        """Start a task that is cancelled with the plugin; on any thread, such as that of a `def` hook."""
        if threading.get_ident() == self._thread:
            return self._spawn(coroutine, name, finish)

        async def start() -> asyncio.Task[T]:
            return self._spawn(coroutine, name, finish)

        return asyncio.run_coroutine_threadsafe(start(), self._loop).result()

    def _spawn(self, coroutine: Coroutine[Any, Any, T], name: str, finish: bool) -> asyncio.Task[T]:
        try:
            self._in_flight.check()
        except PermissionDenied:
            coroutine.close()
            raise
        what = f"the task {name} of {self._plugin}"
        task = asyncio.create_task(contained(coroutine, what), name=f"{self._plugin}: {name}")

        def cancel() -> None:
            if task is requester():  # it has its own plugin unloaded, and gets the outcome
                task.get_loop().call_later(GRACE, task.cancel)
            else:
                task.cancel()

        async def ended() -> None:
            if task is not requester():
                await asyncio.wait([task])

        forget = self._ledger.add("task", name, ended, interrupt=cancel)
        uses = contextlib.ExitStack()
        if finish:
            uses.enter_context(self._in_flight.use_elsewhere(task.cancel))

        def done(finished: asyncio.Task[T]) -> None:
            coroutine.close()  # it was never started, if the task was cancelled at once
            forget()
            uses.close()
            if not finished.cancelled() and finished.exception() is not None:
                self._report(self._plugin, f"task {name}", finished.exception())  # type: ignore[arg-type]

        task.add_done_callback(done)
        return task


class PluginHttp:
    """Outgoing HTTP; see `context.Http`."""

    def __init__(self, ledger: Ledger, in_flight: InFlight, kernel: Kernel) -> None:
        self._ledger = ledger
        self._in_flight = in_flight
        self._kernel = kernel
        self._session: aiohttp.ClientSession | None = None
        self._forget: Callable[[], None] = lambda: None

    def session(self) -> aiohttp.ClientSession:
        """Return the plugin's client session."""
        self._in_flight.check()
        if self._session is None or self._session.closed:
            import aiohttp

            from tavern_host.runtime.proxied_http import ProxiedConnector

            self._session = aiohttp.ClientSession(connector=ProxiedConnector(self.proxy))
            self._forget()  # the plugin has closed the one before
            self._forget = self._ledger.add("http-session", "client", self._session.close)
        return self._session

    def proxy(self, address: str) -> str | None:
        """Return the proxy for an address."""
        return proxy_for(address, self._kernel.proxies())

    def proxy_variables(self) -> dict[str, str]:
        """Return the variables of proxies for a program."""
        return proxy_variables(self._kernel.proxies())


class PluginHooks:
    """Hook calls; see `context.Hooks`."""

    def __init__(self, in_flight: InFlight, kernel: Kernel, views: Views) -> None:
        self._plugin = in_flight.plugin
        self._views = views
        self._in_flight = in_flight
        self._dispatcher = kernel.dispatcher
        self.implemented = kernel.dispatcher.implemented
        self._kernel = kernel
        self._imported: set[str] = set()

    @property
    def revision(self) -> int:
        """Grows whenever the set of active plugins changes."""
        return self._dispatcher.revision

    async def collect(self, hook: str, **arguments: Any) -> list[HookResult[Any]]:
        """Return all answers, in the order in which the plugins were loaded."""
        self._check(hook, arguments)
        if hook not in self._imported:
            await asyncio.to_thread(self._kernel.declared, hook)  # imports many modules
            self._imported.add(hook)
        answers = await self._dispatcher.collect(hook, arguments)
        for answer in answers:
            self._leave_out(hook, answer)
        answers += self._kernel.declared(hook)
        places = self._dispatcher.places
        return sorted(answers, key=lambda answer: places.get(answer.plugin, len(places)))

    def _leave_out(self, hook: str, answer: LoadedHookResult) -> None:
        """Leave what names a handler that is not there out of an answer, and report it against the plugin; the answer
        of a load that was replaced meanwhile stays as it is."""
        for made in self._dispatcher.implementations(hook):
            is_same = made.info.plugin == answer.plugin and made.in_flight.code == answer.code
            if is_same and (wrong := made.runtime.handler_problems(answer.value)):
                answer.value = [item for item in answer.value if handler_of(item) not in wrong]
                for problem in wrong.values():
                    at = {"file": made.info.file, "line": made.info.line}
                    self._dispatcher.tell(answer.plugin, problem.model_copy(update=at))

    def claim(self, owners: dict[str, str], kind: str, name: str, plugin: str) -> bool:
        """Note the owner of a name, or report the plugin that comes later; return whether it is the first."""
        first = owners.get(name)
        if first is None:
            owners[name] = plugin
            return True
        if first == plugin:
            self.report(plugin, f"the {kind} {name!r} is registered twice; the first is used", hint="remove one")
        else:
            message = f"the {kind} {name!r} is not used: it is {first}'s already, and {first} keeps it"
            self.report(plugin, message, hint="choose another name")
        return False

    async def first(self, hook: str, **arguments: Any) -> HookResult[Any] | None:
        """Return the first answer that is not None."""
        self._check(hook, arguments)
        return await self._dispatcher.first(hook, arguments)

    async def filter(self, hook: str, value: T, **arguments: Any) -> T:
        """Pass a value through every implementation."""
        self._check(hook, arguments)
        return await self._dispatcher.filter(hook, value, arguments)

    def report(self, plugin: str, message: str, **details: Any) -> None:
        """Report against a plugin that something that it contributed cannot be used; `details` are the hint and the
        place of the problem."""
        self._in_flight.check()
        if plugin != self._plugin and not self._kernel.services.provides(self._plugin):
            raise Forbidden(f"{self._plugin} may not report on {plugin}: it provides none of the host's services")
        self._dispatcher.tell(plugin, Problem(message=one_line(message), **details))

    def _check(self, hook: str, arguments: dict[str, Any]) -> None:
        self._in_flight.check()
        spec = self._dispatcher.catalogue.hooks.get(hook)
        caller = spec.caller if spec is not None else None
        provides = self._kernel.services.provides
        if caller is None or not (caller == owner(self._plugin) or provides(self._plugin, caller)):
            who = f"the provider of {caller}" if caller is not None else "nobody"
            raise Forbidden(f"{self._plugin} may not call {hook}: only {who} may")
        for name, value in arguments.items():
            if isinstance(value, CallContext):
                arguments[name] = self._views.context(value, hook)


@dataclass
class Kernel:
    """The parts of the kernel that plugins' facilities stand on."""

    project: Project
    operator_dir: Path
    services: ServiceRegistry
    dispatcher: Dispatcher
    bus: Callable[[], EventBus]
    declared: Callable[[str], list[LoadedHookResult]]
    serving: bool
    audit: AuditLog
    blobs: BlobStore
    proxies: Callable[[], ProxySettings | None]
    is_stopping: bool = False
    is_draining: bool = False


def make_context(
    kernel: Kernel,
    in_flight: InFlight,
    ledger: Ledger,
    views: Views,
    settings: PluginSettings,
    events: EventPermissions,
) -> PluginContext:
    """Return a plugin's context. Its data folder is made when the plugin is started."""
    plugin = in_flight.plugin
    return PluginContext(
        plugin=plugin,
        project=kernel.project,
        services=views,
        settings=settings,
        log=logging.getLogger(f"tavern.plugin.{plugin}"),
        data_dir=kernel.project.private / "plugins" / plugin,
        operator_dir=kernel.operator_dir / "plugins" / plugin,
        events=PluginEvents(kernel.bus(), ledger, in_flight, events, copies=not views.first_party),
        audit=PluginAudit(kernel.audit, in_flight, partial(kernel.services.provides, plugin), views.context),
        tasks=PluginTasks(ledger, in_flight, kernel.dispatcher.report),
        http=PluginHttp(ledger, in_flight, kernel),
        hooks=PluginHooks(in_flight, kernel, views),
        blobs=kernel.blobs.of(plugin, partial(in_flight.check, while_closing=True)),
        serving=kernel.serving,
        is_stopping=lambda: kernel.is_stopping,
        is_draining=lambda: kernel.is_draining or kernel.is_stopping,
        _when_unloaded=ledger.add,
    )
