"""Whether files in folders have changed, without a look at the disk each time that somebody asks.

The kernel of Linux notes what happens in folders (inotify), and is asked with one call that does not wait; on other
systems the files are looked at each time. Where nobody asks nothing is done: there is no thread and no timer.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import select
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from weakref import WeakSet

from tavern_host import clock

LOOK_EVERY = 1.0
"""Seconds after which files are looked at all the same, once somebody asks: the kernel notes nothing of what another
machine does on a shared disk."""

FileStamp = tuple[str, int, int, int]
"""A file's path, modification time in nanoseconds, size and inode: what shows that it has changed."""

_ATTRIBUTES, _MOVED, _CREATED, _DELETED, _ITSELF = 0x4, 0xC0, 0x100, 0x200, 0xC00
_ONLY_FOLDERS, _BESIDES = 0x0100_0000, 0x2000_0000
_NAMES = _ATTRIBUTES | _MOVED | _CREATED | _DELETED | _ITSELF | _ONLY_FOLDERS | _BESIDES
_CONTENT = _NAMES | 0x2
_OF_FOLDER, _OVERFLOW, _REMOVED = 0x4000_0000, 0x4000, 0x8000
"""Masks of inotify(7)."""

_TRUSTED_AFTER = 2.0
"""Seconds after which the time of a file is trusted to differ once the file does."""

_NOTE = struct.Struct("iIII")
_MOST = 1 << 16
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP})


