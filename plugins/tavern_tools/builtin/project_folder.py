"""Reads, writes, changes, lists and deletes the project's files for tools, with errors that a caller can act on.

How nothing leads out of the folder is in `tavern_host.storage.confined_fs`.
What a file holds is not looked at. All functions here wait for the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.names import did_you_mean
from tavern_host.storage.confined_fs import (
    TooLarge,
    append_file,
    confined_folder,
    is_listed,
    open_file,
    reason_of,
    replace_file,
    require_file,
    stat_file,
    temporary_file,
)
from tavern_host.storage.open_folder import OpenFolder, StillLocked
from tavern_tools.catalog.project_paths import MAX_DEPTH, shown

Steps = tuple[str, ...]

MAX_ENTRIES = 200_000
"""How many files and folders one listing reads."""

LOCK_SECONDS = 10.0
"""How long a writer waits for another one in the same folder."""

_TRIES = 20
"""How often a change is retried that found its file changed by a program that takes no lock."""

_MOST_NAMES = 1_000
"""Among how many names of a folder one that is like a wrong name is looked for."""


@dataclass(frozen=True)
class Found:
    """Something in a folder; `size` in bytes and `modified` in seconds since 1970 are those of a file."""

    steps: Steps
    is_folder: bool
    size: int | None = None
    modified: float | None = None


@dataclass(frozen=True)
class Listed:
    """The first entries of a listing, how many there are, and whether everything was looked at."""

    entries: tuple[Found, ...]
    total: int
    is_complete: bool


def read(root: Path, steps: Steps, *, most: int) -> bytes:
    """Return the content of a file. Raises `NotFound`, and `InvalidInput` beyond `most` bytes."""
    with _folder_of(root, steps) as (folder, name), _told(steps, folder):
        handle = open_file(folder, name)
        try:
            return _content(handle, steps, most)
        finally:
            os.close(handle)


def write(root: Path, steps: Steps, data: bytes, *, overwrite: bool) -> bool:
    """Make `data` the content of a file; missing folders are made. Return whether the file is new.

    Raises `Conflict` where there is one and it is not to be overwritten.
    """
    with _folder_of(root, steps, make=True) as (folder, name), _told(steps, folder), folder.locked(LOCK_SECONDS):
        return replace_file(folder, name, data, overwrite=overwrite)


def append(root: Path, steps: Steps, data: bytes, *, most: int) -> tuple[int, bool]:
    """Add `data` at the end of a file; return its new size, and whether it is new. Missing folders are made.

    One that fails leaves nothing; of one that the machine's end cut off, the first part may stay. Raises
    `InvalidInput` where the file would be larger than `most` bytes.
    """
    with _folder_of(root, steps, make=True) as (folder, name), _told(steps, folder), folder.locked(LOCK_SECONDS):
        try:
            return append_file(folder, name, data, most=most, seconds=LOCK_SECONDS)
        except TooLarge:
            raise too_large(steps, most) from None


def change(root: Path, steps: Steps, make: Callable[[bytes], bytes], *, most: int) -> int:
    """Replace the content of a file by what `make` makes of it; return its new size.

    `make` may be called several times: again whenever the file changed while it worked. Raises what `make` raises,
    `NotFound`, and `Conflict` where the file changes again and again.
    """
    with _folder_of(root, steps) as (folder, name), _told(steps, folder), folder.locked(LOCK_SECONDS):
        for _ in range(_TRIES):
            handle = open_file(folder, name)
            try:
                before = os.fstat(handle)
                data = make(_content(handle, steps, most))
                if len(data) > most:
                    raise too_large(steps, most)
                with temporary_file(folder, data, before.st_mode & 0o777) as temporary:
                    if _same(before, os.fstat(handle)) and _same(before, stat_file(folder, name)):
                        folder.rename(temporary, name)
                        return len(data)
            finally:
                os.close(handle)
    raise Conflict(f"{shown(steps)} was not changed: other writers keep changing it; try again")


def delete(root: Path, steps: Steps) -> bool:
    """Delete a file or an empty folder; return whether it was a folder. Raises `NotFound`."""
    with _folder_of(root, steps) as (folder, name), _told(steps, folder), folder.locked(LOCK_SECONDS):
        about = folder.stat(name)
        if stat.S_ISDIR(about.st_mode):
            try:
                folder.rmdir(name)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise InvalidInput(
                    f"{shown(steps)} is a folder that is not empty; delete what is in it first"
                ) from None
            return True
        require_file(about)
        folder.unlink(name)
        return False


def list_folder(
    root: Path, steps: Steps, *, recursive: bool, wanted: Callable[[Steps, bool], bool], limit: int
) -> Listed:
    """Return the entries of a folder, by path, without links and what is neither file nor folder.

    `wanted` is asked of each entry: its names from that folder on, and whether it is a folder. Raises `NotFound`.
    """
    listing = _Listing(steps, recursive, wanted)
    try:
        with _opened(root, steps) as folder, _told(steps):
            listing.look(folder, ())
            found = sorted(listing.found)
            first = tuple(_described(root, steps, found[:limit]))
    except NotFound:
        if steps:
            raise
        return Listed((), 0, True)  # the first file that is written makes the folder
    return Listed(first, len(found), listing.is_complete)


class _Listing:
    """What was found so far; folders are entered by descriptor, as many at a time as lie in each other."""

    def __init__(self, steps: Steps, recursive: bool, wanted: Callable[[Steps, bool], bool]) -> None:
        self.found: list[tuple[Steps, bool]] = []
        self.is_complete = True
        self._depth = len(steps)
        self._recursive = recursive
        self._wanted = wanted
        self._seen = 0

    def look(self, folder: OpenFolder, steps: Steps) -> None:
        """Look at an open folder."""
        inner: list[str] = []
        with folder.scan() as entries:
            for entry in entries:
                self._seen += 1
                if self._seen > MAX_ENTRIES:
                    self.is_complete = False
                    return
                if not is_listed(entry.name):
                    continue
                is_folder = entry.is_dir(follow_symlinks=False)
                if not is_folder and not entry.is_file(follow_symlinks=False):
                    continue
                if is_folder:
                    inner.append(entry.name)
                if self._wanted((*steps, entry.name), is_folder):
                    self.found.append(((*steps, entry.name), is_folder))
        if not self._recursive:
            return
        for name in sorted(inner):
            if self._depth + len(steps) + 1 >= MAX_DEPTH:
                self.is_complete = False
                return
            try:
                below = folder.folder(name)
            except OSError:  # not ours to read, gone, or turned into a link
                continue
            with below:
                self.look(below, (*steps, name))


def _described(root: Path, steps: Steps, found: list[tuple[Steps, bool]]) -> Iterator[Found]:
    """Yield entries with the sizes and times of files; those that are gone meanwhile are left out."""
    for parent, entries in groupby(found, key=lambda entry: entry[0][:-1]):
        with contextlib.suppress(OSError), confined_folder(root, (*steps, *parent)) as inner:
            for names, is_folder in entries:
                path = (*steps, *names)
                if is_folder:
                    yield Found(path, True)
                    continue
                about = stat_file(inner, names[-1])
                if about is not None and stat.S_ISREG(about.st_mode):
                    yield Found(path, False, about.st_size, about.st_mtime)


# --- folders --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder_of(root: Path, steps: Steps, *, make: bool = False) -> Iterator[tuple[OpenFolder, str]]:
    """Give the folder that something is in, and its name there."""
    with _opened(root, steps[:-1], path=steps, make=make) as folder:
        yield folder, steps[-1]


@contextlib.contextmanager
def _opened(root: Path, folders: Steps, *, path: Steps | None = None, make: bool = False) -> Iterator[OpenFolder]:
    """Give a folder below `root`; with `make`, missing ones are made."""
    with contextlib.ExitStack() as closing:
        with _told(folders if path is None else path):
            folder = closing.enter_context(confined_folder(root, folders, make=make))
        yield folder


def _content(handle: int, steps: Steps, most: int) -> bytes:
    """Return the bytes of an open file. Raises where they are more than `most`, and `Conflict` where the file grows."""
    about = os.fstat(handle)
    if about.st_size > most:
        raise too_large(steps, most)
    with os.fdopen(handle, "rb", closefd=False) as file:
        data = file.read(about.st_size + 1)
    if len(data) > about.st_size:
        raise Conflict(f"{shown(steps)} grew while it was read; try again")
    return data


def _same(before: os.stat_result, after: os.stat_result | None) -> bool:
    """Return whether a file is the one that it was, with the content that it had."""
    return after is not None and _stamp(before) == _stamp(after)


def _stamp(about: os.stat_result) -> tuple[int, ...]:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def too_large(steps: Steps, most: int) -> InvalidInput:
    return InvalidInput(f"{shown(steps)} is or would be larger than {most:,} bytes, which is the most for tools")


@contextlib.contextmanager
def _told(steps: Steps, folder: OpenFolder | None = None) -> Iterator[None]:
    """Turn what the system says into errors that a caller can act on; `folder` is where the last name is sought."""
    try:
        yield
    except FileNotFoundError:
        near = did_you_mean(steps[-1], _names(folder)) if folder is not None and steps else ""
        raise NotFound(f"{shown(steps)} is not in the project's files folder{near}") from None
    except FileExistsError:
        raise Conflict(f"{shown(steps)} is there already and is not to be overwritten") from None
    except StillLocked:
        raise Conflict(f"{shown(steps)} is kept locked by another writer; try again") from None
    except OSError as error:
        raise InvalidInput(f"{shown(steps)} cannot be used: {reason_of(error)}") from None


def _names(folder: OpenFolder) -> list[str]:
    """Return names in an open folder, not all where there are many."""
    names: list[str] = []
    with contextlib.suppress(OSError), folder.scan() as entries:
        for entry in entries:
            if is_listed(entry.name):
                names.append(entry.name)
            if len(names) >= _MOST_NAMES:
                break
    return names
