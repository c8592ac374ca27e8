"""The context of a plugin: services, settings, a log, a data folder, Blobs, events, the audit log, tasks, HTTP.

All of it is attributed to the plugin and closed with it. `facilities` makes the parts; this module describes them and
holds no behaviour of its own, so that importing `tavern_host` stays cheap.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from tavern_host.contracts.blobs import BINARY, Blob
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.services import MethodInfo, ServiceKey

if TYPE_CHECKING:
    import aiohttp
    from pydantic import JsonValue

    from tavern_host.contracts.calls import CallContext
    from tavern_host.contracts.nodes import Report
    from tavern_host.contracts.services import ServiceInterface
    from tavern_host.contracts.wire import Model

S = TypeVar("S", bound="ServiceInterface")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Project:
    """The folder that a host works on. What is in it is for plugins to say, each with folders of its own."""

    id: str
    name: str
    root: Path

    @classmethod
    def of(cls, root: Path, name: str | None = None) -> Project:
        """Return the project in a folder, which need not be there yet; its id is made of the folder's path."""
        slug = re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-") or "project"
        digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()
        return cls(id=f"{slug}-{digest[:8]}", name=name or root.name, root=root.resolve())

    def folder(self, name: str) -> Path:
        """Return the folder of this name, which a plugin declares under `projectFolders`; it may not be there yet."""
        return self.root / name

    @property
    def plugins(self) -> Path:
        """Where folder plugins are."""
        return self.root / "plugins"

    @property
    def private(self) -> Path:
        """What the host keeps for itself in the project (`.tavern`)."""
        return self.root / ".tavern"


class ServiceMethod(Protocol):
    """A method of a service, to be called with JSON arguments on behalf of a call; gives its result as JSON.

    One that only reads (`info.permission` is None) ignores the call.
    """

    @property
    def info(self) -> MethodInfo:
        """The permission that it needs, and what that lets a plugin do."""

    @property
    def names(self) -> Mapping[str, str]:
        """The parameter that a key of the arguments means, in either spelling: `filePath` first, then `file_path`."""

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The JSON Schema of each parameter, with its default where that is text, a number or a boolean."""

    async def __call__(self, arguments: Mapping[str, Any], call: CallContext) -> Any: ...


class Services(Protocol):
    """Reaches services; returns never the object, only a permission-checked view of it."""

    @overload
    def get(self, key: ServiceKey[S]) -> S: ...

    @overload
    def get(self, key: str) -> Any: ...

    def get(self, key: ServiceKey[Any] | str) -> Any:
        """Return this plugin's view of a service. Raises `ServiceUnavailable` for one without a provider.

        A service that another folder plugin publishes is named by its name, since its interface cannot be imported.
        """

    def has(self, key: ServiceKey[Any] | str) -> bool:
        """Return whether the service has a provider."""

    async def invoke(self, service: str, method: str, arguments: Mapping[str, Any], *, call: CallContext) -> Any:
        """Call a method of a service by name, with arguments as JSON, for `call.principal`.

        JSON arguments become the method's parameter types, its result becomes JSON. Raises `NotFound`
        for an unknown service or method, `InvalidInput` for wrong arguments, `PermissionDenied`.
        """

    def method(self, service: str, method: str) -> ServiceMethod:
        """Return a callable that does as `invoke` for one method; it is valid until plugins change (`Hooks.revision`).

        Raises `NotFound` for an unknown service or method, `ServiceUnavailable`.
        """


class Settings(Protocol):
    """The plugin's settings, always as they are now; keys without the `extensions.{plugin}.` prefix."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or its declared default. The value is a copy."""

    def origin(self, key: str) -> str:
        """Return where the value comes from: `default`, `project`, `operator` or `environment`."""

    def layers(self, key: str) -> dict[str, Any]:
        """Return the value of each layer that has one, lowest first."""

    def left_out(self, key: str) -> list[str]:
        """Return the layers that may have a value which cannot be used: one that is not right, or a damaged file. For
        settings that forbid something, so that nothing is allowed because they cannot be read."""

    @property
    def revision(self) -> int:
        """Grows whenever a setting changes, be it another plugin's: what was computed from settings compares it."""

    @property
    def digest(self) -> str:
        """Differs whenever a value of this plugin's settings does, and is the same in every host: for the keys of what
        was made with them."""

    def changes(self) -> AsyncIterator[list[str]]:
        """Return an iterator that yields the keys of this plugin's settings that changed, each time some did;
        it ends with the plugin."""