class WatchedFiles:
    """The files whose names end with a suffix, in folders and their subfolders; for one event loop.

    Hidden folders and folders behind links are not looked into.
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._found: tuple[tuple[str, ...], tuple[FileStamp, ...]] = (), ()
        self._revision = 0
        self._notes, self._known = 0, -1
        """How many notes of changes there were, and how many before the last look; -1 once that is old, or where the
        kernel does not note all changes of what was found."""
        self._begun, self._done = 0, 0
        self._asking, self._looking = asyncio.Lock(), threading.Lock()
        self._inside: set[int] = set()
        self._above: defaultdict[int, set[str]] = defaultdict(set)
        """The watches of the folders that were looked into, and of those above with the names that lead there."""

    async def revision(self, *folders: str) -> int:
        """Return a number that grows whenever a file is another than it was, or the folders are others.

        What is read afterwards is current for as long as the number is the same. The files are looked at, on a thread,
        where the kernel noted a change or cannot note all, and after `LOOK_EVERY`.
        """
        _QUEUE.read()
        if self._known != self._notes or folders != self._found[0]:
            asked = self._begun
            async with self._asking:  # those who ask meanwhile share one look that begins after they asked
                if self._done <= asked or folders != self._found[0]:
                    self._begun += 1
                    await asyncio.to_thread(self._look, folders, self._begun)
                    asyncio.get_running_loop().call_later(LOOK_EVERY, self._expire, self._begun)
        return self._revision

    def note(self, watch: int, mask: int, name: str) -> None:
        """Take a note of the kernel about a folder, or what has this name in it. The queue is locked."""
        is_inside, is_folder = watch in self._inside, bool(mask & _OF_FOLDER)
        if is_inside and not is_folder and name.endswith(self._suffix):
            self._revision += 1  # two changes within a moment may leave time, size and inode as they were
            self._notes += 1
        elif (is_inside and is_folder) or mask & (_ITSELF | _OVERFLOW | _REMOVED) or name in self._above.get(watch, ()):
            self._notes += 1

    def _expire(self, number: int) -> None:
        if self._done == number:  # else there was a later look
            self._known = -1

    def _look(self, folders: tuple[str, ...], number: int) -> None:
        with self._looking:  # the last look may still run, if its caller was cancelled
            notes, is_complete = self._notes, True

            def watched(watch: Callable[[str], None], path: str) -> None:
                nonlocal is_complete
                try:
                    watch(path)
                except OSError as error:
                    is_complete &= error.errno in _ABSENT

            for folder in folders:
                watched(self._watch_above, folder)
            enter = partial(watched, self._watch_inside)
            stamps = tuple(stamp for folder in folders for stamp in file_stamps(folder, self._suffix, enter))
            is_complete &= not any(Path(path).is_symlink() for path, *_ in stamps)
            with _QUEUE.lock:
                now = clock.file_seconds()
                is_young = any(now - stamp[1] / 1e9 < _TRUSTED_AFTER for stamp in stamps)
                self._revision += (folders, stamps) != self._found or (is_young and not is_complete)
                self._found = folders, stamps
                self._known, self._done = notes if is_complete else -1, number

    def _watch_inside(self, folder: str) -> None:
        self._inside.add(_QUEUE.watch(folder, _CONTENT, self))

    def _watch_above(self, path: str) -> None:
        """Watch the folder that a path is in, and until that is there the nearest above it."""
        above, name = os.path.split(path)
        try:
            self._above[_QUEUE.watch(above, _NAMES, self)].add(name)
        except OSError as error:
            if error.errno not in _ABSENT or not name:
                raise
            self._watch_above(above)
            self._above[_QUEUE.watch(above, _NAMES, self)].add(name)  # it may have been made meanwhile


class _Queue:
    """What the kernel notes for this process, and who takes the notes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._watchers: dict[int, WeakSet[WatchedFiles]] = {}
        self._descriptor = -1
        if hasattr(select, "epoll"):  # as on Linux
            self._library = ctypes.CDLL(None, use_errno=True)
            self._noted = select.epoll()

    def watch(self, folder: str, mask: int, watcher: WatchedFiles) -> int:
        """Let the kernel note what happens in a folder; return the number of the watch. Raises `OSError`."""
        if not hasattr(self, "_noted"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        with self.lock:
            if self._descriptor < 0:
                self._descriptor = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
                self._noted.register(self._descriptor, select.EPOLLIN)
        number = self._call("inotify_add_watch", self._descriptor, os.fsencode(folder), mask)
        with self.lock:
            self._watchers.setdefault(number, WeakSet()).add(watcher)
        return number

    def read(self) -> None:
        """Pass on what was noted until now. Never waits for the kernel."""
        with self.lock:
            while self._descriptor >= 0 and self._noted.poll(0):
                for watch, mask, name in _notes(os.read(self._descriptor, _MOST)):
                    self._pass_on(watch, mask, name)

    def _pass_on(self, watch: int, mask: int, name: str) -> None:
        watchers = self._watchers.get(watch, ())
        for watcher in {each for some in self._watchers.values() for each in some} if mask & _OVERFLOW else [*watchers]:
            watcher.note(watch, mask, name)
        if mask & _REMOVED:
            self._watchers.pop(watch, None)
        elif watch in self._watchers and not watchers:  # nobody asks any more
            self._library.inotify_rm_watch(self._descriptor, watch)

    def _call(self, name: str, *arguments: object) -> int:
        number: int = getattr(self._library, name)(*arguments)
        if number < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return number


_QUEUE = _Queue()


def file_stamps(
    folder: str, suffix: str, entering: Callable[[str], object] = lambda folder: None
) -> tuple[FileStamp, ...]:
    """Return the stamps of the files with this suffix in a folder and its subfolders, by path; none where it is absent.

    A link that leads nowhere is among them; hidden folders and those behind links are not looked into. `entering` is
    called with each folder before it is looked into. Blocks.
    """
    found: list[FileStamp] = []
    waiting = [folder]
    while waiting:
        below = waiting.pop()
        entering(below)
        try:
            entries = os.scandir(below)
        except OSError:
            continue  # gone, or not to be read
        with entries:
            for entry in entries:
                if entry.name.endswith(suffix):
                    found += _stamp(entry)
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return tuple(sorted(found))


def _stamp(entry: os.DirEntry[str]) -> Iterator[FileStamp]:
    try:
        status = entry.stat()
    except OSError:
        if entry.is_symlink():
            yield entry.path, 0, 0, 0
        return  # else gone between the listing and now
    yield entry.path, status.st_mtime_ns, status.st_size, status.st_ino


def _notes(data: bytes) -> Iterator[tuple[int, int, str]]:
    place = 0
    while place < len(data):
        watch, mask, _, length = _NOTE.unpack_from(data, place)
        place += _NOTE.size + length
        yield watch, mask, os.fsdecode(data[place - length : place].rstrip(b"\0"))
