"""What the operator decided about plugins of one project: grants, and which plugins are switched off.

Both are files in the operator's state folder. Several processes may write them: each change is made under a
lock, from what is in the file at that moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import Field, ValidationError

from tavern_host import clock
from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured
from tavern_host.contracts.plugins import PermissionInfo, Placement, Problem
from tavern_host.contracts.wire import Model
from tavern_host.storage.files import locked, write_atomic
from tavern_host.storage.yaml_file import InvalidFile

M = TypeVar("M", bound=Model)

GRANTS, SWITCHES = "grants.json", "plugins.json"
"""The two files, in the operator's folder for a project."""


class Grant(Model):
    """What the operator granted to one plugin, when, the version that was reviewed, and since when it had a grant."""

    source: str
    permissions: list[str]
    granted_at: datetime
    version: str = ""
    since: datetime | None = None


class Grants(Model):
    """All grants of one project, by plugin."""

    grants: dict[str, Grant] = Field(default_factory=dict)


class Switches(Model):
    """Which plugins the operator switched off, where others are to run, and when each was last asked to be reloaded
    (seconds since 1970)."""

    disabled: list[str] = Field(default_factory=list)
    placed: dict[str, Placement] = Field(default_factory=dict)
    reloads: dict[str, float] = Field(default_factory=dict)


def stamp(path: Path) -> tuple[int, int]:
    """Return a stamp that differs after each change of a file that is always replaced."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return 0, 0
    return about.st_mtime_ns, about.st_ino


class _Store(Generic[M]):
    """One value in one file that only the operator can write."""

    def __init__(self, path: Path, kind: type[M], hint: str) -> None:
        self._path = path
        self._kind = kind
        self._hint = f"use the version that wrote it, or remove the file and {hint}"

    def load(self) -> M:
        """Return the decisions in the file, none where there is no file. Raises `InvalidFile` where the file was
        damaged."""
        try:
            return self._kind.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return self._kind()
        except ValidationError as error:
            message = f"it cannot be read ({error.error_count()} mistakes)"
            problem = Problem(message=message, hint=self._hint, file=str(self._path))
            raise InvalidFile(self._path, [problem]) from None

    def changed(self) -> tuple[int, int]:
        """Return a stamp that differs after each change of the file."""
        return stamp(self._path)

    def _change(self, change: Callable[[M], M]) -> None:
        lock = self._path.with_name(f".{self._path.name}.lock")
        try:
            with locked(lock):
                data = json.dumps(change(self.load()).to_json(), indent=2)
                write_atomic(self._path, data.encode(), mode=0o600)
        except OSError as error:
            kind = DeadlineExceeded if isinstance(error, TimeoutError) else Misconfigured
            raise kind(f"{self._path} cannot be written: {error.filename or lock}: {error.strerror}") from None


class GrantStore(_Store[Grants]):
    """The operator's grants for one project."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Grants, "grant again with `tavern plugins grant`")

    def read(self) -> dict[str, Grant]:
        """Return the grants by plugin. Raises `InvalidFile`."""
        return self.load().grants

    def grant(self, plugin: str, source: str, permissions: Iterable[PermissionInfo], version: str = "") -> None:
        """Record that exactly these permissions were granted to this plugin from this source."""
        names, when = sorted(p.name for p in permissions), clock.now()

        def change(now: Grants) -> Grants:
            before = now.grants.get(plugin)
            since = (before.since or before.granted_at) if before is not None and before.source == source else when
            grant = Grant(source=source, permissions=names, granted_at=when, version=version, since=since)
            return Grants(grants={**now.grants, plugin: grant})

        self._change(change)

    def revoke(self, plugin: str) -> None:
        """Forget a plugin's grant."""
        self._change(lambda now: Grants(grants={name: g for name, g in now.grants.items() if name != plugin}))


class SwitchStore(_Store[Switches]):
    """Which plugins the operator switched off for one project, and where others are to run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Switches, "disable again with `tavern plugins disable`")

    def disable(self, plugin: str) -> None:
        """Switch a plugin off."""
        self._change(lambda now: now.model_copy(update={"disabled": sorted({*now.disabled, plugin})}))

    def enable(self, plugin: str) -> None:
        """Switch a plugin on again."""
        self._change(lambda now: now.model_copy(update={"disabled": [n for n in now.disabled if n != plugin]}))

    def place(self, plugin: str, placement: Placement | None) -> None:
        """Keep where a plugin is to run; None: nobody said so."""

        def change(now: Switches) -> Switches:
            others = {name: where for name, where in now.placed.items() if name != plugin}
            return now.model_copy(update={"placed": others | ({plugin: placement} if placement else {})})

        self._change(change)

    def ask_to_reload(self, plugin: str) -> None:
        """Let running hosts reload a plugin; look for all, where the name is empty."""
        self._change(lambda now: now.model_copy(update={"reloads": {**now.reloads, plugin: clock.seconds()}}))
