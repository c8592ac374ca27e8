"""Replaces files so that a crash leaves the old content or the new, holds lock files, and makes private folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

LOCK_SECONDS = 10.0
"""How long a lock file is waited for."""


TEMPORARY = ".tavern-writing-"
"""Prefix of the names of unfinished files; a kill may leave one, until the next start. Listings leave them out."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
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
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with unfinished_at(handle, data, mode) as name:
            yield folder / name
    finally:
        os.close(handle)


@contextlib.contextmanager
def unfinished_at(folder: int, data: bytes, mode: int | None) -> Iterator[str]:
    """Give the name of a temporary file in an open folder, with this content flushed to disk; it is gone after the
    block unless it got another name. Until then it is locked: `remove_unfinished` sees that somebody writes it."""
    name = f"{TEMPORARY}{secrets.token_hex(8)}"
    handle = begin(folder, name, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(handle, mode)
            os.fsync(handle)
            yield name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def begin(folder: int | None, name: str, mode: int) -> int:
    """Return a new file, locked until it is closed, so that `remove_unfinished` sees that somebody writes it."""
    while True:
        handle = os.open(name, _NEW, mode, dir_fd=folder)
        with contextlib.suppress(OSError):  # a file system without locks: nothing there is removed
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # it was removed before it was locked


def remove_unfinished(root: Path) -> None:
    """Remove the temporary files below a folder that writers left which were killed. Blocking."""
    with contextlib.suppress(FileNotFoundError):
        for _, folders, names, handle in os.fwalk(root):
            folders[:] = [name for name in folders if name not in _PASSED_OVER]
            for name in names:
                if name.startswith(TEMPORARY):
                    with contextlib.suppress(OSError):  # somebody writes it, or it is no file
                        _remove_unlocked(handle, name)


def _remove_unlocked(folder: int, name: str) -> None:
    handle = os.open(name, _LOOK, dir_fd=folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(handle)


def read_private(path: Path, most: int, mend: str) -> bytes:
    """Return the bytes of a file that this user alone, or its group, may read; `mend` says what to do where others may.

    Raises `ValueError` for what is no file of at most so many bytes, and `OSError`.
    """
    about = path.stat()
    if not stat.S_ISREG(about.st_mode) or about.st_size > most:
        raise ValueError(f"it is no file of at most {most} bytes")
    if about.st_uid not in (0, os.geteuid()):
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
    flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    try:
        os.fchmod(handle, 0o600)  # an older version let others read it
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
