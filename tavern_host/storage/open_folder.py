"""Folders that are open: a name is sought in the folder itself, also where another one took its place meanwhile.

POSIX systems open files relative to a folder. Elsewhere a folder is looked at before each use: who may put links there
could do so in the moment between, and needs a privilege for it on Windows.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tavern_host.common import system

NO_LINK = system.open_flags("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY")
"""`O_NONBLOCK`, since opening a FIFO for reading would otherwise wait for a writer."""


class StillLocked(Exception):
    """Another writer kept the lock for too long."""


class OpenFolder(ABC):
    """An open folder, closed by leaving its block. Names are of entries in it; no link is followed. All of it waits for
    the disk and raises `OSError`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    @abstractmethod
    def folder(self, name: str, *, make: bool = False) -> OpenFolder:
        """Open a folder in it; with `make`, a missing one is made."""

    @abstractmethod
    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Return the descriptor of a file in it, opened with flags of open(2)."""

    @abstractmethod
    def stat(self, name: str) -> os.stat_result:
        """Return the status of an entry, of a link itself."""

    @abstractmethod
    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Give its entries."""

    @abstractmethod
    def rename(self, name: str, new: str) -> None:
        """Give an entry another name, in the place of what has that name."""

    @abstractmethod
    def link(self, name: str, new: str) -> None:
        """Give a file another name beside its own. Raises `FileExistsError`."""

    @abstractmethod
    def unlink(self, name: str) -> None:
        """Remove a file."""

    @abstractmethod
    def rmdir(self, name: str) -> None:
        """Remove an empty folder."""

    @abstractmethod
    def sync(self) -> None:
        """Flush its names to the disk, where the system can."""

    @abstractmethod
    def locked(self, seconds: float) -> AbstractContextManager[None]:
        """Hold its writers' lock within the block. Raises `StillLocked` after some seconds."""


def open_root(path: Path, *, make: bool = False) -> OpenFolder:
    """Open a folder; of its path only the last step may not be a link. With `make`, it is made where it is missing."""
    with open_any(path.parent) as above:
        return above.folder(path.name, make=make)


def open_any(path: Path) -> OpenFolder:
    """Open a folder that may be behind links."""
    if system.IS_POSIX:
        return _ByDescriptor(os.open(path, system.open_flags("O_RDONLY", "O_DIRECTORY")))
    return _ByPath(path.resolve(strict=True))


def open_private(path: str, flags: int) -> int:
    """Open a file as `open` does, following no link; where it is new, this user alone may read it."""
    return os.open(path, flags | NO_LINK, 0o600)


def lock_within(handle: int, seconds: float) -> None:
    """Lock an open file or folder, in so many seconds; one that cannot be locked counts as locked.

    Raises `StillLocked`.
    """
    end = time.monotonic() + seconds  # this thread really waits, whatever clock the host asks
    while True:
        try:
            return system.lock(handle, wait=False)
        except BlockingIOError:
            if time.monotonic() > end:
                raise StillLocked(f"it has been locked for more than {seconds:g} s") from None
            time.sleep(0.003)
        except OSError:  # this file system has no locks
            return None


class _ByDescriptor(OpenFolder):
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def close(self) -> None:
        os.close(self._handle)

    def folder(self, name: str, *, make: bool = False) -> OpenFolder:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=self._handle)
        return _ByDescriptor(os.open(name, NO_LINK | os.O_DIRECTORY, dir_fd=self._handle))

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        return os.open(name, flags | NO_LINK, mode, dir_fd=self._handle)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._handle, follow_symlinks=False)

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[Any]]]:
        return os.scandir(self._handle)

    def rename(self, name: str, new: str) -> None:
        os.rename(name, new, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def link(self, name: str, new: str) -> None:
        os.link(name, new, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._handle)

    def rmdir(self, name: str) -> None:
        os.rmdir(name, dir_fd=self._handle)

    def sync(self) -> None:
        os.fsync(self._handle)

    @contextlib.contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        handle = os.open(".", os.O_RDONLY | NO_LINK, dir_fd=self._handle)  # the lock belongs to a descriptor of its own
        try:
            lock_within(handle, seconds)
            yield
        finally:
            os.close(handle)


class _ByPath(OpenFolder):
    """A folder by its path and by which one it was when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(path.lstat())

    def close(self) -> None:
        pass

    def folder(self, name: str, *, make: bool = False) -> OpenFolder:
        path = self._at(name)
        if make:
            path.mkdir(0o755, exist_ok=True)
        about = _no_link(path)
        if not stat.S_ISDIR(about.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        return _ByPath(path)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        path = self._at(name)
        before = _no_link(path) if os.path.lexists(path) else None
        if before is not None and not stat.S_ISREG(before.st_mode):
            is_folder = stat.S_ISDIR(before.st_mode)
            raise IsADirectoryError(errno.EISDIR, name) if is_folder else OSError(errno.ENXIO, "no file", name)
        handle = os.open(path, flags | NO_LINK, mode)
        if before is not None and _identity(os.fstat(handle)) != _identity(before):
            os.close(handle)
            raise OSError(errno.ELOOP, "another file took its place", name)
        return handle

    def stat(self, name: str) -> os.stat_result:
        return self._at(name).lstat()

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._at(""))

    def rename(self, name: str, new: str) -> None:
        self._at(name).replace(self._at(new))

    def link(self, name: str, new: str) -> None:
        self._at(new).hardlink_to(self._at(name))

    def unlink(self, name: str) -> None:
        self._at(name).unlink()

    def rmdir(self, name: str) -> None:
        self._at(name).rmdir()

    def sync(self) -> None:
        pass

    @contextlib.contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        from filelock import FileLock, Timeout

        name = hashlib.sha256(os.fsencode(self._path)).hexdigest()[:32]  # beside it, people would see the lock's file
        lock = FileLock(Path(tempfile.gettempdir(), f"tavern-{name}.lock"), seconds, poll_interval=0.01)
        try:
            lock.acquire()
        except Timeout:
            raise StillLocked(f"it has been locked for more than {seconds:g} s") from None
        try:
            yield
        finally:
            lock.release()

    def _at(self, name: str) -> Path:
        """Return the path of an entry, once it is sure that the folder is the one that was opened."""
        if name.endswith((".", " ")) or {*name} & {*":/\\"}:  # drives, streams, and other names of one file
            raise OSError(errno.EINVAL, "this system has no such name", name)
        if _identity(_no_link(self._path)) != self._identity:
            raise OSError(errno.ELOOP, "another folder took its place", str(self._path))
        return self._path / name


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _no_link(path: Path) -> os.stat_result:
    """Return the status of what is at a path. Raises `OSError` for a link, and for a junction of Windows."""
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode) or (getattr(about, "st_reparse_tag", None)):
        raise OSError(errno.ELOOP, "it is a link", str(path))
    return about
