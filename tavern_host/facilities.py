"""The parts of a `PluginContext`, each attributed to one plugin and closed with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tavern_host.context import Contribution, PluginContext, Project
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Forbidden, describe
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


class PluginServices:
    """Views of services; see `context.Services`."""

    def __init__(self, plugin: str, registry: ServiceRegistry) -> None:
        self._plugin = plugin
        self._registry = registry

    def get(self, key: ServiceKey[Any]) -> Any:
        """Return this plugin's view of a service."""
        return self._registry.view(self._plugin, key)

    def has(self, key: ServiceKey[Any]) -> bool:
        """Return whether somebody provides the service."""
        return self._registry.provider_of(key.name) is not None

    async def invoke(self, service: str, method: str, arguments: Mapping[str, Any], *, call: CallContext) -> Any:
        """Call a method by name with JSON arguments."""
        return await self._registry.invoke(self._plugin, service, method, arguments, call)


class PluginEvents:
    """The event bus; see `context.Events`."""

    def __init__(self, plugin: str, bus: EventBus, ledger: Ledger) -> None:
        self._plugin = plugin
        self._bus = bus
        self._ledger = ledger

    def publish(self, type: str, payload: Mapping[str, Any]) -> Event:
        """Publish an event in the plugin's name."""
        return self._bus.publish(type, payload, plugin=self._plugin)

    def subscribe(self, *types: str, since: int | None = None, limit: int = 1024) -> BusSubscription:
        """Subscribe; the subscription ends with the plugin."""
        subscription = self._bus.subscribe(*types, since=since, limit=limit)
        forget = self._ledger.add(self._plugin, "subscription", ", ".join(types) or "*", subscription.close)
        subscription.on_close(forget)
        return subscription


class PluginTasks:
    """Background tasks; see `context.Tasks`."""

    def __init__(self, plugin: str, ledger: Ledger, report: Callable[[str, str, BaseException], None]) -> None:
        self._plugin = plugin
        self._ledger = ledger
        self._report = report

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task that is cancelled with the plugin."""
        task = asyncio.create_task(coroutine, name=f"{self._plugin}: {name}")

        async def cancel() -> None:
            task.cancel()
            await asyncio.wait([task], timeout=5)

        forget = self._ledger.add(self._plugin, "task", name, cancel)

        def done(finished: asyncio.Task[T]) -> None:
            forget()
            if not finished.cancelled() and finished.exception() is not None:
                self._report(self._plugin, f"task {name}", finished.exception())  # type: ignore[arg-type]

        task.add_done_callback(done)
        return task


class PluginHttp:
    """Outgoing HTTP; see `context.Http`."""

    def __init__(self, plugin: str, ledger: Ledger) -> None:
        self._plugin = plugin
        self._ledger = ledger
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the plugin's client session."""
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
        declared: Callable[[str], list[Answer]],
    ) -> None:
        self._plugin = plugin
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
    declared: Callable[[str], list[Answer]],
    report: Callable[[str, str, BaseException], None],
) -> PluginContext:
    """Return a plugin's context. Its data folder is made when the plugin is started."""
    return PluginContext(
        plugin=plugin,
        project=project,
        services=PluginServices(plugin, registry),
        settings=settings,
        log=logging.getLogger(f"tavern.plugin.{plugin}"),
        data_dir=project.private / "plugins" / plugin,
        events=PluginEvents(plugin, bus, ledger),
        tasks=PluginTasks(plugin, ledger, report),
        http=PluginHttp(plugin, ledger),
        hooks=PluginHooks(plugin, dispatcher, registry, declared),
    )


def log_failure(log: logging.Logger, plugin: str, where: str, error: BaseException) -> None:
    """Write a plugin's failure into the log, with its traceback."""
    log.error("%s failed in %s: %s", plugin, where, describe(error), exc_info=error)
