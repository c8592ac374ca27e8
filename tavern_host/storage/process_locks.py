"""Who lives, of those who share a folder: each holds the lock of a file of its own, which the system lets go of when
the process ends.

So what a process worked on that was killed can be taken up at once. A child that it left may hold on to its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path

from tavern_host.contracts.errors import Conflict
from tavern_host.storage.files import make_folder


class Living:
    """The lock files in a folder, by name, and those of them that are held here.

    Blocking, and for one thread at a time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, name: str) -> None:
        """Say that whoever has this name lives, as long as this process does.

        Raises `Conflict` where another process has the name, `OSError`.
        """
        path = self._path(name)
        if name in self._held:
            if _is_at(path, self._held[name]):
                return
            os.close(self._held.pop(name))  # somebody removed the file
        make_folder(self._folder.parent)
        make_folder(self._folder)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                raise Conflict(f"another process works under the name {name!r}; each needs its own") from None
            if _is_at(path, file):
                self._held[name] = file
                return
            os.close(file)  # somebody who found nobody behind it removed it at this moment

    def is_gone(self, name: str) -> bool:
        """Return whether it is certain that whoever has this name has ended."""
        if name in self._held:
            return False
        path = self._path(name)
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
        for name, file in self._held.items():
            with contextlib.suppress(OSError):
                if _is_at(self._path(name), file):
                    self._path(name).unlink()
            os.close(file)
        self._held.clear()

    def _path(self, name: str) -> Path:
        # What stands in a database that somebody sent may be no name of a file.
        label = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._folder / f"{label}.lock"


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except OSError:
        return False
