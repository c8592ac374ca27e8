"""Which permissions there are, what a plugin asks for, and what of it is granted.

A grant is bound to the plugin's name, its source and the exact set that was reviewed. A plugin runs
only while everything that it asks for is granted: `add` by declaring it, the rest by the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tavern_host.common.event_types import is_own
from tavern_host.contracts.manifest import CLIENT_HOOKS, Manifest, Publishes
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import PermissionInfo, Problem
from tavern_host.contracts.services import ALL_SERVICES, Level, interface_methods
from tavern_host.contracts.ui import COMPONENTS, FRONTENDS, OUTLETS, UI_LEVELS, outlet_base, unknown_target
from tavern_host.hooks.catalogue import INTERFACES
from tavern_host.hookspecs import hooks
from tavern_host.plugins.grants import Grant
from tavern_host.storage.yaml_file import NOWHERE, Location, Places

MOST_SUGGESTIONS = 20
"""For how many unknown permissions of a manifest a name that is near is looked for, which takes a while."""

CODE = "code:"
"""Begins the permission to run the code of a folder as it is now."""
IMPORT = "import"
"""The permission to be imported, of a plugin that nobody has asked for, or that was not reviewed yet."""
Known = dict[str, tuple[Level, str]]
"""Permissions by name, each with its level and one sentence of what it allows."""


@dataclass(frozen=True)
class Publishers:
    """All plugins by name, for what they publish."""

    manifests: Mapping[str, Manifest]

    @cached_property
    def platform(self) -> Publishes:
        """What first-party plugins publish: whatever has no plugin's name before it."""
        published = [manifest.publishes for manifest in self.manifests.values()]
        services = [one for each in published for one in each.services if not one.is_prefixed]
        hooks = [one for each in published for one in each.hooks if not one.is_prefixed]
        return Publishes.construct(services=services, hooks=hooks)


def hook_permissions(of: Publishes) -> Known:
    """Return the permission of every hook of the host and the platform, in the server and in front ends."""
    return {
        **{i.permission: (i.level, i.description) for i in hooks().values() if i.permission.startswith("hook:")},
        **{hook.permission: (hook.level, hook.allows) for hook in of.hooks},
        **{name: ("intercept", text) for name, text in CLIENT_HOOKS.items()},
    }


def service_names(of: Publishes) -> list[str]:
    """Return the names of the services of the host and the platform."""
    return [*(one.service_name for one in INTERFACES), *(service.name for service in of.services)]


def service_permissions(of: Publishes) -> Known:
    """Return each `services.use` permission of the host and the platform."""
    marks = [info for one in INTERFACES for info in interface_methods(one).values()]
    known: Known = {info.permission: (info.level, info.allows) for info in marks if info.permission is not None}
    return known | {p.name: (p.level, p.allows) for service in of.services for p in service.permissions}


def all_permissions(manifests: Mapping[str, Manifest]) -> list[PermissionInfo]:
    """Return every permission that any manifest can name, where these are all plugins; not event patterns, code and
    front ends."""
    of = Publishers(manifests).platform
    known: Known = {**hook_permissions(of)}
    for kind, level, sentence in UI_LEVELS:
        parts = OUTLETS if kind == "inject" else COMPONENTS
        known |= {f"ui.{kind}:{name}": (level, sentence.format(text)) for name, text in parts.items()}
    known |= {f"services.override:{name}": _override(name) for name in service_names(of)}
    known |= {f"services.use:{name}": found for name, found in service_permissions(of).items()}
    known[ALL_SERVICES] = _EVERYTHING
    return [PermissionInfo(name=name, level=level, description=text) for name, (level, text) in known.items()]


def asked(
    manifest: Manifest,
    *,
    code_hash: str | None = None,
    undecided: bool = False,
    publishers: Publishers,
    places: Places = NOWHERE,
) -> tuple[list[PermissionInfo], list[Problem]]:
    """Return the permissions that a plugin asks for, and a problem for each in its manifest that does not exist.

    `code_hash` is given for a folder plugin with code or a front end: its content is part of what is reviewed. An
    `undecided` plugin asks to be imported at all.
    What the `publishers` publish can be asked for as well. `places` says where in its file each permission stands.
    """
    return _Asking(manifest, publishers, places).everything(code_hash, undecided=undecided)


_EVERYTHING: tuple[Level, str] = ("override", "Do anything with any service.")


def _override(service: str) -> tuple[Level, str]:
    return "override", f"Replace the service {service} for everybody."


