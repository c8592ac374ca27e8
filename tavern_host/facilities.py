"""The parts of a `PluginContext`, each attributed to one plugin and closed with it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from tavern_host.context import Contribution, PluginContext, Project
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Forbidden, PermissionDenied, describe
from tavern_host.contracts.events import Event
from tavern_host.contracts.services import ServiceKey
from tavern_host.dispatch import Answer, Dispatcher
from tavern_host.events import BusSubscription, EventBus
from tavern_host.hookspecs import hooks
from tavern_host.ledger import Ledger
from tavern_host.services import ServiceRegistry
from tavern_host.settings import PluginSettings

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")


class Lease:
    """Whether a plugin may still use what it was given; ended when it is unloaded, for good.

    A plugin may keep its context; with the lease every facility in it stops. One that is loaded again
    gets a new context. While what it has is being closed, it can publish events and nothing else.
    """

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._is_closing = False
        self._is_over = False

    def close(self) -> None:
        """Let nothing be had any more but events published, which say how things ended."""
        self._is_closing = True

    def end(self) -> None:
        """End it."""
        self._is_closing = self._is_over = True

    def check(self, *, while_closing: bool = False) -> None:
        """Raise `PermissionDenied` once it has ended, or is closed unless `while_closing` is allowed."""
        if self._is_over or (self._is_closing and not while_closing):
            raise PermissionDenied(f"{self._plugin} is not loaded any more", plugin=self._plugin)


class PluginServices:
    """Views of services; see `context.Services`."""

    def __init__(self, plugin: str, registry: ServiceRegistry, lease: Lease) -> None:
        self._plugin = plugin
        self._registry = registry
        self._lease = lease

    def get(self, key: ServiceKey[Any]) -> Any:
        """Return this plugin's view of a service."""
        self._lease.check()
        return self._registry.view(self._plugin, key)

    def has(self, key: ServiceKey[Any]) -> bool:
        """Return whether somebody provides the service."""
        return self._registry.provider_of(key.name) is not None

    async def invoke(self, service: str, method: str, arguments: Mapping[str, Any], *, call: CallContext) -> Any:
        """Call a method by name with JSON arguments."""
        self._lease.check()
        return await self._registry.invoke(self._plugin, service, method, arguments, call)


class PluginEvents:
    """The event bus; see `context.Events`."""

    def __init__(self, plugin: str, bus: EventBus, ledger: Ledger, lease: Lease) -> None:
        self._plugin = plugin
        self._bus = bus
        self._ledger = ledger
        self._lease = lease

    def publish(self, type: str, payload: Mapping[str, Any]) -> Event:
        """Publish an event in the plugin's name."""
        self._lease.check(while_closing=True)
        return self._bus.publish(type, payload, plugin=self._plugin)

    def subscribe(self, *types: str, since: int | None = None, limit: int = 1024) -> BusSubscription:
        """Subscribe; the subscription ends with the plugin."""
        self._lease.check()
        subscription = self._bus.subscribe(*types, since=since, limit=limit)
        forget = self._ledger.add(self._plugin, "subscription", ", ".join(types) or "*", subscription.close)
        subscription.on_close(forget)
        return subscription


