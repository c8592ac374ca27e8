"""The first messages of a link: what a child needs to begin, and what it answers; one model for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import Field, JsonValue

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.manifest import EventPermissions
from tavern_host.contracts.plugins import HookImplInfo, Problem
from tavern_host.contracts.wire import Model


class EntryPoint(Model):
    """A module that the manifest names, as `runtime.source.Entry`."""

    module: str
    collector: str
    options: dict[str, JsonValue] = Field(default_factory=dict)


class SettingsState(Model):
    """A plugin's settings as they are now: by key the values of its layers, lowest first, and the layers left out."""

    revision: int
    digest: str
    layers: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    left_out: dict[str, list[str]] = Field(default_factory=dict)


class HostState(Model):
    """What changes while the child runs: which services have a provider, which hooks an implementation, what other
    plugins publish, whether the host is about to stop."""

    revision: int = 0
    services: list[str] = Field(default_factory=list)
    implemented: list[str] = Field(default_factory=list)
    published: dict[str, str] = Field(default_factory=dict)
    is_stopping: bool = False
    is_draining: bool = False


class Hello(Model):
    """Which plugin the child carries, and what its context says. `reviewed` are the hashes of files in hexadecimal.

    `publishes` names what the plugin publishes itself, as `module:name` in its package; `first_party` are the packages
    of the host's own plugins. `known_services` and `known_hooks` say by name where the interface or the specification
    is, as `module:name`.
    """

    plugin: str
    module: str | None = None
    root: str | None = None
    reviewed: dict[str, str] | None = None
    entries: dict[str, EntryPoint] = Field(default_factory=dict)
    first_party: list[str] = Field(default_factory=list)
    publishes: list[str] = Field(default_factory=list)
    known_services: dict[str, str] = Field(default_factory=dict)
    known_hooks: dict[str, str] = Field(default_factory=dict)
    events: EventPermissions = Field(default_factory=EventPermissions)
    settings: SettingsState
    state: HostState
    project_id: str
    project_name: str
    project_root: str
    data_dir: str
    operator_dir: str
    serving: bool = False
    proxies: dict[str, str] = Field(default_factory=dict)


class Loaded(Model):
    """What the child found in the plugin: its hook implementations with the options of their marks, by function, and
    what can never be one; the descriptions of what it publishes, and why what it should publish cannot be."""

    hooks: list[HookImplInfo] = Field(default_factory=list)
    options: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    problems: list[Problem] = Field(default_factory=list)
    published: dict[str, str] = Field(default_factory=dict)
    faults: dict[str, str] = Field(default_factory=dict)

    def of(self, plugin: str) -> Loaded:
        """Return it as that plugin's own, whatever the child says: of the marks of a hook implementation counts its
        place alone, since the others would say which hook it is called for, and how."""
        hooks = [one.model_copy(update={"plugin": plugin}) for one in self.hooks]
        places = {name: {k: v for k, v in marks.items() if k in _PLACES} for name, marks in self.options.items()}
        return self.model_copy(update={"hooks": hooks, "options": places})


_PLACES = frozenset({"tryfirst", "trylast"})


class HandlerFacts(Model):
    """What the host may have to know at once of a handler that a descriptor names: why it cannot be reached, the
    public methods of a class, and what is wrong with it as the provider of its service."""

    problem: Problem | None = None
    methods: list[str] = Field(default_factory=list)
    as_provider: list[Problem] = Field(default_factory=list)


class Facts(Model):
    """What goes with descriptors: facts by handler, and the JSON Schemas of the types that routes name."""

    handlers: dict[str, HandlerFacts] = Field(default_factory=dict)
    schemas: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)


INVOKE = {"arguments": dict[str, JsonValue], "call": CallContext, "return": JsonValue}
"""The annotations of a call of a service's method by name."""

ANSWER = {"arguments": list[JsonValue], "return": JsonValue}
"""The annotations of a call of a function that another plugin's answer to a hook names."""

EVENTS = {"return": AsyncIterator[Event | Gap]}
"""The annotations of a subscription to events."""

BLOB_CALLS: dict[str, dict[str, Any]] = {
    "put": {"content": AsyncIterator[bytes], "media_type": str, "holder": str | None, "return": Blob},
    "open": {"blob": Blob, "start": int, "stop": int | None, "return": AsyncIterator[bytes]},
    "hold": {"holder": str, "blobs": list[Blob], "return": None},
    "release": {"holder": str, "return": None},
    "holders": {"return": list[str]},
}
"""The annotations of `context.Blobs`, as far as it can be reached from another process."""
