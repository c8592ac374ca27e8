"""Reads, writes and lists the project's files for nodes, by paths that are checked here.

How no link leads out of the folder is in `tavern_host.storage.confined_fs`.
What a file holds is not looked at. All functions here wait for the disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO

from tavern_host import InvalidInput, NotFound
from tavern_host.storage.confined_fs import (
    TooLarge,
    append_file,
    confined_folder,
    is_listed,
    is_text,
    open_file,
    reason_of,
    replace_file,
)
from tavern_host.storage.open_folder import OpenFolder, StillLocked
from tavern_nodes.values import bounded, kind_of, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_BYTES = 16 << 20
"""The largest file that is read or made."""

MAX_ENTRIES = 20_000
"""The most files and folders that one listing reads."""

MAX_DEPTH = 32
"""How deep folders may lie in each other."""

LOCK_SECONDS = 5.0
"""How long a writer waits for another one in the same folder."""

_ROOT = ("", ".", "./")


def open_inside(root: Path, path: str) -> BinaryIO:
    """Return the regular file at `path`, steps with slashes between them below `root`, opened for reading.

    Raises `NotFound` where there is none and `InvalidInput` for a path that leads out, goes through a link or ends
    at something other than a file. The messages are clauses that begin with the path.
    """
    *folders, name = _steps(path)
    with _folder(root, folders, path) as folder, _told(path):
        return os.fdopen(open_file(folder, name), "rb")


def read_inside(root: Path, path: str, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a file. Raises what `open_inside` raises, and `InvalidInput` beyond `limit` bytes."""
    with open_inside(root, path) as file, _told(path):
        data = file.read(limit + 1)
    if len(data) > limit:
        raise InvalidInput(f"{_shown(path)} is larger than {limit:,} bytes")
    return data


def stamp_inside(root: Path, path: str) -> list[Any]:
    """Return a stamp that differs once a file has changed: its times of change, its size and its number.

    Raises what `open_inside` raises.
    """
    with open_inside(root, path) as file:
        about = os.fstat(file.fileno())
    return [about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino]


def write_inside(root: Path, path: str, data: bytes, *, replace: bool = True) -> int:
    """Make `data` the content of a file, which is made where it is missing, as are its folders; return its size.

    A concurrent reader, and one after a crash, finds the old content or the new. Raises `InvalidInput`,
    without `replace` also where there is a file already.
    """
    *folders, name = _steps(path)
    bounded(len(data), MAX_BYTES, _shown(path), "bytes")
    with _folder(root, folders, path, make=True) as folder, _told(path), folder.locked(LOCK_SECONDS):
        replace_file(folder, name, data, overwrite=replace)
    return len(data)


def append_inside(root: Path, path: str, data: bytes) -> int:
    """Write `data` at the end of a file, which is made where it is missing, as are its folders; return its new size.

    Appends of several writers do not mix, and one that fails leaves nothing; of one that the machine's end cut off, the
    first part may stay. Raises `InvalidInput`.
    """
    *folders, name = _steps(path)
    with _folder(root, folders, path, make=True) as folder, _told(path), folder.locked(LOCK_SECONDS):
        try:
            return append_file(folder, name, data, most=MAX_BYTES, seconds=LOCK_SECONDS)[0]
        except TooLarge as error:
            bounded(error.size, MAX_BYTES, _shown(path), "bytes")
            raise


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

    def add(self, folder: OpenFolder, steps: list[str]) -> None:
        """Look at an open folder."""
        inner: list[str] = []
        with folder.scan() as entries:
            for entry in entries:
                self._count()
                if not is_listed(entry.name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        self.files.append(("/".join([*steps, entry.name]), about))
                    elif stat.S_ISDIR(about.st_mode):
                        inner.append(entry.name)
        for name in inner if self._recursive and len(steps) < MAX_DEPTH else ():
            try:
                below = folder.folder(name)
            except OSError:  # not ours to read, gone, or turned into a link
                continue
            with below:
                self.add(below, [*steps, name])

    def _count(self) -> None:
        self._seen += 1
        if self._seen > MAX_ENTRIES:
            raise InvalidInput(f"{_shown(self._path)} holds more than {MAX_ENTRIES:,} files and folders")


@contextlib.contextmanager
def _folder(root: Path, steps: list[str], path: str, *, make: bool = False) -> Iterator[OpenFolder]:
    """Give the folder that `steps` lead to; with `make`, missing ones are made."""
    with contextlib.ExitStack() as closing:
        with _told(path):
            folder = closing.enter_context(confined_folder(root, steps, make=make))
        yield folder


def _steps(path: Any) -> list[str]:
    """Return the names that a path is made of. Raises `InvalidInput` for what could be anything but below `root`."""
    if not isinstance(path, str):
        raise InvalidInput(f"the path must be text, not {kind_of(path)}")
    if not path.strip():
        raise InvalidInput("the path must not be empty")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if path.startswith("/") or ".." in steps or not steps:
        raise InvalidInput(f"{_shown(path)} leads out of the project's files/ folder; name a file by its path in there")
    if "\0" in path or not is_text(path):
        raise InvalidInput(f"{_shown(path)} cannot be the name of a file")
    if len(steps) > MAX_DEPTH:
        raise InvalidInput(f"{_shown(path)} is more than {MAX_DEPTH} folders deep")
    return steps


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn what the system says into errors that a creator can act on."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"{_shown(path)} is not in the project's files/ folder") from None
    except FileExistsError:
        raise InvalidInput(f"{_shown(path)} is there already") from None
    except StillLocked:
        raise InvalidInput(f"{_shown(path)} is kept locked by another program") from None
    except OSError as error:
        raise InvalidInput(f"{_shown(path)} cannot be used: {reason_of(error)}") from None


def _shown(path: str) -> str:
    return repr(shorten(path)) if path not in _ROOT else "the files/ folder"
