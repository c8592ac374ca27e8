"""Replaces files so that a crash leaves the old content or the new, holds lock files, and makes private folders."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK_SECONDS = 10.0
"""How long a lock file is waited for."""


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the content of `path` with `data`; the folder must exist.

    Written to a temporary file beside it, flushed to disk, then renamed over it.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
