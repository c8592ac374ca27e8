"""What the sandbox of a plugin's child is made of: what it sees, may change and reach, and how much it may use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import tavern_host
from tavern_host.context import Project
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.manifest import Runtime
from tavern_host.runtime.installed import first_party
from tavern_isolation.carriers import CHILD
from tavern_isolation.environment import Environment
from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, ScriptLimits

CALLS = 7
"""The descriptor that a sandboxed program has its end of the link as."""

PACKAGES = "/tavern/packages"
"""Where all packages are seen inside: those of the host, and what the plugin has of its environment."""

_MEGABYTE = 1 << 20
_FOREVER = 10.0 * 365 * 86_400
_USERS = 0x60000000
"""The first of the users that plugins of a host that is root run as: nobody has them, and no script gets them."""


def user_of(project: str, plugin: str) -> int | None:
    """The user that a plugin always runs as where the host is root, so that its data stay its own; else None, for the
    host's user, which is another one inside."""
    if os.geteuid() != 0:
        return None
    return _USERS + (int.from_bytes(sha256(f"{project}\n{plugin}".encode()).digest()[:4]) & 0x0FFFFFFF)


def hand_over(folder: Path, user: int | None) -> None:
    """Make a folder, and give all in it to a user where there is one. Blocking."""
    folder.mkdir(parents=True, exist_ok=True)
    if user is None or folder.stat().st_uid == user:
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(parent, name), user, user)
    os.lchown(folder, user, user)  # the last, so that what was broken off is done again


def launch_of(
    needs: Runtime,
    environment: Environment,
    calls: int,
    *,
    own: Path | None,
    data: Path,
    project: Project,
    user: int | None,
) -> SandboxLaunch:
    """The launch of a child: `own` is the folder of a plugin that is none of the packages, `data` its data folder,
    `calls` its end of the link.

    Raises `InvalidInput` for files that the manifest names and that are not there, or are the host's own.
    """
    host = {"tavern_host": Path(tavern_host.__file__).parent, **dict(first_party())}
    places = {f"{PACKAGES}/{name}": place for name, place in ({**environment.packages, **host}).items()}
    seen = [*environment.folders, *([own] if own is not None else []), *_granted(needs.files.read, project)]
    mounts = [_mount(place, "read", target) for target, place in places.items()]
    mounts += [_mount(place) for place in seen]
    mounts += [_mount(place, "write") for place in (data, *_granted(needs.files.write, project))]
    return SandboxLaunch(
        argv=[str(environment.interpreter), "-S", "-s", "-m", CHILD, str(CALLS)],
        environment={
            "PATH": f"{environment.interpreter.parent}:/usr/bin:/bin",
            **dict.fromkeys(("HOME", "TMPDIR"), "/tmp"),
            **dict.fromkeys(("LANG", "LC_ALL"), "C.UTF-8"),
            "PYTHONPATH": os.pathsep.join([*map(str, environment.folders), PACKAGES]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        folder=str(data),
        mounts=_innermost_last(mounts),
        limits=ScriptLimits(
            wall=_FOREVER,
            cpu=_FOREVER,
            memory=needs.memory * _MEGABYTE,
            processes=256,
            files=1024,
            file_size=1024 * _MEGABYTE,
            scratch=64 * _MEGABYTE,
            input=0,
            output=0,
            log=0,
        ),
        calls=calls,
        address_space=False,
        lasting=True,
        user=user,
    )


def _mount(place: Path, mode: str = "read", target: str = "") -> SandboxMount:
    return SandboxMount.model_validate({"target": target or str(place), "source": str(place), "mode": mode})


def _innermost_last(mounts: Iterable[SandboxMount]) -> list[SandboxMount]:
    """One mount for each place, and none that another one shows already in the same way."""
    kept: dict[str, SandboxMount] = {}
    for mount in sorted(mounts, key=lambda one: (one.target.count("/"), one.mode == "write")):
        place = Path(mount.target)
        around = next((kept[path] for path in map(str, (place, *place.parents)) if path in kept), None)
        if around is None or around.mode != mount.mode:
            kept[mount.target] = mount
    return [*kept.values()]


def _granted(paths: Sequence[str], project: Project) -> list[Path]:
    """The files and folders that these paths of a manifest mean. Raises `InvalidInput`."""
    found = [(project.root / path).resolve() for path in paths]
    private = project.private.resolve()
    for path, place in zip(paths, found, strict=True):
        if not place.exists():
            raise InvalidInput(f"runtime.files: there is no {path!r:.200}: paths are absolute, or in the project")
        if place.is_relative_to(private) or private.is_relative_to(place):
            raise InvalidInput(f"runtime.files: in {path!r:.200} is what the host keeps for itself in the project")
    return found
