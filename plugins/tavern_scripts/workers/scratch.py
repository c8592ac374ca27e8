"""Folders of the host for single runs, below the plugin's own; those of a host that was killed go when another one
begins."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from tavern_host.common import system

_LOCK = "in-use"


class Scratch:
    """Makes folders for runs. Blocking: call it from a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._own: Path | None = None
        self._lock: int | None = None
        self._making = threading.Lock()

    def make(self) -> Path:
        """Return a new folder that others may look into, if they may look into those above it."""
        with self._making:
            if self._own is None:
                self._open()
        assert self._own is not None
        folder = self._own / secrets.token_hex(8)
        folder.mkdir()
        folder.chmod(0o755)
        return folder

    def close(self) -> None:
        """Remove all of it."""
        own, lock, self._own, self._lock = self._own, self._lock, None, None
        if own is not None:
            remove(own)
        if lock is not None:
            os.close(lock)

    def _open(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in self._abandoned():
            remove(folder)
        own = self._root / secrets.token_hex(8)
        making = self._root / f".{own.name}"
        making.mkdir(mode=0o700)
        self._lock = os.open(making / _LOCK, system.open_flags("O_RDWR", "O_CREAT"), 0o600)
        system.lock(self._lock, wait=True)
        making.chmod(0o711)
        self._own = making.rename(own)  # nobody sees it without its lock

    def _abandoned(self) -> Iterator[Path]:
        """Yield the folders of other hosts that are gone."""
        for folder in self._root.iterdir():
            if folder.name.startswith("."):
                continue
            try:
                lock = os.open(folder / _LOCK, system.open_flags("O_RDWR", "O_NOFOLLOW"))
            except OSError:
                continue
            try:
                system.lock(lock, wait=False)
            except OSError:
                continue  # in use
            else:
                yield folder
            finally:
                os.close(lock)


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is possible."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
