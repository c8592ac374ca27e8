"""Control groups: the kernel's own limit of the memory of all processes of a sandbox together, where this process may
make groups. Both versions are known; without them the memory is watched from outside."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "tavern-"
_TRIES = 50
"""How often removing a group is tried: the kernel counts processes for a moment after they have ended."""

_THREAD = Path("/proc/thread-self/cgroup")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Groups:
    """Where groups can be made: a folder of the memory controller. In version 1 the time of the CPU has a controller of
    its own, which is left alone: moving a process into a group of it takes longer than bubblewrap."""

    version: int
    folder: Path

    def make(self, memory: int) -> Group:
        """Make a group that may use so many bytes. Raises `OSError`."""
        group = Group(self.version, self.folder / f"{_PREFIX}{os.getpid()}-{next(_numbers)}")
        try:
            group.folder.mkdir()
            if self.version == 1:
                _write(group.folder / "memory.limit_in_bytes", memory)
                with contextlib.suppress(OSError):  # only where swapping is counted
                    _write(group.folder / "memory.memsw.limit_in_bytes", memory)
            else:
                _write(group.folder / "memory.max", memory)
                for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
                    with contextlib.suppress(OSError):
                        _write(group.folder / name, value)
        except BaseException:
            group.try_remove()
            raise
        return group


@dataclass(frozen=True)
class Group:
    """The control group of one sandbox."""

    version: int
    folder: Path

    def add(self, pid: int) -> None:
        """Put a process into the group; what it starts from then on is in it too. Raises `OSError`."""
        _write(self.folder / "cgroup.procs", pid)

    def killed(self) -> bool:
        """Return whether the kernel has ended a process since the memory was used up."""
        name, key = ("memory.oom_control", "oom_kill") if self.version == 1 else ("memory.events", "oom_kill")
        return (_field(self.folder / name, key) or 0) > 0

    def peak(self) -> int | None:
        """Return how many bytes were in use at most, or None where the kernel does not say."""
        return _number(self.folder / ("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"))

    def cpu_ms(self) -> float | None:
        """Return the time of the CPU that was used, in milliseconds, or None where it is not counted."""
        used = _field(self.folder / "cpu.stat", "usage_usec") if self.version == 2 else None
        return None if used is None else used / 1e3

    def try_remove(self) -> bool:
        """Remove the group if it is empty and return whether it is gone."""
        try:
            self.folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def entered(self) -> Iterator[bool]:
        """Start processes in the group from the beginning, where that is possible; yields whether it is.

        Moving a process that there is already makes the kernel wait for all CPUs, which takes some milliseconds; a
        thread that moves itself does not, but only version 1 lets single threads move.
        """
        if self.version != 1:
            yield False
            return
        before = _threads(self.folder.parent)
        _write(_threads(self.folder), 0)
        try:
            yield True
        finally:
            _write(before, 0)

    async def remove(self) -> None:
        """Remove the group when the kernel has released its processes."""
        import asyncio

        for attempt in range(_TRIES):
            if self.try_remove():
                return
            await asyncio.sleep(0.001 * min(attempt + 1, 20))


@functools.cache
def find_groups() -> Groups | None:
    """Return where this process can make groups, found out by making one; None where it cannot."""
    for groups in (_version_1(), _version_2()):
        if groups is None:
            continue
        _sweep(groups)
        try:
            group = groups.make(64 * 2**20)
            before = _text(_THREAD)
            with group.entered():
                pass
        except OSError:
            continue
        while not group.try_remove():
            time.sleep(0.001)
        if _text(_THREAD) == before:
            return groups
    return None


def _version_1() -> Groups | None:
    memory = _own_folder("memory")
    if memory is None or not os.access(memory, os.W_OK):
        return None
    return Groups(1, memory)


def _version_2() -> Groups | None:
    """Look for the nearest folder that hands the memory controller down and may be written to."""
    folder = _own_folder("")
    if folder is None:
        return None
    for place in (folder, *folder.parents):
        if not os.access(place, os.W_OK) or not (place / "cgroup.controllers").exists():
            return None
        if "memory" not in _text(place / "cgroup.controllers").split():
            continue
        if "memory" not in _text(place / "cgroup.subtree_control").split():
            with contextlib.suppress(OSError):  # refused where the folder has processes of its own
                (place / "cgroup.subtree_control").write_text("+memory")
        if "memory" in _text(place / "cgroup.subtree_control").split():
            return Groups(2, place)
    return None


def _own_folder(controller: str) -> Path | None:
    """Return the folder of this process's group: of a controller of version 1, or with '' that of version 2."""
    own = None
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        if (controller in names.split(",")) if controller else not names:
            own = path
    if own is None:
        return None
    for line in _text(Path("/proc/self/mountinfo")).splitlines():
        left, _, right = line.partition(" - ")
        root, where = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        fits = kind == "cgroup" and controller in options.split(",") if controller else kind == "cgroup2"
        if fits:
            inner = Path(where, os.path.relpath(own, root)) if own.startswith(root) else Path(where)
            return inner if inner.is_dir() else Path(where)
    return None


def _sweep(groups: Groups) -> None:
    """Remove empty groups of hosts that ended before they could."""
    for folder in groups.folder.glob(f"{_PREFIX}*-*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            Group(groups.version, folder).try_remove()


def _threads(folder: Path) -> Path:
    return folder / "tasks"


def _write(path: Path, value: int) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, str(value).encode())
    finally:
        os.close(number)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _field(path: Path, key: str) -> int | None:
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdecimal():
            return int(value)
    return None
