"""Which permissions there are, what a plugin asks for, and what the operator granted.

A grant is bound to the plugin's name, its source and the exact set that was reviewed. A plugin runs
only while everything that it asks for is granted: `add` by declaring it, the rest by the operator.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from tavern_host.contracts.catalogue import interfaces, service_permissions
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import PermissionInfo, Problem
from tavern_host.contracts.services import Level
from tavern_host.contracts.wire import Model
from tavern_host.files import write_atomic
from tavern_host.hookspecs import hooks
from tavern_host.manifest import Manifest
from tavern_host.ui import COMPONENTS, OUTLETS, outlet_base, unknown_target
from tavern_host.yamlfile import InvalidFile

CLIENT_HOOKS: dict[str, str] = {
    "hook:client:workflow:before-execute": "Change a workflow's inputs in the browser before it is run.",
    "hook:client:node:render:after": "Change how a node looks after it was drawn.",
    "hook:client:settings:before-save": "Check or change settings before they are saved.",
    "hook:client:auth:login": "Do something in the browser after somebody logged in.",
}
"""Hooks that a plugin's front end implements (`spec/000` §21.4)."""

ALL_SERVICES = "services.use:*"
CODE = "code:"
"""Begins the permission to run the code of a folder as it is now."""


def _hook_permissions() -> dict[str, tuple[Level, str]]:
    return {
        **{i.permission: (i.level, i.description) for i in hooks().values() if i.permission.startswith("hook:")},
        **{name: ("intercept", text) for name, text in CLIENT_HOOKS.items()},
    }


def asked(manifest: Manifest, *, code_hash: str | None = None) -> tuple[list[PermissionInfo], list[Problem]]:
    """Return what a plugin asks for, and every permission in its manifest that does not exist.

    `code_hash` is given for a folder plugin with Python code: its content is part of what is reviewed.
    """
    wanted: list[PermissionInfo] = []
    problems: list[Problem] = []

    def want(name: str, level: Level, description: str) -> None:
        wanted.append(PermissionInfo(name=name, level=level, description=description))

    known = _hook_permissions()
    declared_by_field = [i.permission for i in hooks().values() if i.field and getattr(manifest, i.field) is not None]
    for name in dict.fromkeys([*declared_by_field, *manifest.permissions.hooks]):
        if name in known:
            want(name, *known[name])
        else:
            problems.append(
                Problem(message=f"permissions.hooks: there is no permission {name!r}", hint=suggest(name, known))
            )
    ui = manifest.permissions.ui
    levels: tuple[tuple[str, Level, str], ...] = (
        ("inject", "add", "Put its own content at {}."),
        ("wrap", "intercept", "Change the look and behaviour of {}."),
        ("override", "override", "Replace {}."),
    )
    for kind, level, sentence in levels:
        for target in getattr(ui, kind):
            problem = unknown_target(kind, target)
            if problem is not None:
                problems.append(problem)
            else:
                part = OUTLETS[outlet_base(target)] if kind == "inject" else COMPONENTS[target]
                want(f"ui.{kind}:{target}", level, sentence.format(part))
    for service in manifest.permissions.services.override:
        if service in interfaces():
            want(f"services.override:{service}", "override", f"Replace the service {service} for everybody.")
        else:
            problems.append(
                Problem(
                    message=f"permissions.services.override: there is no service {service!r}",
                    hint=suggest(service, interfaces()),
                )
            )
    uses = service_permissions()
    for use in manifest.permissions.services.use:
        if use == "*":
            want(ALL_SERVICES, "override", "Do anything with any service.")
        elif use in uses:
            want(f"services.use:{use}", *uses[use])
        else:
            problems.append(
                Problem(message=f"permissions.services.use: there is no permission {use!r}", hint=suggest(use, uses))
            )
    if code_hash is not None:
        want(f"{CODE}{code_hash}", "intercept", "Run the Python code that is in its folder now.")
    return wanted, problems


class Grant(Model):
    """What the operator granted to one plugin, and when."""

    source: str
    permissions: list[str]
    granted_at: datetime


class _GrantFile(Model):
    grants: dict[str, Grant] = Field(default_factory=dict)


class GrantStore:
    """The operator's grants for one project, in a file that only the operator can write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Grant]:
        """Return the grants by plugin. Raises `InvalidFile` where the file was damaged."""
        try:
            return _GrantFile.model_validate_json(self._path.read_bytes()).grants
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            message = f"not a list of grants ({error.error_count()} mistakes)"
            hint = "remove the file and grant again with `tavern plugins grant`"
            raise InvalidFile(self._path, [Problem(message=message, hint=hint, file=str(self._path))]) from None

    def changed(self) -> float:
        """Return when the file was last written, 0.0 where there is none."""
        try:
            return self._path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def grant(self, plugin: str, source: str, permissions: list[PermissionInfo]) -> None:
        """Record that exactly these permissions were granted to this plugin from this source."""
        names = sorted(p.name for p in permissions)
        grant = Grant(source=source, permissions=names, granted_at=datetime.now(UTC))
        self._write({**self.read(), plugin: grant})

    def revoke(self, plugin: str) -> None:
        """Forget a plugin's grant."""
        self._write({name: grant for name, grant in self.read().items() if name != plugin})

    def _write(self, grants: dict[str, Grant]) -> None:
        data = json.dumps(_GrantFile(grants=grants).to_json(), indent=2)
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self._path, data.encode(), mode=0o600)


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