class Subscription(Protocol):
    """A bounded subscription to events; iterate over it, or close it to end the iteration."""

    def __aiter__(self) -> AsyncIterator[Event | Gap]: ...

    async def close(self) -> None:
        """End the subscription."""


class Events(Protocol):
    """The event bus, attributed to the plugin."""

    def publish(self, type: str, payload: Mapping[str, Any]) -> Event:
        """Publish an event; `payload` is JSON. Every connected page receives it. Never blocks.
        A plugin's own types begin with its name and a dot (`acme.indexed`); others must stand under
        `permissions.events.publish`. Raises `PermissionDenied`.
        """

    def publish_all(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Publish events, given as pairs of type and payload, in order and without others between them; each at a
        fraction of the cost of `publish`. One that cannot be published (its type is not permitted, or its payload is no
        JSON) is left out; what `publish` would have raised for the first such one is raised after the others.
        """

    def is_read(self, type: str) -> bool:
        """Return whether somebody hears events of a type now. What is not made then, who reconnects later misses."""

    def subscribe(self, *types: str, since: int | None = None, limit: int = 16_384) -> Subscription:
        """Subscribe to event types (all, where none is named), from `since` if it is still kept.

        At most `limit` events wait to be read, and no more than about 32 MB of them: then the oldest are dropped, and
        a `Gap` says which.

        A type may be a pattern with a `*` at its end (`NODE_*`). Own types apart, each must be covered by a
        pattern under `permissions.events.subscribe`. Raises `PermissionDenied`.
        """


class Audit(Protocol):
    """The audit log, for the providers of the host's services: they record what others do through them, in the
    name of the caller. What a plugin does on its own is recorded by the service `audit`.

    What stands under a secret's name is masked, and what stands under one of `secrets`, at any depth.
    """

    def record(
        self,
        action: str,
        *,
        subject: str = "",
        details: Mapping[str, JsonValue] | None = None,
        secrets: Collection[str] = (),
        call: CallContext | None = None,
    ) -> int:
        """Record that the call's principal did `action`, a dotted name in the past tense, to `subject`.

        Never blocks; it is on disk about 50 ms later, or after `written`. Returns the entry's number, 0 for one that
        was dropped since too many wait to be written. Raises `Forbidden` for a plugin that provides no service and for
        actions that only the host records, `InvalidInput` for what is no action.
        """

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits to be written that callers should wait with `written()`."""

    @property
    def problem(self) -> str | None:
        """Why the log could not be written when that was last tried; None where it could."""

    async def written(self, number: int | None = None) -> None:
        """Return when the entry of this number is on disk, or all that were recorded until now.

        Concurrent waits share one flush to the disk. Raises `ServiceUnavailable` where it was dropped or
        cannot be written.
        """


class Tasks(Protocol):
    """Background tasks, owned by the plugin and cancelled with it."""

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str, finish: bool = False) -> asyncio.Task[T]:
        """Start a task. An exception in it is logged and shown with the plugin.

        With `finish`, unloading the plugin waits for the task up to a deadline before it is cancelled.
        """


