"""What systems differ in, asked here alone: Linux, macOS, and Windows, which is no POSIX system.

Scripts and plugins in processes of their own need Linux; the rest of the host runs where this module has an answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import ModuleType

fcntl: ModuleType | None
resource: ModuleType | None
try:
    import fcntl
    import resource
except ImportError:
    fcntl = resource = None

IS_POSIX = fcntl is not None and os.open in os.supports_dir_fd
"""Whether files are opened relative to a folder that is open, are locked, and get other names while they are open."""
NEEDS_LINUX = "" if sys.platform == "linux" and IS_POSIX else "needs Linux, as in WSL 2 or a container"
"""Why nothing runs in a sandbox or in a process of its own on this system; empty on Linux."""

_WINDOWS_FILES = 8_192
"""How many files and sockets a process on Windows may open at least: its C library's limit."""


def open_flags(*names: str) -> int:
    """Return these flags of open(2), those that the system has; files are never opened as text."""
    return sum(getattr(os, name, 0) for name in (*names, "O_CLOEXEC", "O_BINARY"))


def lock(handle: int, *, wait: bool, shared: bool = False) -> None:
    """Lock an open file or folder against other processes, or with those that share it, until it is closed.

    Raises `BlockingIOError` where another holds the lock and this does not wait, `OSError` where the file system has no
    locks. Without POSIX it does nothing: an open file cannot be removed or replaced there.
    """
    if fcntl is not None:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def set_mode(handle: int, mode: int) -> None:
    """Set who may use an open file; without POSIX the folder that it is in says so."""
    if IS_POSIX:
        os.fchmod(handle, mode)


def is_of_another_user(about: os.stat_result) -> bool:
    """Return whether a file belongs to neither this user nor the system's administrator."""
    return IS_POSIX and about.st_uid not in (0, os.geteuid())


def most_open_files() -> int:
    """Return how many files and sockets this process may have open at once."""
    return _WINDOWS_FILES if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def end_group(pid: int, sign: str) -> None:
    """Send a signal, as `SIGTERM`, to a process that leads a group and to all in it; without groups, end the process.
    Raises `ProcessLookupError` where there is none."""
    if IS_POSIX:
        os.killpg(pid, getattr(signal, sign))
    else:
        os.kill(pid, signal.SIGTERM)


def on_signals(handlers: Mapping[str, Callable[[], None]]) -> Callable[[], None]:
    """Call a handler in the running loop whenever the signal of this name comes, of those that the system has; return
    what ends that."""
    loop, ending = asyncio.get_running_loop(), ExitStack()
    known = {getattr(signal, name): handler for name, handler in handlers.items() if hasattr(signal, name)}

    def pass_on(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(known[number])

    for number, handler in known.items():
        try:
            loop.add_signal_handler(number, handler)
            ending.callback(loop.remove_signal_handler, number)
        except NotImplementedError:  # the loops of Windows
            ending.callback(signal.signal, number, signal.signal(number, pass_on))
    return ending.close
