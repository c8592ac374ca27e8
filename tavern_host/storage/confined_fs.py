"""Opens, replaces and appends to files inside one folder and nowhere else: for plugins that work on a project's files.

Every step of a path is opened relative to the one before it and no link is followed, so that neither an existing link
nor one that is placed there meanwhile leads out. A writer holds a lock on the folder that the file is in, so that
writers, also of other plugins and processes, do not undo each other's work. The allowed form of a path and the messages
of errors are the caller's: all functions here raise `OSError`, and wait for the disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tavern_host.storage.files import TEMPORARY, unfinished_at

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""`O_NONBLOCK`, since opening a FIFO for reading would otherwise wait for a writer."""
_MODE = 0o644


class TooLarge(Exception):
    """A file would become larger than it may; `size` is how many bytes it would have."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes are too many")
        self.size = size


class StillLocked(Exception):
    """Another writer kept the lock for too long."""


# --- folders --------------------------------------------------------------------------------------


@contextlib.contextmanager
def confined_folder(root: Path, steps: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Give the descriptor of a folder inside `root`; with `make`, missing ones are made, `root` too.

    Of `root` only the last step may not be a link: a project may lie wherever its owner wants.
    """
    above = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        handle = open_folder(above, root.name, make=make)
    finally:
        os.close(above)
    try:
        for step in steps:
            inner = open_folder(handle, step, make=make)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def open_folder(folder: int, name: str, *, make: bool = False) -> int:
    """Return a descriptor of a folder in an open one; with `make`, a missing one is made."""
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


@contextlib.contextmanager
def writing(folder: int, seconds: float) -> Iterator[None]:
    """Hold the writers' lock of an open folder. Raises `StillLocked` after some seconds."""
    handle = os.open(".", _FOLDER, dir_fd=folder)  # the lock belongs to a descriptor of its own
    try:
        _lock(handle, seconds)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, seconds: float) -> None:
    end = time.monotonic() + seconds  # this thread really waits, whatever clock the host asks
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise StillLocked(f"it has been locked for more than {seconds:g} s") from None
            time.sleep(0.003)
        except OSError:  # this file system has no locks
            return


# --- files ----------------------------------------------------------------------------------------


def open_file(folder: int, name: str) -> int:
    """Return a descriptor of a regular file in an open folder, for reading."""
    handle = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    try:
        require_file(os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def stat_file(folder: int, name: str) -> os.stat_result | None:
    """Return the status of an entry of an open folder, of a link itself; None where there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def require_file(about: os.stat_result) -> None:
    """Raise `IsADirectoryError` for a folder, another `OSError` for a link, a device or the like."""
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


def replace_file(folder: int, name: str, data: bytes, *, overwrite: bool) -> bool:
    """Make `data` the content of a file in an open folder, within `writing`; return whether the file is new.

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
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return before is None


def append_file(folder: int, name: str, data: bytes, *, most: int, seconds: float) -> tuple[int, bool]:
    """Append `data` to a file in an open folder, within `writing`; return its new size, and whether it is new.

    A failure leaves nothing; a crash of the machine may leave the first part. Raises `TooLarge`
    beyond `most` bytes, `StillLocked` where the file itself stays locked for some seconds.
    """
    is_new = stat_file(folder, name) is None
    flags = os.O_WRONLY | os.O_APPEND | _FILE | (os.O_CREAT if is_new else 0)
    handle = os.open(name, flags, _MODE, dir_fd=folder)
    try:
        require_file(os.fstat(handle))
        _lock(handle, seconds)  # for writers that append without the lock on its folder
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
def temporary_file(folder: int, data: bytes, mode: int) -> Iterator[str]:
    """As `unfinished_at`; afterwards the folder is flushed to disk as well."""
    with unfinished_at(folder, data, mode) as name:
        yield name
        os.fsync(folder)


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
