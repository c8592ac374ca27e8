"""Reads, writes and lists files beneath one folder and nowhere else.

Every step of a path is opened beneath the one before it and no link is followed, so that neither `..` nor a link, nor
one that is put there meanwhile, leads out. What a file holds is not looked at. All functions here wait for the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from tavern_host import InvalidInput, NotFound
from tavern_nodes.values import bounded, kind_of, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_BYTES = 16 << 20
"""The largest file that is read or made."""

MAX_ENTRIES = 20_000
"""The most files and folders that one listing looks at."""

MAX_DEPTH = 32
"""How deep folders may lie in each other."""

TEMPORARY = ".tavern-writing-"
"""How the names of unfinished files begin; a crash may leave one, and listings leave them out."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""`O_NONBLOCK`, since opening a FIFO for reading would otherwise wait for a writer."""

LOCK_SECONDS = 5.0
"""How long an append waits for another one to the same file."""

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o644
_ROOT = ("", ".", "./")


def open_inside(root: Path, path: str) -> BinaryIO:
    """Return the regular file at `path`, steps with slashes between them beneath `root`, opened for reading.

    Raises `NotFound` where there is none and `InvalidInput` for a path that leads out, goes through a link or ends
    at something other than a file. The messages are clauses that begin with the path.
    """
    *folders, name = _steps(path)
    with _folder(root, folders, path) as folder, _told(path):
        handle = os.open(name, _READ, dir_fd=folder)
        try:
            _require_file(handle, path)
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise


