"""Keeps contents in files by the hash of what they hold: `values/ab/abcdef…`.

A file is complete or not there: it is written beside its place and renamed. It is not flushed to the disk, as the
database's commits are not (`synchronous=NORMAL`): both survive the end of the process, and of the last moments before
the power went either may be lost. Reading checks the hash, so that what is damaged counts as not there, and putting
it again mends it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from tavern_host.storage.files import make_folder

UNUSED_SECONDS = 3600.0
"""How long a half-written file is left alone: its writer may live."""

_HASH = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = ".new-"


def hash_of(content: bytes) -> str:
    """Return the name of a content: its SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


class Files:
    """The files in a folder. Blocking: call it from a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """Return a content, or None where it is not there or not what it was. Raises `OSError`."""
        if not _HASH.fullmatch(name):
            return None
        try:  # never through a link, nor waiting for a FIFO: a project may come from anybody
            file = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
                return None
            raise
        with os.fdopen(file, "rb") as reader:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            content = reader.read()
        return content if hash_of(content) == name else None

    def write(self, content: bytes) -> Path:
        """Write a content to a temporary file, for `keep`. Raises `OSError`."""
        make_folder(self._folder.parent)
        make_folder(self._folder)
        path = self._folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
        except OSError as error:  # what fails while it is written does not say where
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(self._folder)) from None
        return path

    def keep(self, temporary: Path, name: str) -> None:
        """Give a temporary file its place, also where that was done before. Raises `OSError`."""
        path = self._path(name)
        make_folder(path.parent)
        try:
            temporary.rename(path)
        except FileNotFoundError:
            if not self.has(name):
                raise

    def has(self, name: str) -> bool:
        """Return whether there is such a file, whatever is in it."""
        return self._path(name).is_file()

    def remove(self, name: str) -> None:
        """Remove a content. Raises `OSError`."""
        self._path(name).unlink(missing_ok=True)

    def names(self) -> Iterator[list[str]]:
        """Yield the names of all contents, a part at a time; and remove what was never finished."""
        with contextlib.suppress(FileNotFoundError):
            for entry in sorted(self._folder.iterdir()):
                if entry.name.startswith(_TEMPORARY):
                    with contextlib.suppress(OSError):
                        if time.time() - entry.lstat().st_mtime > UNUSED_SECONDS:
                            entry.unlink()
                elif len(entry.name) == 2 and entry.is_dir() and not entry.is_symlink():
                    yield [path.name for path in entry.iterdir() if _HASH.fullmatch(path.name)]

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name