class Http(Protocol):
    """Outgoing HTTP."""

    def session(self) -> aiohttp.ClientSession:
        """Return the plugin's client session, made on first use and closed with the plugin. It uses the proxies that
        the operator or the environment names."""

    def proxy(self, address: str) -> str | None:
        """Return the proxy through which an address is reached, for another client than the session; None where it is
        reached directly. It may hold credentials. Raises `Misconfigured` for one that is not of HTTP."""

    def proxy_variables(self) -> dict[str, str]:
        """Return the variables of proxies for a program that reaches out by itself: it must have no others."""


class Blobs(Protocol):
    """Large values, kept apart in the project by the hash of their content: values hold their handles.

    A Blob stays while somebody holds it: the engine holds those in inputs and outputs of a run that is kept. What
    nobody holds is removed an hour after it was put or released.
    """

    async def put(
        self, content: bytes | AsyncIterable[bytes], media_type: str = BINARY, *, holder: str | None = None
    ) -> Blob:
        """Keep bytes, or a stream of them, and hold them for `holder` where one is named; return their handle.

        Raises `InvalidInput` for what is no media type and for more than 2 GiB, `Conflict` where all Blobs of the
        project would have more than 16 GiB, `ServiceUnavailable` where the disk does not take it.
        """

    def open(self, blob: Blob, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes from `start` up to `stop` in parts of at most 1 MiB. Raises `NotFound`."""

    async def read(self, blob: Blob) -> bytes:
        """Return all bytes. Raises `NotFound`, also where the file is damaged."""

    async def path(self, blob: Blob) -> Path:
        """Return the file that holds the bytes, to be read in this process and not to be changed. Raises `NotFound`."""

    def has(self, blob: Blob) -> bool:
        """Return whether the bytes are there; quick."""

    async def hold(self, holder: str, blobs: Collection[Blob]) -> None:
        """Keep Blobs until `holder`, a name of the plugin's own choice, releases them, over restarts too. Raises
        `NotFound`: then none of them is held."""

    async def release(self, holder: str) -> None:
        """Hold nothing for `holder` any more."""

    async def holders(self) -> list[str]:
        """Return the plugin's names that hold something."""


class HookResult(Protocol, Generic[T_co]):
    """One plugin's answer to a hook, with a way to reach the handlers that the answer names."""

    @property
    def plugin(self) -> str:
        """The plugin that answered."""

    @property
    def code(self) -> str:
        """Names the plugin's code as it was loaded: by its version, for a folder plugin also by the hash of its files,
        and after the first load also by the load's number. Results of code of another name must not be reused."""

    @property
    def settings(self) -> str:
        """The digest of the plugin's settings as they are now; see `Settings.digest`. Results that its code made with
        others must not be reused."""

    @property
    def value(self) -> T_co:
        """The answer."""

    @property
    def is_here(self) -> bool:
        """Whether the plugin's code runs in this process; if not, what is not async waits: call it on a thread."""

    def open(self, handler: str | Model, *arguments: Any) -> Any:
        """Return an object of the class `handler`, made by its plugin as `Class(*arguments)`; a last
        parameter named `context` gets the plugin's own context. A descriptor in the place of a name gives what runs
        its handler, where its class says so: the `NodeRunner` of a `NodeDefinition`."""

    async def call(self, handler: str, *arguments: Any) -> Any:
        """Call the function `handler` in its plugin as `function(*arguments, context)`."""

    def in_use(self, cancel: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """Return the context that keeps the plugin from being unloaded while its `with` block runs.

        Disabling or reloading the plugin waits for it up to a deadline, then calls `cancel`; a revoked plugin is not
        waited for.
        """


class Hooks(Protocol):
    """Calls hooks. Only the provider of the service that a hook names as its `caller` may call it."""

    @property
    def revision(self) -> int:
        """Grows whenever the set of active plugins or grants changes: a registry that was filled by a
        hook compares it on each access and collects again when it differs."""

    async def collect(self, hook: str, **arguments: Any) -> list[HookResult[Any]]:
        """Call every implementation; an error is reported against its plugin and the others are called. The answers
        come in the order in which the plugins were loaded, the first-party ones first."""

    def claim(self, owners: dict[str, str], kind: str, name: str, plugin: str) -> bool:
        """Return whether what a plugin contributes under a name is to be used, for answers in the order of `collect`.

        Nothing takes a name away: the first keeps it, as `owners` notes, and a later one is reported as not used.
        `kind` says what it is: "macro".
        """

    async def first(self, hook: str, **arguments: Any) -> HookResult[Any] | None:
        """Call implementations until one answers something other than None."""

    async def filter(self, hook: str, value: T, **arguments: Any) -> T:
        """Pass `value` (the hook's first argument) through every implementation. Raises `Vetoed` on a `Veto`; for a
        hook with the policy `veto` also on an error."""

    def implemented(self, hook: str) -> bool:
        """Return whether the hook has an implementation."""

    def report(
        self,
        plugin: str,
        message: str,
        *,
        hint: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        """Report against a plugin that something that it contributed cannot be used, and log it; once for each text.

        For the providers of the host's services, to which plugins contribute.
        """


@dataclass(frozen=True)
class PluginContext:
    """What a plugin gets. `data_dir` is a folder of its own that survives restarts; `own` gives what its parts share
    while it is loaded.

    `operator_dir` is such a folder among the operator's own, for this project, to be made when it is needed: decisions
    about a project belong there, since a project's folder, with all that is in it, may come from anyone.

    `serving` says that the host runs until it is stopped, as under `tavern serve`, not for one command: work that is
    resumed at the start and long-running work (a watch on files) belongs there. `is_stopping` says that the host stops:
    what is cut off then and can resume in the next one should be left to that. `is_draining` says that it stops, or
    will as soon as what is in flight has ended: what waits and can be left to another host should not begin.
    """

    plugin: str
    project: Project
    services: Services
    settings: Settings
    log: logging.Logger
    data_dir: Path
    operator_dir: Path
    events: Events
    audit: Audit
    tasks: Tasks
    http: Http
    hooks: Hooks
    blobs: Blobs
    serving: bool = False
    is_stopping: Callable[[], bool] = lambda: False
    is_draining: Callable[[], bool] = lambda: False
    _when_unloaded: Callable[[str, str, Callable[[], Any]], object] = field(default=lambda *_: None, repr=False)
    _states: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def own(self, kind: Callable[[PluginContext], T]) -> T:
        """Return the state that the parts of this load of the plugin share: one object of the class `kind`, made as
        `kind(context)` when it is first asked for. Its `close`, if it has one, is called when the plugin is unloaded.
        """
        if kind not in self._states:
            made = kind(self)
            self._states.setdefault(kind, made)  # another thread may have made one meanwhile, which is as good
            if (close := getattr(made, "close", None)) is not None:
                self._when_unloaded("state", getattr(kind, "__name__", self.plugin), close)
        state: T = self._states[kind]
        return state


@dataclass(frozen=True)
class NodeContext:
    """What a node function gets in a parameter annotated `NodeContext`: its plugin's context and which
    node of which run this is; within a loop, in which iteration, from 0."""

    plugin: PluginContext
    run_id: str
    node_id: str
    call: CallContext
    iteration: int | None = None
    report: Report | None = field(default=None, repr=False, compare=False)

    def progress(self, value: float, maximum: float | None = None, message: str | None = None) -> None:
        """Say how far the node is: `value`, of `maximum` where that is known, and what it does; on any thread.

        Clients get the latest at most twenty times a second. Raises `InvalidInput` for what is no finite number, or
        no text.
        """
        from tavern_host.contracts.nodes import NodeProgress

        said = NodeProgress.of(value, maximum, message)
        if self.report is not None:
            self.report(said)

    @property
    def blobs(self) -> Blobs:
        """The plugin's Blobs."""
        return self.plugin.blobs