def read_inside(root: Path, path: str, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a file. Raises what `open_inside` raises, and `InvalidInput` beyond `limit` bytes."""
    with open_inside(root, path) as file, _told(path):
        data = file.read(limit + 1)
    if len(data) > limit:
        raise InvalidInput(f"{_shown(path)} is larger than {limit:,} bytes")
    return data


def stamp_inside(root: Path, path: str) -> list[Any]:
    """Return what differs once a file has changed: its times of change, its size and its number.

    Raises what `open_inside` raises.
    """
    with open_inside(root, path) as file:
        about = os.fstat(file.fileno())
    return [about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino]


def write_inside(root: Path, path: str, data: bytes, *, replace: bool = True) -> int:
    """Make `data` the content of a file, which is made where it is missing, as are its folders; return its size.

    Whoever reads meanwhile, and whoever looks after a crash, finds the old content or the new. Raises `InvalidInput`,
    without `replace` also where there is a file already.
    """
    *folders, name = _steps(path)
    bounded(len(data), MAX_BYTES, _shown(path), "bytes")
    with _folder(root, folders, path, make=True) as folder, _told(path):
        mode = _mode_of(folder, name, path)
        temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(temporary, _NEW, 0o600, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if replace:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.unlink(temporary, dir_fd=folder)
        except FileExistsError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise InvalidInput(f"{_shown(path)} is there already") from None
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)
    return len(data)


def append_inside(root: Path, path: str, data: bytes) -> int:
    """Write `data` at the end of a file, which is made where it is missing, as are its folders; return its new size.

    Appends of several writers do not mix, and one that fails leaves nothing; of one that the machine's end cut off, the
    first part may stay. Raises `InvalidInput`.
    """
    *folders, name = _steps(path)
    with _folder(root, folders, path, make=True) as folder, _told(path):
        handle = os.open(name, _APPEND | os.O_CREAT, _MODE, dir_fd=folder)
        try:
            _require_file(handle, path)
            _lock(handle, path)
            before = os.fstat(handle).st_size
            bounded(before + len(data), MAX_BYTES, _shown(path), "bytes")
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
            except BaseException:
                os.truncate(handle, before)
                raise
            os.fsync(handle)
            return before + len(data)
        finally:
            os.close(handle)


def list_inside(root: Path, path: str = "", *, recursive: bool = False) -> list[tuple[str, os.stat_result]]:
    """Return the regular files of the folder at `path` (empty: of `root`), with their paths from `root`, by path.

    Links, and folders that cannot be read, are left out. With `recursive` also the files of the folders in it, down
    to `MAX_DEPTH`. Raises `NotFound`, and `InvalidInput` for a path that is no folder and for more than
    `MAX_ENTRIES`.
    """
    steps = [] if path in _ROOT else _steps(path)
    listing = _Listing(path, recursive)
    try:
        with _folder(root, steps, path) as folder, _told(path):
            listing.add(folder, steps)
    except NotFound:
        if steps:
            raise
    return sorted(listing.files, key=lambda entry: entry[0])


class _Listing:
    """What was found so far; folders are entered by descriptor, as many at a time as lie in each other."""

    def __init__(self, path: str, recursive: bool) -> None:
        self.files: list[tuple[str, os.stat_result]] = []
        self._path = path
        self._recursive = recursive
        self._seen = 0

    def add(self, folder: int, steps: list[str]) -> None:
        """Look at an open folder."""
        inner: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._count()
                if entry.name.startswith(TEMPORARY) or not _is_text(entry.name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        self.files.append(("/".join([*steps, entry.name]), about))
                    elif stat.S_ISDIR(about.st_mode):
                        inner.append(entry.name)
        for name in inner if self._recursive and len(steps) < MAX_DEPTH else ():
            try:
                below = os.open(name, _FOLDER, dir_fd=folder)
            except OSError:  # not ours to read, gone, or turned into a link
                continue
            try:
                self.add(below, [*steps, name])
            finally:
                os.close(below)

    def _count(self) -> None:
        self._seen += 1
        if self._seen > MAX_ENTRIES:
            raise InvalidInput(f"{_shown(self._path)} holds more than {MAX_ENTRIES:,} files and folders")


@contextlib.contextmanager
def _folder(root: Path, steps: list[str], path: str, *, make: bool = False) -> Iterator[int]:
    """Give the descriptor of the folder that `steps` lead to; with `make`, missing ones are made."""
    handle = -1
    try:
        with _told(path):
            handle = _root(root, make)
            for step in steps:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(step, 0o755, dir_fd=handle)
                inner = os.open(step, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
        yield handle
    finally:
        if handle >= 0:
            os.close(handle)


def _root(root: Path, make: bool) -> int:
    """Open `root`, of which only the last step may not be a link: a project may lie wherever its owner wants."""
    above = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(root.name, 0o755, dir_fd=above)
        return os.open(root.name, _FOLDER, dir_fd=above)
    finally:
        os.close(above)


def _mode_of(folder: int, name: str, path: str) -> int:
    """Return the permissions that a new content of the file gets: those that it has, or those of a new file."""
    try:
        about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return _MODE
    if not stat.S_ISREG(about.st_mode):
        raise InvalidInput(f"{_shown(path)} is not a file that can be written")
    return stat.S_IMODE(about.st_mode) & 0o777


def _lock(handle: int, path: str) -> None:
    """Keep other appends waiting until the file is closed."""
    import fcntl

    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise InvalidInput(f"{_shown(path)} is kept locked by another program") from None
            time.sleep(0.005)


def _require_file(handle: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise InvalidInput(f"{_shown(path)} is not a file")


def _steps(path: Any) -> list[str]:
    """Return the names that a path is made of. Raises `InvalidInput` for what could be anything but beneath `root`."""
    if not isinstance(path, str):
        raise InvalidInput(f"the path must be text, not {kind_of(path)}")
    if not path.strip():
        raise InvalidInput("the path must not be empty")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if path.startswith("/") or ".." in steps or not steps:
        raise InvalidInput(f"{_shown(path)} leads out of the project's files/ folder; name a file by its path in there")
    if "\0" in path or not _is_text(path):
        raise InvalidInput(f"{_shown(path)} cannot be the name of a file")
    if len(steps) > MAX_DEPTH:
        raise InvalidInput(f"{_shown(path)} is more than {MAX_DEPTH} folders deep")
    return steps


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn what the system says into errors that a creator can act on."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"{_shown(path)} is not in the project's files/ folder") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            reason = "the way to it leads over a link or a file, and links are not followed"
        elif error.errno in (errno.EISDIR, errno.ENXIO):
            reason = "it is not a file"
        else:
            reason = error.strerror or "the system refuses"
        raise InvalidInput(f"{_shown(path)} cannot be used: {reason}") from None


def _shown(path: str) -> str:
    return repr(shorten(path)) if path not in _ROOT else "the files/ folder"
