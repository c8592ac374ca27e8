"""Sandboxes by bubblewrap: as an ordinary user in a user namespace, or as root, which makes the mounts while the
program is an unused user without any rights. Whether they hold is found out by `canary`."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from tavern_scripts.api.scripts import IsolationCheck, SandboxLaunch, SandboxOutput
from tavern_scripts.sandbox.cgroups import find_groups
from tavern_scripts.sandbox.guard import Guard
from tavern_scripts.sandbox.layout import SCRATCH, BadLaunch, arguments, installation
from tavern_scripts.sandbox.mount_points import MountPoints
from tavern_scripts.sandbox.resources import process_limits
from tavern_scripts.sandbox.running import ARGUMENTS, GATE, INFO, Recipe, run_recipe
from tavern_scripts.sandbox.seccomp import build_filter
from tavern_scripts.sandbox.writers import let_write, writer_of

_NAMESPACES = (
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--hostname",
    "sandbox",
    "--die-with-parent",
    "--new-session",
)
_DESCRIPTORS = ("--seccomp", str(GATE), "--info-fd", str(INFO))
_USER = 1000
"""Who a program is inside of a user namespace."""

_UNUSED = 0x70000000
"""The first of the users that nobody has: above those that systemd gives to containers."""

_BEFORE_THE_PROGRAM = ("LD_", "GLIBC_")
"""Variables that could act while root's rights are not given up yet."""

_points = MountPoints()


class Bubblewrap:
    """A sandbox by bubblewrap. With `setpriv` it is made by root, and the program runs as an unused user."""

    def __init__(self, program: Path, *, setpriv: str | None = None) -> None:
        self._setpriv = setpriv
        self._argv = (str(program), "--args", str(ARGUMENTS), "--")
        self._used: set[int] = set()
        self._guard = Guard()
        first: tuple[str, ...]
        if setpriv is None:
            first = ("--unshare-user", "--uid", str(_USER), "--gid", str(_USER), *_NAMESPACES)
        else:
            kept = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP")
            first = (*_NAMESPACES, "--cap-drop", "ALL", *kept)
        self._first = (*first, *_DESCRIPTORS)

    @property
    def weaker(self) -> list[str]:
        """What it does not enforce that the best sandbox does."""
        if find_groups() is not None:
            return []
        return [
            "the memory of all processes together is watched from outside, not limited by the kernel: no control group "
            "may be made here"
        ]

    async def prove(self) -> list[IsolationCheck]:
        """Try out every property that isolation rests on. Raises `ServiceUnavailable` where it cannot begin."""
        from tavern_scripts.sandbox.canary import prove

        return await prove(self)

    async def prepare(self, launch: SandboxLaunch) -> None:
        """Find out what is the same for all programs."""
        build_filter(sharing=find_groups() is not None)
        installation(launch.argv[0])

    async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
        """Run a program, feeding it from `stdin`, and yield what comes out; closing the iterator kills all of it."""
        slot = self._take_slot()
        held: list[Path] = []
        try:
            try:
                recipe = self._recipe(launch, slot)
                if recipe.owner is not None and (places := _changed(launch)):
                    await asyncio.to_thread(_let_write, places, recipe.owner)
                held = _points.make(launch.mounts)
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
            self._used.discard(slot)
            _points.remove(held)

    def by_hand(self, launch: SandboxLaunch, filter_number: int) -> list[str]:
        """Return the command that makes the same sandbox without this host, to compare with and to look at.

        It reads the filter of `build_filter` from the descriptor `filter_number`. Raises `BadLaunch`.
        """
        recipe = self._recipe(launch, 0)
        words = [os.fsdecode(word) for word in recipe.arguments.split(b"\0")[:-1]]
        for name in ("--seccomp", "--info-fd"):
            at = words.index(name)
            del words[at : at + 2]
        program, *rest = recipe.argv
        return [program, "--seccomp", str(filter_number), *words, *rest[rest.index("--") :]]

    def _take_slot(self) -> int:
        slot = next(number for number in itertools.count() if number not in self._used)
        self._used.add(slot)
        return slot

    def _recipe(self, launch: SandboxLaunch, slot: int) -> Recipe:
        mark = f"/.made-{secrets.token_hex(8)}"
        sharing = find_groups() is not None  # else nobody sees how much memory is shared
        inner = arguments(launch, mark, sharing=sharing)
        argv = [*self._argv, *launch.argv]
        owner = None
        if self._setpriv is not None:
            _check_readable(launch)
            early = [name for name in launch.environment if name.startswith(_BEFORE_THE_PROGRAM)]
            if early:
                raise BadLaunch(f"a program that root starts in a sandbox is not given the variable {early[0]}")
            writer = writer_of(changed) if (changed := _changed(launch)) else None
            owner = launch.user or writer or _UNUSED + ((os.getpid() & 0xFFFF) << 12) + (slot & 0xFFF)
            argv = [*self._argv, *_giving_up(self._setpriv, owner), *launch.argv]
        return Recipe(
            launch=launch,
            argv=argv,
            arguments=b"\0".join(os.fsencode(word) for word in (*self._first, *inner)) + b"\0",
            gate=build_filter(sharing=sharing),
            limits=process_limits(launch, already=0 if self._setpriv else 1),
            mark=mark,
            places=SCRATCH,
            complaint=(b"bwrap: ", b"setpriv: "),
            groups=find_groups(),
            owner=owner,
            guard=self._guard,
        )


def _check_readable(launch: SandboxLaunch) -> None:
    """Raise `BadLaunch` for what the unused user could not read."""
    for mount in launch.mounts:
        if mount.mode == "read":
            mode = os.stat(mount.source).st_mode
            needed = 0o005 if stat.S_ISDIR(mode) else 0o004
            if mode & needed != needed:
                raise BadLaunch(
                    f"{mount.source} is closed to the user that scripts of root run as: open it with chmod o+rX"
                )


def _changed(launch: SandboxLaunch) -> list[str]:
    """Return the files and folders that a program may change."""
    return [mount.source for mount in launch.mounts if mount.mode == "write"]


def _let_write(places: list[str], user: int) -> None:
    for place in places:
        let_write(place, user)


def _giving_up(setpriv: str, owner: int) -> list[str]:
    """Return the command that gives up what root has, for good, and starts the program."""
    return [
        setpriv,
        f"--reuid={owner}",
        f"--regid={owner}",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--ambient-caps=-all",
        "--no-new-privs",
        "--",
    ]
