"""Keeps contents in files by the hash of what they hold: `ab/abcdef…` in a folder.

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
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tavern_host import clock
from tavern_host.common import system
from tavern_host.storage.confined_fs import confined_folder, open_file
from tavern_host.storage.files import TEMPORARY, begin, make_folder
from tavern_host.storage.open_folder import open_any

UNUSED_SECONDS = 3600.0
"""How long a half-written file is left alone: its writer may live."""

_HASH = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = (TEMPORARY, ".new-")  # the second from before files were locked while they are written


def hash_of(content: bytes) -> str:
    """Return the name of a content: its SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


class NewContent:
    """A content that is being written to a temporary file `path`, part by part; blocking. The file is locked until
    `discard`: of a killed process, the next start removes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        with open_any(path.parent) as folder:
            self._file = os.fdopen(begin(folder, path.name, 0o600), "wb")

    def add(self, part: bytes | memoryview) -> None:
        """Append bytes. Raises `OSError`."""
        try:
            self._file.write(part)
        except OSError as error:  # it does not say where
            raise OSError(error.errno, error.strerror, str(self.path.parent)) from None
        self._hash.update(part)
        self.size += len(part)

    def finish(self) -> str:
        """Write what is still in memory; return the name of the content. Raises `OSError`."""
        try:
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path.parent)) from None
        if not system.IS_POSIX:  # a file that is open can get no other name
            self._file.close()
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Close and remove the temporary file, unless `ContentFiles.keep` gave it its place."""
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)


class ContentFiles:
    """The files in a folder. Blocking: call it from a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, name: str) -> BinaryIO | None:
        """Return the file of a content, to be read, or None where there is none. Raises `OSError`."""
        if not _HASH.fullmatch(name):
            return None
        try:  # never through a link, nor waiting for a FIFO: a project may come from anybody
            with confined_folder(self._folder, [name[:2]]) as folder:
                return os.fdopen(open_file(folder, name), "rb")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
                return None
            raise

    def read(self, name: str) -> bytes | None:
        """Return a content, or None where it is not there or not what it was. Raises `OSError`."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            content = file.read()
        return content if hash_of(content) == name else None

    def begin(self) -> NewContent:
        """Return a temporary file to write a content to, for `keep`. Raises `OSError`."""
        make_folder(self._folder.parent)
        make_folder(self._folder)
        return NewContent(self._folder / f"{TEMPORARY}{uuid.uuid4().hex}")

    def write(self, content: bytes) -> NewContent:
        """Write a content to a temporary file, for `keep`; to be discarded then. Raises `OSError`."""
        new = self.begin()
        try:
            new.add(content)
            new.finish()
        except OSError:
            new.discard()
            raise
        return new

    def keep(self, temporary: Path, name: str) -> None:
        """Give a temporary file its place, also where that was done before. Raises `OSError`."""
        path = self.path(name)
        make_folder(path.parent)
        try:
            temporary.replace(path)
        except FileNotFoundError:
            if not self.has(name):
                raise

    def has(self, name: str) -> bool:
        """Return whether there is such a file, whatever is in it."""
        return self.path(name).is_file()

    def remove(self, name: str) -> None:
        """Remove a content. Raises `OSError`."""
        self.path(name).unlink(missing_ok=True)

    def names(self) -> Iterator[list[str]]:
        """Yield the names of all contents, a part at a time; and remove what was never finished."""
        with contextlib.suppress(FileNotFoundError):
            for entry in sorted(self._folder.iterdir()):
                if entry.name.startswith(_TEMPORARY):
                    with contextlib.suppress(OSError):
                        if clock.file_seconds() - entry.lstat().st_mtime > UNUSED_SECONDS:
                            entry.unlink()
                elif len(entry.name) == 2 and entry.is_dir() and not entry.is_symlink():
                    yield [path.name for path in entry.iterdir() if _HASH.fullmatch(path.name)]

    def path(self, name: str) -> Path:
        """Return where a content is, or would be."""
        return self._folder / name[:2] / name
