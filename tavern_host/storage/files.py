"""Replaces files so that a crash leaves the old content or the new, holds lock files, and makes private folders."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from tavern_host import clock
from tavern_host.common import system
from tavern_host.storage.open_folder import OpenFolder, open_any

LOCK_SECONDS = 10.0
"""How long a lock file is waited for."""


TEMPORARY = ".tavern-writing-"
"""Prefix of the names of unfinished files; a kill may leave one, until the next start. Listings leave them out."""

_NEW = system.open_flags("O_WRONLY", "O_CREAT", "O_EXCL")
_LEFT_SECONDS = 3600.0
"""How long a file that cannot be locked is left alone: its writer may live."""
_PASSED_OVER = frozenset({".git", "node_modules", "site-packages"})


def write_atomic(path: Path, data: bytes, *, mode: int | None = 0o644) -> None:
    """Replace the content of `path` with `data`; the folder must exist.

    Written to a temporary file beside it, flushed to disk, then renamed over it. With the mode None it is that of any
    new file of this process.
    """
    with unfinished(path.parent, data, mode) as temporary:
        temporary.replace(path)


@contextlib.contextmanager
def unfinished(folder: Path, data: bytes, mode: int | None) -> Iterator[Path]:
    """Give a temporary file in a folder, with this content flushed to disk, within the block."""
    with open_any(folder) as opened, unfinished_at(opened, data, mode) as name:
        yield folder / name


@contextlib.contextmanager
def unfinished_at(folder: OpenFolder, data: bytes, mode: int | None) -> Iterator[str]:
    """Give the name of a temporary file in an open folder, with this content flushed to disk; it is gone after the
    block unless it got another name. Until then it is locked: `remove_unfinished` sees that somebody writes it."""
    name = f"{TEMPORARY}{secrets.token_hex(8)}"
    handle = begin(folder, name, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                system.set_mode(handle, mode)
            os.fsync(handle)
            if not system.IS_POSIX:  # a file that is open can get no other name
                file.close()
            yield name
    finally:
        with contextlib.suppress(OSError):
            folder.unlink(name)


def begin(folder: OpenFolder, name: str, mode: int) -> int:
    """Return a new file, locked until it is closed, so that `remove_unfinished` sees that somebody writes it."""
    while True:
        handle = folder.open(name, _NEW, mode)
        with contextlib.suppress(OSError):  # a file system without locks: nothing there is removed
            system.lock(handle, wait=True)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # it was removed before it was locked


def remove_unfinished(root: Path) -> None:
    """Remove the temporary files below a folder that writers left which were killed. Blocking."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), open_any(root) as folder:
        _remove_below(folder)


def _remove_below(folder: OpenFolder, levels: int = 100) -> None:
    with folder.scan() as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with contextlib.suppress(OSError):  # somebody writes it, it is no file, or gone
            if not is_folder and name.startswith(TEMPORARY):
                _remove_unlocked(folder, name)
            elif is_folder and levels and name not in _PASSED_OVER:
                with folder.folder(name) as inner:  # each level is open meanwhile
                    _remove_below(inner, levels - 1)


def _remove_unlocked(folder: OpenFolder, name: str) -> None:
    if not system.IS_POSIX:
        if clock.file_seconds() - folder.stat(name).st_mtime > _LEFT_SECONDS:
            folder.unlink(name)
        return
    handle = folder.open(name, os.O_RDONLY)
    try:
        system.lock(handle, wait=False)
        folder.unlink(name)
    finally:
        os.close(handle)


def read_private(path: Path, most: int, mend: str) -> bytes:
    """Return the bytes of a file that this user alone, or its group, may read; `mend` says what to do where others may.

    Raises `ValueError` for what is no file of at most so many bytes, and `OSError`.
    """
    about = path.stat()
    if not stat.S_ISREG(about.st_mode) or about.st_size > most:
        raise ValueError(f"it is no file of at most {most} bytes")
    if system.is_of_another_user(about):
        raise PermissionError(errno.EACCES, "it belongs to another user")
    if about.st_mode & 0o007:
        raise PermissionError(errno.EACCES, f"every user can read or write it; {mend}")
    return path.read_bytes()


def make_private(path: Path, data: bytes) -> None:
    """Make a file that this user alone may read, whole from its first moment; where there is one, that stays."""
    if os.path.lexists(path):
        return
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError), unfinished(path.parent, data, 0o600) as temporary:
        path.hardlink_to(temporary)  # as O_EXCL does, it fails where there is one


@contextlib.contextmanager
def locked(path: Path, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of a lock file while the block runs, against other processes and threads.

    The system releases it where the process is killed, and the file stays. Raises `TimeoutError` after `seconds` (None:
    `LOCK_SECONDS`); `OSError` for a link and where the file system has no locks.
    """
    from filelock import FileLock, Timeout

    seconds = LOCK_SECONDS if seconds is None else seconds
    make_lock_file(path)
    lock = FileLock(path, seconds, mode=0o600, poll_interval=0.01, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise TimeoutError(errno.ETIMEDOUT, f"{holder_of(path)} has held it for {seconds:g} s", str(path)) from None
    try:
        yield
    finally:
        lock.release()


def make_lock_file(path: Path) -> None:
    """Make a lock file that no other user may open, so that none can lock it, and the folders above it."""
    make_folder(path.parent)
    with open_any(path.parent) as folder:
        try:
            handle = folder.open(path.name, os.O_RDONLY | os.O_CREAT)
        except OSError as error:  # it names the file within its folder alone
            raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        system.set_mode(handle, 0o600)  # an older version let others read it
    finally:
        os.close(handle)


def holder_of(path: Path) -> str:
    """Return which process holds a lock file, as far as the system says."""
    with contextlib.suppress(OSError, LookupError, StopIteration):
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        inode = f":{path.stat().st_ino}"
        process = next(each[4] for each in locks if each[1] == "FLOCK" and each[5].endswith(inode))
        return f"process {process} ({Path('/proc', process, 'comm').read_text().strip()})"
    return "another process"


def make_folder(folder: Path) -> None:
    """Make a folder that only this user may enter, and its parents.

    Raises `OSError` for a link: a project may come from anybody.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, and nothing is kept behind one", str(folder))
