"""Which hosts live: each holds the lock of a file of its own, which the system lets go of when the process ends.

So the tasks of a host that was killed can be taken up at once, and those of one that lives never are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class LivingHosts:
    """The lock files in a folder, and that of this host. Blocking, and for one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: tuple[Path, int] | None = None

    def hold(self, host: str) -> None:
        """Say that this host lives, as long as its process does. Raises `OSError`."""
        path = self._path(host)
        if self._held is not None:
            if _is_at(path, self._held[1]):
                return
            os.close(self._held[1])  # somebody removed the file
            self._held = None
        self._folder.mkdir(mode=0o700, exist_ok=True)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
            if _is_at(path, file):
                self._held = path, file
                return
            os.close(file)  # somebody who found nobody behind it removed it at this moment

    def is_gone(self, host: str) -> bool:
        """Return whether it is certain that a host has ended."""
        path = self._path(host)
        if self._held is not None and self._held[0] == path:
            return False
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
        """Let go of this host's lock."""
        if self._held is None:
            return
        path, file = self._held
        with contextlib.suppress(OSError):
            if _is_at(path, file):
                path.unlink()
        os.close(file)
        self._held = None

    def _path(self, host: str) -> Path:
        # What stands in a database that somebody sent may be no name of a file.
        return self._folder / f"{host.encode('utf-8', 'surrogatepass').hex()[:128]}.lock"


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except OSError:
        return False
