"""Programs without bubblewrap, each below a supervisor (`inner`) that ends all that came from it: in a weaker sandbox
of Landlock and a filter of system calls, or in none at all. Both only where the operator says so."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from logging import Logger
from pathlib import Path

from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.scripts import IsolationCheck, SandboxLaunch, SandboxMount, SandboxOutput
from tavern_scripts.api.staging import Stage, open_plain_stage
from tavern_scripts.sandbox import landlock
from tavern_scripts.sandbox.cgroups import find_groups
from tavern_scripts.sandbox.layout import SCRATCH, BadLaunch, check_target, installation
from tavern_scripts.sandbox.mount_points import MountPoints
from tavern_scripts.sandbox.resources import process_limits
from tavern_scripts.sandbox.running import Recipe, run_recipe
from tavern_scripts.sandbox.seccomp import build_filter

_INNER = Path(__file__).with_name("inner.py")
_READABLE = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
)
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")

_NOT_CLAIMED = frozenset({"namespaces", "processes", "forks", "sizes"})

_WEAKER = (
    "whether a file exists can be found out for all files of the host",
    "the disk that is written to is not limited, only the size of each file",
    "processes are counted from outside, and the pids of the host's processes are not hidden from the kernel's calls",
    "what the kernel holds for a program in the buffers of sockets is not counted as its memory",
    "paths are those of the host, and no network can be granted",
)
_NONE = (
    "NOTHING IS ENFORCED: the script has all rights of the host's user, to all files and to the network (setting "
    "unsafeAllowUnsandboxed)",
)

_points = MountPoints()


class Supervised:
    """Runs programs below a supervisor, limited by Landlock with `is_limited`, else not at all."""

    def __init__(self, *, is_limited: bool, log: Logger | None = None) -> None:
        """`log` records every program that runs without limits."""
        self._is_limited = is_limited
        self._log = log

    @property
    def weaker(self) -> list[str]:
        """What it does not enforce that the best sandbox does."""
        return list(_WEAKER if self._is_limited else _NONE)

    async def prove(self) -> list[IsolationCheck]:
        """Try out what is claimed. Raises `ServiceUnavailable` where it cannot begin."""
        from tavern_scripts.sandbox.canary import prove

        if not self._is_limited:
            return []
        if os.geteuid() == 0:
            raise ServiceUnavailable("the sandbox of Landlock is for an ordinary user, and this is root")
        found = landlock.version()
        if found < landlock.NEEDED:
            raise ServiceUnavailable(f"the kernel's Landlock is of version {found}, and {landlock.NEEDED} is needed")
        return await prove(self, without=_NOT_CLAIMED, bounded=False)

    async def prepare(self, launch: SandboxLaunch) -> None:
        """Find out what is the same for all programs."""
        find_groups()
        installation(launch.argv[0])

    async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
        """Run a program, feeding it from `stdin`, and yield what comes out; closing the iterator kills all of it."""
        if not self._is_limited and self._log is not None:
            self._log.warning("%s: running %s WITHOUT A SANDBOX", " ".join(_NONE), launch.argv[0])
        scratch = Path(tempfile.mkdtemp(prefix="tavern-script-"))
        held: list[Path] = []
        try:
            try:
                held = _points.make([mount for mount in launch.mounts if mount.mode == "staged"])
                recipe = self._recipe(launch, scratch)
            except (BadLaunch, OSError) as error:
                yield SandboxOutput(kind="ended", data=str(error).encode(), reason="broken")
                return
            output = run_recipe(recipe, stdin)
            try:
                async for each in output:
                    yield each
            finally:
                await output.aclose()  # type: ignore[attr-defined]
        finally:
            _remove(scratch)
            _points.remove(held)

    def _recipe(self, launch: SandboxLaunch, scratch: Path) -> Recipe:
        if launch.proxy is not None and self._is_limited:
            raise BadLaunch("this sandbox has no network to grant: allow none, or install bubblewrap")
        places = {folder: str(scratch / "tmp") for folder in SCRATCH}
        (scratch / "tmp").mkdir()
        rights = [(path, landlock.READ) for path in (*_READABLE, *installation(launch.argv[0]))]
        rights += [(device, landlock.READ | landlock.WRITE) for device in _DEVICES]
        rights.append((str(scratch / "tmp"), landlock.READ | landlock.WRITE))
        for number, mount in enumerate(launch.mounts):
            check_target(mount.target)
            place = os.path.realpath(mount.source)
            if mount.mode == "staged":
                place = str(scratch / f"staged-{number}")
                Path(place).mkdir()
            places[mount.target] = place
            rights.append((place, landlock.READ | (0 if mount.mode == "read" else landlock.WRITE)))
        import resource

        limits = process_limits(launch)
        del limits[resource.RLIMIT_NPROC]  # it counts all processes of the user
        job = {
            "argv": [
                _translated(launch.argv[0], {mount.target: places[mount.target] for mount in launch.mounts}),
                *[_translated(word, places) for word in launch.argv[1:]],
            ],
            "environment": {
                "TMPDIR": places["/tmp"],
                **{name: _all_translated(name, value, places) for name, value in launch.environment.items()},
            },
            "folder": _translated(launch.folder, places),
            "limits": {str(kind): values for kind, values in limits.items()},
            "rights": rights if self._is_limited else None,
            "scratch": str(scratch),
        }

        def open_place(mount: SandboxMount, _root: str, limit: int) -> Stage:
            return open_plain_stage(mount, places[mount.target], limit)

        return Recipe(
            launch=launch,
            argv=[os.path.realpath(sys.executable), "-I", "-S", str(_INNER)],
            arguments=json.dumps(job).encode(),
            gate=build_filter(sockets=False, sharing=find_groups() is not None) if self._is_limited else b"go",
            limits={},
            mark="/",
            places=(),
            complaint=(b"inner: ",),
            groups=find_groups(),
            open=open_place,
            stop=signal.SIGTERM,
            counted=True,
        )


def _translated(word: str, places: dict[str, str]) -> str:
    """Return a word with the path inside that it is, or that it begins with, as that on the host."""
    for target in sorted(places, key=len, reverse=True):
        if word == target or word.startswith(f"{target}/"):
            return places[target] + word[len(target) :]
    return word


def _all_translated(name: str, value: str, places: dict[str, str]) -> str:
    """Return a variable so; of the list of Python's folders each."""
    words = value.split(":") if name == "PYTHONPATH" else [value]
    return ":".join(_translated(word, places) for word in words)


def _remove(folder: Path) -> None:
    """Remove a folder whose rights a program may have taken away."""

    def again(function: object, path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700, follow_symlinks=not os.path.islink(path))
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)

    shutil.rmtree(folder, onerror=again)
