"""What a plugin in a process of its own is given: the same facilities, each a way to the host over the link.

Nothing is decided here: the host checks each call, event and name as it does for a plugin of its own process.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tavern_host import clock
from tavern_host.context import PluginContext, Project, ServiceMethod
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.services import ServiceKey
from tavern_host.runtime.codec import encode
from tavern_isolation.child.hooks import ChildHooks
from tavern_isolation.child.outside import ChildAudit, ChildBlobs, ChildHttp
from tavern_isolation.child.way import Way
from tavern_isolation.hello import EVENTS, INVOKE, Hello, HostState, SettingsState
from tavern_isolation.known import Known
from tavern_isolation.typed import Typed

T = TypeVar("T")


class Seen:
    """What the host last said of itself, and what plugins publish as it said."""

    def __init__(self, state: HostState, known: Known) -> None:
        self._known = known
        self.update(state)

    def update(self, state: HostState) -> None:
        """Take what the host says now."""
        self.state = state
        self._known.published = state.published


class ChildServices:
    """Views of services; see `context.Services`."""

    def __init__(self, way: Way, known: Known, seen: Seen) -> None:
        self._way = way
        self._known = known
        self._views: dict[str, tuple[type, Any]] = {}
        self._seen = seen

    def get(self, key: ServiceKey[Any] | str) -> Any:
        """Return the view of a service."""
        name = key if isinstance(key, str) else key.name
        if name not in self._seen.state.services:
            raise ServiceUnavailable(f"no plugin provides the service {name}")
        interface = self._known.interface(name) if isinstance(key, str) else key.interface
        if name not in self._views or self._views[name][0] is not interface:
            self._views[name] = interface, self._way.view(interface)
        return self._views[name][1]

    def has(self, key: ServiceKey[Any] | str) -> bool:
        """Return whether the service has a provider."""
        return (key if isinstance(key, str) else key.name) in self._seen.state.services

    async def invoke(self, service: str, method: str, arguments: Mapping[str, Any], *, call: CallContext) -> Any:
        """Call a method by name with JSON arguments."""
        head = {"service": service, "method": method}
        crossing = Typed(f"{service}.{method}", INVOKE, plugin=self._way.plugin)
        sent = {"arguments": dict(arguments), "call": call}
        return await crossing.call(self._way.link, self._way.lent, "invoke", head, sent)

    def method(self, service: str, method: str) -> ServiceMethod:
        """Return a function that calls a method by name: arguments and result are made JSON here, the host does the
        rest."""
        from tavern_host.runtime.json_calls import json_call

        return json_call(self._known.interface(service), method, self.get)


class ChildSettings:
    """The plugin's settings as the host last said; see `context.Settings`."""

    def __init__(self, state: SettingsState) -> None:
        self._state = state
        self._readers: list[asyncio.Queue[list[str]]] = []

    def update(self, state: SettingsState, keys: list[str]) -> None:
        """Take a new state, in which these keys changed."""
        self._state = state
        for reader in self._readers if keys else ():
            reader.put_nowait(list(keys))

    def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value in force."""
        layers = self._state.layers.get(key)
        return copy.deepcopy([*layers.values()][-1]) if layers else default

    def origin(self, key: str) -> str:
        """Return the layer that the value in force comes from."""
        layers = self._state.layers.get(key)
        return next(reversed(layers)) if layers else "default"

    def layers(self, key: str) -> dict[str, Any]:
        """Return a copy of the value of each layer that has one, lowest first."""
        return copy.deepcopy(self._state.layers.get(key, {}))

    def left_out(self, key: str) -> list[str]:
        """Return the layers that may have a value which cannot be used."""
        return list(self._state.left_out.get(key, ()))

    @property
    def revision(self) -> int:
        """Grows whenever a setting changes."""
        return self._state.revision

    @property
    def digest(self) -> str:
        """Differs whenever a value of this plugin's settings does."""
        return self._state.digest

    async def changes(self) -> AsyncIterator[list[str]]:
        """Yield the keys that changed, each time some did."""
        queue: asyncio.Queue[list[str]] = asyncio.Queue()
        self._readers.append(queue)
        try:
            while True:
                keys = await queue.get()
                while not queue.empty():
                    keys += queue.get_nowait()
                yield list(dict.fromkeys(keys))
        finally:
            self._readers.remove(queue)