class _Asking:
    """Reads one manifest; what it asks for is looked up among the host's permissions and those published."""

    def __init__(self, manifest: Manifest, publishers: Publishers, places: Places) -> None:
        self._manifest = manifest
        self._others = publishers.manifests
        self._platform = publishers.platform
        self._places = places
        self._wanted: list[PermissionInfo] = []
        self._problems: list[Problem] = []

    def everything(self, code_hash: str | None, *, undecided: bool) -> tuple[list[PermissionInfo], list[Problem]]:
        """Return all permissions and problems of the manifest."""
        self._hooks()
        self._ui()
        self._services()
        self._events()
        self._runtime()
        frontend = self._manifest.frontend
        if frontend is not None and frontend.folder() is not None:
            self._want(*FRONTENDS[frontend.mode])
        if code_hash is not None:
            self._want(f"{CODE}{code_hash}", "intercept", "Run the code that is in its folder now.")
        if undecided:
            self._want(IMPORT, "intercept", "Run the code that was installed with it.")
        return self._wanted, self._problems

    def _want(self, name: str, level: Level, description: str) -> None:
        self._wanted.append(PermissionInfo(name=name, level=level, description=description))

    def _unknown(self, place: Location, what: str, name: str, known: Known) -> None:
        hint = suggest(name, known) if len(self._problems) < MOST_SUGGESTIONS else None
        self._refuse(place, f"there is no {what} {name!r}", hint)

    def _refuse(self, place: Location, message: str, hint: str | None) -> None:
        key = ".".join(str(part) for part in place[:-1])
        self._problems.append(self._places.problem(place, f"{key}: {message}", hint))

    def _hooks(self) -> None:
        manifest, known = self._manifest, hook_permissions(self._platform)
        by_field = [i.permission for i in hooks().values() if i.field and getattr(manifest, i.field) is not None]
        for place, name in _numbered(("permissions", "hooks"), manifest.permissions.hooks, by_field):
            publisher = name.split(":")[2] if name.startswith("hook:plugin:") else None
            published = {h.permission: (h.level, h.allows) for h in self._published(publisher).hooks}
            self._named(place, "permission", name, name, publisher, published if publisher else known)

    def _ui(self) -> None:
        for kind, level, sentence in UI_LEVELS:
            for place, target in _numbered(("permissions", "ui", kind), getattr(self._manifest.permissions.ui, kind)):
                unknown = unknown_target(kind, target)
                if unknown is not None:
                    self._refuse(place, *unknown)
                else:
                    part = OUTLETS[outlet_base(target)] if kind == "inject" else COMPONENTS[target]
                    self._want(f"ui.{kind}:{target}", level, sentence.format(part))

    def _services(self) -> None:
        asked_for = self._manifest.permissions.services
        for place, name in _numbered(("permissions", "services", "override"), asked_for.override):
            publisher = name.partition(".")[0] if "." in name else None
            own = [service.name for service in self._published(publisher).services]
            services = own if publisher else service_names(self._platform)
            known = {service: _override(service) for service in services}
            self._named(place, "service", name, f"services.override:{name}", publisher, known)
        uses = {**service_permissions(self._platform), "*": _EVERYTHING}
        for place, name in _numbered(("permissions", "services", "use"), asked_for.use):
            publisher = name.partition(".")[0] if "." in name else None
            acting = [p for s in self._published(publisher).services for p in s.permissions]
            published = {p.name: (p.level, p.allows) for p in acting}
            self._named(place, "permission", name, f"services.use:{name}", publisher, published if publisher else uses)

    def _published(self, publisher: str | None) -> Publishes:
        manifest = self._of(publisher)
        return manifest.publishes if manifest is not None else Publishes()

    def _of(self, plugin: str | None) -> Manifest | None:
        return self._manifest if plugin == self._manifest.name else self._others.get(plugin or "")

    def _named(
        self, place: Location, what: str, name: str, permission: str, publisher: str | None, known: Known
    ) -> None:
        """Ask for something of the host, or that a plugin publishes, by its name in the manifest; `known` is what there
        is. A plugin that uses another's things says that it requires it."""
        is_anothers = publisher is not None and publisher != self._manifest.name
        if is_anothers and publisher not in self._manifest.requires.plugins:
            hint = f'add {publisher}: ">=…" to requires.plugins'
            self._refuse(place, f"{name!r} is of a plugin that is not required", hint)
        elif name in known:
            self._want(permission, *known[name])
        elif publisher is None or self._of(publisher) is not None:
            self._unknown(place, what, name, known)

    def _events(self) -> None:
        events = self._manifest.permissions.events
        for pattern in dict.fromkeys(events.subscribe):
            if not is_own(self._manifest.name, pattern):
                self._want(f"events.subscribe:{pattern}", "intercept", f"Read every event {_described(pattern)}.")
        for pattern in dict.fromkeys(events.publish):
            if not is_own(self._manifest.name, pattern):
                text = f"Publish events {_described(pattern)}, which others take for the host's or another plugin's."
                self._want(f"events.publish:{pattern}", "intercept", text)

    def _runtime(self) -> None:
        runtime = self._manifest.runtime
        for host in dict.fromkeys(runtime.network):
            text = f"Reach {host} from a process of its own."
            any_host = "Reach any public host from a process of its own."
            self._want(f"network:{host}", "intercept", any_host if host == "*" else text)
        for path in dict.fromkeys(runtime.files.read):
            self._want(f"files.read:{path}", "intercept", f"Read {path} from a process of its own.")
        for path in dict.fromkeys(runtime.files.write):
            self._want(f"files.write:{path}", "intercept", f"Change {path} from a process of its own.")


def _numbered(key: Location, names: list[str], before: Iterable[str] = ()) -> Iterator[tuple[Location, str]]:
    """Yield each of `before` and of the names under a key once, with where it stands."""
    seen = set()
    for index, name in [*((0, name) for name in before), *enumerate(names)]:
        if name not in seen:
            seen.add(name)
            yield (*key, index), name


def _described(pattern: str) -> str:
    if pattern == "*":
        return "of any type"
    return f"whose type begins with {pattern[:-1]}" if pattern.endswith("*") else f"of the type {pattern}"


Trust = Literal["nothing", "permissions", "everything"]
"""What needs no grant. `permissions` is the operator's trust in a name: it does not cover the code of a
folder in a project, which anyone who made the project may have given that name."""


def decide(wanted: list[PermissionInfo], grant: Grant | None, source: str, *, trust: Trust) -> list[PermissionInfo]:
    """Return the permissions with `granted` filled in.

    `add` needs no grant, nor does what `trust` covers. A grant counts only for the source that it was
    given for.
    """
    names = set(grant.permissions) if grant is not None and grant.source == source else set()

    def is_granted(permission: PermissionInfo) -> bool:
        is_code = permission.name.startswith(CODE)
        trusted = trust == "everything" or (trust == "permissions" and not is_code)
        return trusted or permission.level == "add" or permission.name in names

    return [p.model_copy(update={"granted": is_granted(p)}) for p in wanted]
