"""Which of the processes that share a folder are alive: each holds a lock file, which the system releases when it ends.

So the work of a killed process can be claimed at once. A child that it left may keep its lock.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from tavern_host.contracts.errors import Conflict
from tavern_host.storage.damage import Identity, identity_of
from tavern_host.storage.files import make_folder

if TYPE_CHECKING:
    from filelock import BaseFileLock

_TAKE_SECONDS = 1.0
"""How long a lock is waited for: one that looks whether its process is gone holds it for a moment."""


class ProcessLocks:
    """The lock files in a folder, by name, and those that this process holds.

    Blocking, and for one thread at a time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, tuple[BaseFileLock, Identity | None]] = {}

    def hold(self, name: str) -> None:
        """Mark the process of this name as alive, until this process ends or closes its locks.

        Raises `Conflict` where another process has the name, `OSError`.
        """
        from filelock import Timeout

        path = self._path(name)
        if name in self._held:
            if identity_of(path) == self._held[name][1]:
                return
            self._held.pop(name)[0].release()  # somebody removed the file
        make_folder(self._folder)
        lock = _lock(path)
        try:
            lock.acquire(timeout=_TAKE_SECONDS)
        except Timeout:
            raise Conflict(f"another process works under the name {name!r}; each needs its own") from None
        self._held[name] = lock, identity_of(path)

    def is_gone(self, name: str) -> bool:
        """Return whether it is certain that the process of this name has ended."""
        path = self._path(name)
        if name in self._held:
            return False
        if identity_of(path) is None:
            return True
        lock = _lock(path)
        try:
            lock.acquire(blocking=False)
        except OSError:
            return False
        path.unlink(missing_ok=True)
        lock.release()
        return True

    def close(self) -> None:
        """Release all locks, and remove their files."""
        for name, (lock, identity) in self._held.items():
            path = self._path(name)
            with contextlib.suppress(OSError):
                if identity_of(path) == identity:
                    path.unlink()
            lock.release()
        self._held.clear()

    def _path(self, name: str) -> Path:
        # What stands in a database that somebody sent may be no name of a file.
        label = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._folder / f"{label}.lock"


def _lock(path: Path) -> BaseFileLock:
    from filelock import FileLock

    # One that was acquired on one thread may be released on another.
    return FileLock(path, mode=0o600, thread_local=False, poll_interval=0.01, fallback_to_soft=False)
