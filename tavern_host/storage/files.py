"""Writing files so that a crash leaves the old content or the new, never a mixture; and folders of one user's own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
def locked(path: Path) -> Iterator[None]:
    """Keep other processes that use this function on `path` waiting while the block runs; the folder must exist."""
    with path.with_name(f".{path.name}.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_folder(folder: Path) -> None:
    """Make a folder that only this user may enter, and those above it.

    Raises `OSError` for a link: a project may come from anybody.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link, and nothing is kept behind one", str(folder))
