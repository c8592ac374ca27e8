"""What the host says of its plugins, and the service through which plugins read it."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.http import RouteInfo
from tavern_host.contracts.languages import say
from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.services import Level, ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.ui import FrontendInfo
from tavern_host.contracts.wire import Model

GROUP = "tavern_host.plugins"
"""The group of entry points in which installed plugins are found."""
MANIFEST = "plugin.yaml"
"""The name of a plugin's manifest, which lies in the folder of its code."""


DATA_SUFFIXES = (
    *(".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".csv", ".tsv", ".txt", ".md", ".rst", ".css", ".typed"),
    *(".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".bmp", ".ico", ".woff", ".woff2", ".ttf", ".otf"),
    *(".mp3", ".ogg", ".wav", ".mp4", ".webm", ".pdf"),
)
"""What the names of files end with that nothing runs. `scriptExecution` runs none of these of a plugin."""
_DATA_NAMES = frozenset({"license", "licence", "notice", "copying", "authors", "readme", "changelog", ".gitignore"})


def is_data(name: str) -> bool:
    """Return whether a file of this name is data that nothing runs, so that a plugin of such files needs no grant for
    its code."""
    name = name.lower()
    return name in _DATA_NAMES or name.endswith(DATA_SUFFIXES)


class PluginState(enum.StrEnum):
    """How far a plugin came."""

    DISCOVERED = "discovered"
    INVALID = "invalid"
    INCOMPATIBLE = "incompatible"
    DISABLED = "disabled"
    NEEDS_REVIEW = "needs-review"
    FAILED = "failed"
    LOADED = "loaded"
    STARTED = "started"
    STOPPED = "stopped"
    GONE = "gone"


class Problem(Model):
    """One thing that is wrong with a plugin: what, where, and what to do about it."""

    message: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = ":".join(str(p) for p in (self.file, self.line, self.column) if p is not None)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text} ({self.hint})" if self.hint else text


class AdmissionError(TavernError):
    """A plugin was refused before anything of it was registered; `problems` has every reason."""

    code = "admission"

    def __init__(self, message: str, problems: list[Problem], *, plugin: str | None = None) -> None:
        super().__init__(message, plugin=plugin, problems=[p.to_json() for p in problems])
        self.problems = problems


class PermissionInfo(Model):
    """A permission that a plugin asks for, its level, what it lets a plugin do, and whether it is granted."""

    name: str
    level: Level
    description: str
    granted: bool = False


class AskingPlugin(Model):
    """A plugin that asks for a permission, and whether it has it."""

    name: str
    granted: bool


class AskedPermission(Model):
    """A permission, in one plain sentence, with the plugins that ask for it."""

    name: str
    level: Level
    description: str
    plugins: list[AskingPlugin]


NOT_RELOADED = "not reloaded, the load before stays in use"
"""What the problems of a version begin with that could not take the place of the active load."""


Placement = Literal["in-process", "process", "process-without-sandbox"]
"""Where a plugin runs: in the host's process, or in one of its own, in a sandbox or as an ordinary program."""


class PluginProcess(Model):
    """The process that a plugin runs in, if it runs now: how often it was started, its sandbox (none: empty), its
    memory in bytes, its Python, the packages that it has, and why the one before it ended."""

    pid: int | None = None
    starts: int = 0
    sandbox: str = ""
    memory: int | None = None
    python: str = ""
    environment: str = ""
    last_error: str = ""

    def lines(self) -> list[str]:
        """It for a person, in a few lines."""
        memory = f", {self.memory >> 20} MB" if self.memory is not None else ""
        runs = f"process {self.pid}{memory}, {self.sandbox or 'WITHOUT A SANDBOX'}" if self.pid else "no process now"
        found = [f"{runs}; started {self.starts} times"]
        found += [f"Python {self.python}, packages {self.environment}"] if self.python else []
        return [*found, *([f"the last one ended: {self.last_error}"] if self.last_error else [])]


class PluginInfo(Model):
    """A plugin as `GET /api/plugins` and `tavern plugins list` show it.

    The first six fields are the platform's `ExtensionInfo`; the rest are ours. `icon` is what the manifest says.
    `timings` are milliseconds per stage; with `pending_restart` the version that is loaded runs until the host
    is restarted. `process` is only there of a plugin that is asked for alone. `source` is `entry-point:DIST`,
    `package:DIST`, `folder:PATH`, `dev:PATH` or `embedded:MODULE`.
    """

    name: str
    display_name: str
    version: str
    description: str | None = None
    frontend: FrontendInfo | None = None
    config_options: list[dict[str, JsonValue]] | None = None
    is_enabled: bool = True
    icon: str | None = None
    state: PluginState = PluginState.DISCOVERED
    source: str = ""
    first_party: bool = False
    pending_restart: bool = False
    problems: list[Problem] = Field(default_factory=list)
    permissions: list[PermissionInfo] = Field(default_factory=list)
    timings: dict[str, float] = Field(default_factory=dict)
    contributions: dict[str, list[str]] = Field(default_factory=dict)
    placement: Placement = "in-process"
    process: PluginProcess | None = None

    def in_words(self) -> dict[str, Any]:
        """Return it as JSON-ready data for a person: with its sentences in the language of who is being answered."""
        shown = self.to_json()
        shown |= {key: say(shown[key]) for key in ("displayName", "description") if key in shown}
        for permission in shown["permissions"]:
            permission["description"] = say(permission["description"])
        for problem in shown["problems"]:
            problem |= {key: say(problem[key]) for key in ("message", "hint") if key in problem}
        return shown

    @property
    def is_stale(self) -> bool:
        """Whether an older load is in use than what is there now."""
        return self.pending_restart or any(problem.message.startswith(NOT_RELOADED) for problem in self.problems)


_WITHHELD = {
    PluginState.NEEDS_REVIEW: "waits for review (`tavern plugins show {name}`, then `tavern plugins grant {name}`)",
    PluginState.INVALID: "is invalid (`tavern plugins show {name}` says why)",
    PluginState.INCOMPATIBLE: "is incompatible (`tavern plugins show {name}` says why)",
    PluginState.FAILED: "failed (`tavern plugins list --check` says why)",
    PluginState.DISABLED: "is disabled ({hint})",
}


def withheld(name: str, plugins: Iterable[PluginInfo]) -> str:
    """Return that the plugin in whose namespace a name is (`acme:Say`, `node:acme:Say`, `acme`) offers nothing now,
    such as `; the plugin acme waits for review (…)` with the command that helps; nothing where that is not so.

    `core` is the namespace of all first-party plugins.
    """
    namespace = name.removeprefix("node:").partition(":")[0]
    for plugin in plugins:
        is_its = plugin.name == namespace or (namespace == "core" and plugin.first_party)
        if is_its and plugin.state in _WITHHELD:
            hint = plugin.problems[-1].hint if plugin.problems else None
            text = _WITHHELD[plugin.state].format(name=plugin.name, hint=hint or f"`tavern plugins show {plugin.name}`")
            return f"; the plugin {plugin.name} {text}"
    return ""


class PluginAsset(Model):
    """A folder of a loaded plugin: `kind` is `tools` or `workflows` for those that it declares, `plugin` for its own;
    `path` is absolute. `changed`: what is in a plugin's own folder was reviewed, and is something else by now."""

    plugin: str
    kind: str
    path: str
    changed: bool = False


class HookImplInfo(Model):
    """One hook implementation, as admission, the ledger and the dispatcher know it."""

    plugin: str
    hook: str
    function: str
    arguments: list[str]
    is_async: bool = False
    permission: str = ""
    file: str | None = None
    line: int | None = None


class ServiceLayer(Model):
    """One provider in a service's stack; the last of the stack is the one in use."""

    plugin: str
    handler: str
    override: bool = False
    version: int = 1
    since: datetime
    permission: str | None = None


class Involvement(Model):
    """A plugin's part in a service or a hook, in the order in which they are asked: it `provides` or `overrides` the
    service, or `implements` the hook. `where` is a handler or a file with its line; `granted` says by what it may."""

    plugin: str
    role: Literal["provides", "overrides", "implements"]
    where: str = ""
    granted: str = ""


class Explanation(Model):
    """Why something is as it is: `subject` as it was asked for (`service:toolManager`), one line that answers,
    and the facts behind it, each with its reason. `involved` are the plugins of a service or a hook."""

    subject: str
    answer: str
    facts: list[str] = Field(default_factory=list)
    involved: list[Involvement] = Field(default_factory=list)


class DescribedRoute(Model):
    """An HTTP route, and whose it is: a plugin's, or `tavern-host`. `schemas` has the JSON Schema of each type that it
    names, by that name; the types that these use stand in their `$defs`, and are referred to below
    `#/components/schemas/`. It is empty for a route that names a type which is not there."""

    plugin: str
    info: RouteInfo
    schemas: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)


