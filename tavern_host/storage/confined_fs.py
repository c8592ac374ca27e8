"""Opens, replaces and appends to files inside one folder and nowhere else: for plugins that work on a project's files.

Every step of a path is opened relative to the one before it and no link is followed, so that neither an existing link
nor one that is placed there meanwhile leads out. A writer holds a lock on the folder that the file is in, so that
writers, also of other plugins and processes, do not undo each other's work. The allowed form of a path and the messages
of errors are the caller's: all functions here raise `OSError`, and wait for the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from tavern_host.storage.files import TEMPORARY, unfinished_at
from tavern_host.storage.open_folder import OpenFolder, lock_within, open_root

_MODE = 0o644


class TooLarge(Exception):
    """A file would become larger than it may; `size` is how many bytes it would have."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes are too many")
        self.size = size


@contextlib.contextmanager
def confined_folder(root: Path, steps: Sequence[str], *, make: bool = False) -> Iterator[OpenFolder]:
    """Give a folder inside `root`, opened; with `make`, missing ones are made, `root` too.

    Of `root` only the last step may not be a link: a project may lie wherever its owner wants.
    """
    folder = open_root(root, make=make)
    try:
        for step in steps:
            inner = folder.folder(step, make=make)
            folder.close()
            folder = inner
        yield folder
    finally:
        folder.close()


# --- files ----------------------------------------------------------------------------------------


def open_file(folder: OpenFolder, name: str) -> int:
    """Return a descriptor of a regular file in an open folder, for reading."""
    handle = folder.open(name, os.O_RDONLY)
    try:
        require_file(os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def stat_file(folder: OpenFolder, name: str) -> os.stat_result | None:
    """Return the status of an entry of an open folder, of a link itself; None where there is none."""
    try:
        return folder.stat(name)
    except FileNotFoundError:
        return None


def require_file(about: os.stat_result) -> None:
    """Raise `IsADirectoryError` for a folder, another `OSError` for a link, a device or the like."""
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def replace_file(folder: OpenFolder, name: str, data: bytes, *, overwrite: bool) -> bool:
    """Make `data` the content of a file in an open folder, which is locked; return whether the file is new.

    Readers find the old content or the new, also after a crash. A file keeps its permissions. Raises
    `FileExistsError` where there is one and it is not to be overwritten.
    """
    before = stat_file(folder, name)
    if before is not None:
        require_file(before)
        if not overwrite:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    with temporary_file(folder, data, _MODE if before is None else before.st_mode & 0o777) as temporary:
        if overwrite:
            folder.rename(temporary, name)
        else:
            folder.link(temporary, name)
    return before is None


def append_file(folder: OpenFolder, name: str, data: bytes, *, most: int, seconds: float) -> tuple[int, bool]:
    """Append `data` to a file in an open folder, which is locked; return its new size, and whether it is new.

    A failure leaves nothing; a crash of the machine may leave the first part. Raises `TooLarge`
    beyond `most` bytes, `StillLocked` where the file itself stays locked for some seconds.
    """
    is_new = stat_file(folder, name) is None
    handle = folder.open(name, os.O_WRONLY | os.O_APPEND | (os.O_CREAT if is_new else 0), _MODE)
    try:
        require_file(os.fstat(handle))
        lock_within(handle, seconds)  # for writers that append without the lock on its folder
        before = os.fstat(handle).st_size
        if before + len(data) > most:
            raise TooLarge(before + len(data))
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        except BaseException:
            os.truncate(handle, before)
            raise
        return before + len(data), is_new
    finally:
        os.close(handle)


@contextlib.contextmanager
def temporary_file(folder: OpenFolder, data: bytes, mode: int) -> Iterator[str]:
    """As `unfinished_at`; afterwards the folder is flushed to disk as well."""
    with unfinished_at(folder, data, mode) as name:
        yield name
        folder.sync()


# --- names ----------------------------------------------------------------------------------------


def is_listed(name: str) -> bool:
    """Return whether a listing shows an entry of this name: it is text, and no unfinished file."""
    return not name.startswith(TEMPORARY) and is_text(name)


def is_text(name: str) -> bool:
    """Return whether a name can be written as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def reason_of(error: OSError) -> str:
    """Return, as a clause, why something inside a folder cannot be used."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        return "the way to it leads over a link or a file, and links are not followed"
    if error.errno == errno.EISDIR:
        return "it is a folder, not a file"
    if error.errno == errno.ENXIO:
        return "it is not a file; links and devices are not used"
    return error.strerror or "the system refuses"
