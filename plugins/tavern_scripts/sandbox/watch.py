"""Watches all processes of a sandbox together while they run: the memory and the time of the CPU that they use. Where a
control group limits the memory it looks after that only."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from tavern_host.common.system import open_flags
from tavern_scripts.api.scripts import ScriptLimits
from tavern_scripts.sandbox.cgroups import Group

_EVERY = 0.02
"""How many seconds pass between two looks; where a control group limits and counts, five times that."""

_LASTING = 4.0
"""How many seconds pass at most between two looks at a program that lasts and does nothing: 0.1 % of a core."""

_IDLE = 0.02
"""Which part of a core a program that does nothing uses at most."""

_SHARE = 0.002
"""How many seconds are added for each further sandbox that is watched at the time."""

_INODE = 1024
"""How much memory of the kernel an empty file takes, about."""

_FEW_SOCKETS = 64
"""How many sockets of a sandbox are not counted as memory."""

_BUFFERS = 2 * 212_992
"""How much memory the kernel holds at most for what was sent to a socket and not received, other than of TCP."""

_MAPPING = 256
"""How much memory of the kernel a mapping takes, about."""

_MAPS = 65536
"""How many bytes of a process's list of mappings are read: those of about a thousand."""

_HAS_MEMORY = b"\nVmPTE:"
"""What is in the status of a thread unless it has ended, and not been waited for."""

_FOLDER = open_flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW")

Reason = Literal["memory", "cpu", "processes", "files", "broken"]

_watching: set[Watch] = set()


class Watch:
    """Polls a tree of processes and ends it when it uses too much; `reason` says that it did."""

    def __init__(
        self,
        first: int,
        limits: ScriptLimits,
        group: Group | None,
        kill: Callable[[], None],
        mark: str = "/",
        places: Sequence[str] = (),
        opened: Sequence[int] = (),
        *,
        counted: bool = False,
        lasting: bool = False,
    ) -> None:
        """`first` is the process that all others come from. `places` are its own file systems, which are in memory, and
        there once there is `mark`; `opened` are those that are open already. With `counted` there may be no more
        processes than allowed. One that is `lasting` is looked at less and less often while it does nothing."""
        self._first = first
        self._limits = limits
        self._group = group
        self._kill = kill
        self._mark = mark
        self._folders = places
        self._opened = opened
        self._counted = counted
        self._lasting = lasting
        self._places: list[int] | None = None
        self.reason: Reason | None = None
        self.cpu_ms: float | None = None
        self._used_before = 0.0
        self.peak: int | None = None

    async def run(self) -> None:
        """Watch until cancelled, or until there was a reason to end it."""
        _watching.add(self)
        every = 0.0
        try:
            while self.reason is None:
                shortest = _EVERY + _SHARE * (len(_watching) - 1)
                is_counted = self._group is not None and self._group.cpu_ms() is not None
                shortest = max(5 * _EVERY, shortest) if is_counted else shortest
                every = min(max(2 * every, shortest), _LASTING) if self._is_idle(every) else shortest
                await asyncio.sleep(every)
                self._look()
        except Exception:
            self._end("broken")  # what is not watched is ended
            raise
        finally:
            _watching.discard(self)
            for number in self._places or ():
                os.close(number)

    def _is_idle(self, seconds: float) -> bool:
        """Return whether one that is lasting did next to nothing in the seconds since this was last asked."""
        used, self._used_before = (self.cpu_ms or 0.0) - self._used_before, self.cpu_ms or 0.0
        return self._lasting and used < seconds * _IDLE * 1000

    def finish(self) -> None:
        """Note what a control group counted, after the end."""
        if self._group is None:
            return
        self.cpu_ms = self._group.cpu_ms() or self.cpu_ms
        self.peak = self._group.peak()
        if self._group.killed():
            self.reason = "memory"

    def _look(self) -> None:
        if self._group is not None:
            if self._group.killed():
                self._end("memory")
            used = self._group.cpu_ms()
            if used is not None and not self._counted:
                self._check_cpu(used)
                return
        pids = tree(self._first)
        counts = [_counts(pid) for pid in pids]
        if self._counted and sum(threads for _, threads in counts) - 1 > self._limits.processes:
            self._end("processes")
        self._check_cpu(sum(ticks for ticks, _ in counts) * 1000 / os.sysconf("SC_CLK_TCK"))
        if self._group is None:
            self._check_memory(pids)

    def _check_cpu(self, used: float) -> None:
        self.cpu_ms = max(self.cpu_ms or 0.0, used) or None
        if used > self._limits.cpu * 1000:
            self._end("cpu")

    def _check_memory(self, pids: list[int]) -> None:
        files = self._in_files()
        parts = [_status(pid) for pid in pids]
        kernel = sum(part.tables + _in_mappings(part.folder) for part in parts) + _in_sockets(self._first)
        used = kernel + sum(part.own for part in parts) + max(files, sum(part.shared for part in parts))
        if used > self._limits.memory:  # what several of them share was counted for each
            exact = [_exact(part) for part in parts]
            used = kernel + sum(own for own, _ in exact) + max(files, sum(shared for _, shared in exact))
        self.peak = max(self.peak or 0, used)
        if used > self._limits.memory:
            self._end("memory")

    def _in_files(self) -> int:
        """Return how much memory the files in the sandbox's own file systems take."""
        if self._places is None:
            if not os.access(self._mark, os.F_OK):
                return 0  # the same paths lead to folders of the host still
            self._places = []
            for folder in self._folders:
                with contextlib.suppress(OSError):
                    self._places.append(os.open(folder, _FOLDER))
        used = 0
        for number in (*self._places, *self._opened):
            system = os.fstatvfs(number)
            used += (system.f_blocks - system.f_bfree) * system.f_frsize + (system.f_files - system.f_ffree) * _INODE
        return used

    def _end(self, reason: Reason) -> None:
        self.reason = self.reason or reason
        self._kill()