class ChildEvents:
    """The event bus of the host; see `context.Events`."""

    def __init__(self, way: Way, check: Callable[[str, str], None]) -> None:
        self._way = way
        self._check = check

    def publish(self, type: str, payload: Mapping[str, Any]) -> Event:
        """Publish an event in the plugin's name. The host numbers it: the number here is 0."""
        self._check("publish", type)
        event = Event(seq=0, type=type, payload=dict(payload), plugin=self._way.plugin, time=clock.now())
        self._way.link.notify("publish", encode(event, Event))
        return event

    def publish_all(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Publish events in the plugin's name."""
        for type, payload in events:
            self.publish(type, payload)

    def is_read(self, type: str) -> bool:
        """Return True: only the host knows who subscribes."""
        return True

    def subscribe(self, *types: str, since: int | None = None, limit: int = 16_384) -> ChildSubscription:
        """Subscribe; the subscription ends with the plugin."""
        for wanted in types or ("*",):
            self._check("subscribe", wanted)
        head = json.dumps({"types": types, "since": since, "limit": limit}).encode()
        return ChildSubscription(self._way, head)


class ChildSubscription:
    """A subscription to events of the host, from the moment on at which it is made."""

    def __init__(self, way: Way, head: bytes) -> None:
        self._asked = asyncio.ensure_future(way.link.call("subscribe", head))
        self._crossing = Typed("events", EVENTS, plugin=way.plugin)

    async def __aiter__(self) -> AsyncIterator[Event | Gap]:
        async for event in self._crossing.stream_of(lambda: self._asked):
            yield event

    async def close(self) -> None:
        """End the subscription."""
        if self._asked.done() and not self._asked.cancelled() and self._asked.exception() is None:
            stream = self._asked.result()
            if not isinstance(stream, tuple):
                await stream.aclose()
        else:
            self._asked.cancel()


class ChildTasks:
    """Background tasks, each with one of the host that owns, lists and cancels it; see `context.Tasks`."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._running: dict[int, asyncio.Task[Any]] = {}

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str, finish: bool = False) -> asyncio.Task[T]:
        """Start a task that is cancelled with the plugin."""
        if asyncio._get_running_loop() is not self._loop:

            async def start() -> asyncio.Task[T]:
                return self.spawn(coroutine, name=name, finish=finish)

            return asyncio.run_coroutine_threadsafe(start(), self._loop).result()
        number = next(self._numbers)
        task = self._running[number] = asyncio.create_task(coroutine, name=f"{self._way.plugin}: {name}")
        self._way.link.notify("task", json.dumps({"task": number, "name": name, "finish": finish}).encode())
        return task

    def cancel(self, number: int) -> None:
        """Cancel a task that the host does not take."""
        if (task := self._running.pop(number, None)) is not None:
            task.cancel()

    async def end_of(self, number: int) -> None:
        """Wait for a task, and cancel it with this call; raises what it raises."""
        task = self._running.pop(number)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        if not task.cancelled():
            task.result()


def make_context(hello: Hello, way: Way, known: Known, seen: Seen, when_unloaded: Callable[..., Any]) -> PluginContext:
    """Return the context of the plugin of this process."""
    from functools import partial

    from tavern_host.common.event_types import check_permitted

    http = ChildHttp(hello.proxies)
    when_unloaded("http-session", "client", http.close)
    return PluginContext(
        plugin=hello.plugin,
        project=Project(hello.project_id, hello.project_name, Path(hello.project_root)),
        services=ChildServices(way, known, seen),
        settings=ChildSettings(hello.settings),
        log=logging.getLogger(f"tavern.plugin.{hello.plugin}"),
        data_dir=Path(hello.data_dir),
        operator_dir=Path(hello.operator_dir),
        events=ChildEvents(way, partial(check_permitted, hello.plugin, hello.events)),
        audit=ChildAudit(way),
        tasks=ChildTasks(way),
        http=http,
        hooks=ChildHooks(way, known, lambda: seen.state),
        blobs=ChildBlobs(way),
        serving=hello.serving,
        is_stopping=lambda: seen.state.is_stopping,
        is_draining=lambda: seen.state.is_draining,
        _when_unloaded=when_unloaded,
    )