class PluginTasks:
    """Background tasks; see `context.Tasks`."""

    def __init__(
        self, plugin: str, ledger: Ledger, lease: Lease, report: Callable[[str, str, BaseException], None]
    ) -> None:
        self._plugin = plugin
        self._ledger = ledger
        self._lease = lease
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task that is cancelled with the plugin; on any thread, such as that of a `def` hook."""
        if threading.get_ident() == self._thread:
            return self._spawn(coroutine, name)
        started: Future[asyncio.Task[T]] = Future()

        def start() -> None:
            try:
                started.set_result(self._spawn(coroutine, name))
            except Exception as error:
                started.set_exception(error)

        self._loop.call_soon_threadsafe(start)
        return started.result()

    def _spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        try:
            self._lease.check()
        except PermissionDenied:
            coroutine.close()
            raise
        task = asyncio.create_task(coroutine, name=f"{self._plugin}: {name}")

        async def cancel() -> None:
            if task is asyncio.current_task():
                return  # it is this task that unloads its plugin, and it ends with that
            task.cancel()
            await asyncio.wait([task])

        forget = self._ledger.add(self._plugin, "task", name, cancel)

        def done(finished: asyncio.Task[T]) -> None:
            forget()
            if not finished.cancelled() and finished.exception() is not None:
                self._report(self._plugin, f"task {name}", finished.exception())  # type: ignore[arg-type]

        task.add_done_callback(done)
        return task


class PluginHttp:
    """Outgoing HTTP; see `context.Http`."""

    def __init__(self, plugin: str, ledger: Ledger, lease: Lease) -> None:
        self._plugin = plugin
        self._ledger = ledger
        self._lease = lease
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the plugin's client session."""
        self._lease.check()
        if self._session is None or self._session.closed:
            import aiohttp

            self._session = aiohttp.ClientSession()
            self._ledger.add(self._plugin, "http-session", "client", self._session.close)
        return self._session


class PluginHooks:
    """Hook calls; see `context.Hooks`."""

    def __init__(
        self,
        plugin: str,
        dispatcher: Dispatcher,
        registry: ServiceRegistry,
        lease: Lease,
        declared: Callable[[str], list[Answer]],
    ) -> None:
        self._plugin = plugin
        self._lease = lease
        self._dispatcher = dispatcher
        self._registry = registry
        self._declared = declared

    @property
    def revision(self) -> int:
        """Grows whenever the set of active plugins changes."""
        return self._dispatcher.revision

    def implemented(self, hook: str) -> bool:
        """Return whether anybody implements the hook."""
        return self._dispatcher.implemented(hook)

    async def collect(self, hook: str, **arguments: Any) -> list[Contribution[Any]]:
        """Return all answers, those that manifests declare first."""
        self._check(hook)
        return [*self._declared(hook), *await self._dispatcher.collect(hook, arguments)]

    async def first(self, hook: str, **arguments: Any) -> Contribution[Any] | None:
        """Return the first answer that is not None."""
        self._check(hook)
        return await self._dispatcher.first(hook, arguments)

    async def filter(self, hook: str, value: T, **arguments: Any) -> T:
        """Pass a value through every implementation."""
        self._check(hook)
        return await self._dispatcher.filter(hook, value, arguments)

    def _check(self, hook: str) -> None:
        self._lease.check()
        spec = hooks().get(hook)
        if spec is None or not self._registry.provides(self._plugin, spec.caller):
            who = f"the provider of {spec.caller}" if spec is not None else "nobody"
            raise Forbidden(f"{self._plugin} may not call {hook}: only {who} may")


def make_context(
    *,
    plugin: str,
    project: Project,
    registry: ServiceRegistry,
    settings: PluginSettings,
    bus: EventBus,
    ledger: Ledger,
    dispatcher: Dispatcher,
    lease: Lease,
    declared: Callable[[str], list[Answer]],
    report: Callable[[str, str, BaseException], None],
) -> PluginContext:
    """Return a plugin's context. Its data folder is made when the plugin is started."""
    return PluginContext(
        plugin=plugin,
        project=project,
        services=PluginServices(plugin, registry, lease),
        settings=settings,
        log=logging.getLogger(f"tavern.plugin.{plugin}"),
        data_dir=project.private / "plugins" / plugin,
        events=PluginEvents(plugin, bus, ledger, lease),
        tasks=PluginTasks(plugin, ledger, lease, report),
        http=PluginHttp(plugin, ledger, lease),
        hooks=PluginHooks(plugin, dispatcher, registry, lease, declared),
    )


def log_failure(log: logging.Logger, plugin: str, where: str, error: BaseException) -> None:
    """Write a plugin's failure into the log, with its traceback."""
    log.error("%s failed in %s: %s", plugin, where, describe(error), exc_info=error)