FileVersions = tuple[tuple[int, int], ...]
"""What differs after each change of the files of decisions."""


class Reloaded(Model):
    """What became of the newest request to reload one plugin, or all: the plugins concerned that are there, and those
    that are not any more, or why it was refused."""

    plugins: list[str] = Field(default_factory=list)
    gone: list[str] = Field(default_factory=list)
    error: str | None = None


class RunningHost(Model):
    """What a running host made of the operator's files: `stamps` are theirs when it had read them, `problem` says why
    it cannot follow them."""

    process: int
    stamps: FileVersions = ()
    plugins: list[PluginInfo] = Field(default_factory=list)
    reloads: dict[str, Reloaded] = Field(default_factory=dict)
    problem: str | None = None

    def plugin(self, name: str) -> PluginInfo | None:
        """Return one of its plugins, or None for one that it does not know."""
        return next((plugin for plugin in self.plugins if plugin.name == name), None)


class Plugins(ServiceInterface, name="plugins", version=6):
    """The host's plugins: what they are, and the operator's decisions about them."""

    @reads
    async def list_plugins(self) -> list[PluginInfo]:
        """Return every plugin that the host knows of, in load order."""

    @reads
    async def get(self, name: str) -> PluginInfo:
        """Return one plugin. Raises `NotFound`."""

    @reads
    async def assets(self, kind: str) -> list[PluginAsset]:
        """Return the folders of `kind` that loaded plugins declare; for `plugin`, their own folders."""

    @reads
    async def service_stack(self, service: str) -> list[ServiceLayer]:
        """Return the providers of a service, lowest first. Raises `NotFound`."""

    @reads
    async def figures(self) -> list[Figure]:
        """Return the calls of plugins' hook implementations since the host began, with their time; and open sockets."""

    @reads(since=3)
    async def routes(self) -> list[DescribedRoute]:
        """Return the HTTP routes of the server, where there is one, and of all loaded plugins."""

    @reads(since=4)
    async def permissions(self) -> list[AskedPermission]:
        """Return every permission that there is with the plugins that ask for it, and whether each has it."""

    @reads
    async def why(self, subject: str) -> Explanation:
        """Explain `service:NAME`, `hook:NAME`, `permission:NAME` or `plugin:NAME`.

        Raises `NotFound` for an unknown name, `InvalidInput` for another kind of subject.
        """

    @acts("plugins:grant", "Grant other plugins what they ask for, and take it back.", level="override")
    async def grant(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Grant a plugin exactly what its manifest asks for now, and load it."""

    @acts("plugins:grant", "Grant other plugins what they ask for, and take it back.", level="override")
    async def revoke(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Take a plugin's grant back; all that it registered is gone when this returns."""

    @acts("plugins:manage", "Enable, disable and reload other plugins.", level="override")
    async def enable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Let a plugin be loaded again that was disabled, and load it if it may be."""

    @acts("plugins:manage", "Enable, disable and reload other plugins.", level="override")
    async def disable(self, name: str, *, call: CallContext | None = None) -> PluginInfo:
        """Unload a plugin until it is enabled again; in-flight work finishes within a deadline."""

    @acts("plugins:place", "Run plugins in the host's process, or in one of their own.", level="override", since=5)
    async def place(self, name: str, placement: Placement | None, *, call: CallContext | None = None) -> PluginInfo:
        """Run a plugin there from now on; with None, where its manifest and `host.yaml` say. Raises `Conflict` for a
        plugin that cannot run there."""

    @acts("plugins:manage", "Enable, disable and reload other plugins.", level="override")
    async def reload(self, name: str | None = None, *, call: CallContext | None = None) -> list[PluginInfo]:
        """Reload one plugin (or, without a name, rescan for all) and load what is new; return what changed, what
        is gone in the state `gone`."""

    @acts("plugins:trace", "Follow which calls of other plugins are made, and how they end.", level="override", since=6)
    def trace(self, name: str, *, call: CallContext | None = None) -> AsyncIterator[Event | Gap]:
        """Follow the calls of a loaded plugin, each when it has ended: `HOOK`, `SERVICE` or `HANDLER` with `name`,
        `caller`, `ms` and `result`, or `error` with `file` and `line`. A reader that is too slow gets gaps. It can be
        unloaded meanwhile and come back. Raises `NotFound`, and `Conflict` for one that is not loaded."""


PLUGINS = ServiceKey(Plugins)


async def all_started(services: Any) -> None:
    """Return when no plugin is about to start: until then, what a host takes up from before may lack what it needs."""
    plugins = services.get(PLUGINS)
    while any(one.state is PluginState.LOADED for one in await plugins.list_plugins()):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Blocked:
    """What blocked the event loop: a place in a plugin's code, or with `plugin` None the innermost place.

    `seconds` is how long the loop had been blocked when it was sampled, or altogether where that is over.
    """

    plugin: str | None
    file: str
    line: int
    function: str
    seconds: float

    def __str__(self) -> str:
        who = self.plugin or "code that is no plugin's"
        where = f"{self.function} ({self.file}:{self.line})"
        return f"{who} blocks the event loop in {where}, for {self.seconds:.1f} s now"
