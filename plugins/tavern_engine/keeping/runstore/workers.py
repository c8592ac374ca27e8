"""Which workers live: each holds the lock of a file of its own, which the system lets go of when the process ends.

So the runs of a process that was killed can be claimed at once, not only when their leases are over. A child that a
killed process left behind may hold on to its lock; then the lease decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path

from tavern_engine.keeping.runstore.opening import make_folder
from tavern_host.contracts.errors import Conflict


class Workers:
    """The lock files in a folder, and those of them that this store holds. Blocking, and for one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, worker: str) -> None:
        """Say that a worker lives, as long as this process does. Raises `Conflict` where another has its name."""
        path = self._path(worker)
        if worker in self._held:
            if _is_at(path, self._held[worker]):
                return
            os.close(self._held.pop(worker))  # somebody removed the file
        make_folder(self._folder.parent)
        make_folder(self._folder)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                raise Conflict(f"another process works under the name {worker!r}; a worker needs its own") from None
            if _is_at(path, file):
                self._held[worker] = file
                return
            os.close(file)  # somebody who found nobody behind it removed it at this moment

    def is_gone(self, worker: str) -> bool:
        """Return whether it is certain that a worker has ended."""
        if worker in self._held:
            return False
        path = self._path(worker)
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file):
                path.unlink()
            return True
        except OSError:
            return False
        finally:
            os.close(file)

    def close(self) -> None:
        """Let go of all."""
        for worker, file in self._held.items():
            with contextlib.suppress(OSError):
                if _is_at(self._path(worker), file):
                    self._path(worker).unlink()
            os.close(file)
        self._held.clear()

    def _path(self, worker: str) -> Path:
        name = hashlib.sha256(worker.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._folder / f"{name}.lock"


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except OSError:
        return False