def tree(first: int) -> list[int]:
    """Return a process and all that come from it, as far as they are there."""
    found = [first]
    for pid in found:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            found += [int(child) for child in _read(f"/proc/{pid}/task/{thread}/children").split()]
    return found


def memory_in_use(pids: list[int]) -> int:
    """Return the bytes of memory that processes use, what they share with each other counted once."""
    return sum(sum(_exact(_status(pid))) for pid in pids)


def _counts(pid: int) -> tuple[int, int]:
    """Return the ticks that a process and those of its children that have ended used, and how many threads it has."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return sum(int(number) for number in fields[11:15]), sum(int(number) for number in fields[17:18])


class _Memory(NamedTuple):
    folder: str
    """Where `/proc` tells it."""
    own: int
    shared: int
    tables: int


def _status(pid: int) -> _Memory:
    """Return the bytes that a process has in memory: its own, those that it shares with others, and the kernel's tables
    for both."""
    for folder in _threads(pid):
        text = _read(f"{folder}/status")
        if _HAS_MEMORY in text:
            return _Memory(folder, *_kilobytes(text, b"RssAnon:", b"RssShmem:", b"VmPTE:"))
    return _Memory(f"/proc/{pid}", 0, 0, 0)


def _threads(pid: int) -> Iterator[str]:
    """Yield folders that tell of a process's memory: the first thread's, then all, since the first may have ended, and
    has none then."""
    yield f"/proc/{pid}"
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield f"/proc/{pid}/task/{thread}"


def _exact(part: _Memory) -> tuple[int, int]:
    """Return the bytes that are a process's own and those it shares, with a part only of what several processes have,
    where that can be seen; nothing of one that has ended."""
    try:
        with open(f"{part.folder}/smaps_rollup", "rb") as file:
            own, shared = _kilobytes(file.read(), b"Pss_Anon:", b"Pss_Shmem:")
    except OSError:
        return (part.own, part.shared) if _HAS_MEMORY in _read(f"{part.folder}/status") else (0, 0)
    return own, shared


def _in_mappings(folder: str) -> int:
    """Return how much memory the kernel holds for a process's mappings. One that has more than are read, or does not
    let itself be looked at, counts as if it had as many as it may: reading all of them takes the kernel long."""
    try:
        with open(f"{folder}/maps", "rb") as file:
            text = file.read(_MAPS)
    except PermissionError:
        return _most_mappings() * _MAPPING
    except OSError:  # it has ended
        return 0
    return (_most_mappings() if len(text) == _MAPS else text.count(b"\n")) * _MAPPING


@functools.cache
def _most_mappings() -> int:
    return int(_read("/proc/sys/vm/max_map_count") or 65530)


def _in_sockets(pid: int) -> int:
    """Return how much memory the kernel holds for what was sent and not received, in a network namespace of its own:
    what waits in connections of TCP, and for other sockets, if they are many, the most that they can hold."""
    try:
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return 0
    except OSError:
        return 0
    words = _read(f"/proc/{pid}/net/sockstat").split() + _read(f"/proc/{pid}/net/sockstat6").split()
    counts = {name: int(words[at + 2]) for at, name in enumerate(words) if name in (b"sockets:", b"TCP:", b"TCP6:")}
    connections = counts.get(b"TCP:", 0) + counts.get(b"TCP6:", 0)
    waiting = sum(_queues(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")) if connections else 0
    return waiting + max(0, counts.get(b"sockets:", 0) - connections - _FEW_SOCKETS) * _BUFFERS


def _queues(path: str) -> int:
    """Return how many bytes wait in the queues of a table of connections."""
    queues = [line.split()[4].split(b":") for line in _read_all(path).splitlines()[1:]]
    return sum(int(sent, 16) + int(received, 16) for sent, received in queues)


def _kilobytes(text: bytes, *names: bytes) -> list[int]:
    found = dict.fromkeys(names, 0)
    for line in text.splitlines():
        name, _, value = line.partition(b"\t") if b"\t" in line else line.partition(b" ")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return [found[name] for name in names]


def _read_all(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _read(path: str) -> bytes:
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(number, 65536)
    except OSError:
        return b""
    finally:
        os.close(number)
