"""Replaces files so that a crash leaves the old content or the new, holds lock files, and makes private folders."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


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
def locked(path: Path, seconds: float = -1) -> Iterator[None]:
    """Hold the lock of a lock file while the block runs, against other processes and threads; its folder must exist.

    The system releases it where the process is killed, and the file stays. Waits without end unless `seconds` are
    given, and raises `TimeoutError` then; `OSError` for a link and where the file system has no locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, seconds, mode=0o600, poll_interval=0.01, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        message = f"another process did not let go of it for {seconds:g} s"
        raise TimeoutError(errno.ETIMEDOUT, message, str(path)) from None
    try:
        yield
    finally:
        lock.release()


def make_folder(folder: Path) -> None:
    """Make a folder that only this user may enter, and its parents.

    Raises `OSError` for a link: a project may come from anybody.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, and nothing is kept behind one", str(folder))
