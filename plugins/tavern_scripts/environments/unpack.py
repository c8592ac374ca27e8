"""Writes down the files that `install.py` sends out of a sandbox: plain files below one folder, and only as much as is
allowed. What is sent is trusted in nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

MOST_FILES = 200_000
MOST_DEEP = 60

_LONGEST_HEAD = 8192
_LONGEST_NAME = 255


class BadPackage(Exception):
    """What came out of the sandbox is not what it should be; the message says why."""


class Unpacker:
    """Takes pieces and writes files below `folder`, which is new and nobody else's. Blocking."""

    def __init__(self, folder: Path, limit: int) -> None:
        """Take the folder and how many bytes all files may have."""
        self._folder = folder
        self._left = limit
        self._files = 0
        self._buffer = bytearray()
        self._made: set[str] = set()
        self._writing: int | None = None
        self._missing = 0
        self._ended = False

    def take(self, piece: bytes) -> None:
        """Take what came next. Raises `BadPackage`, `OSError`."""
        if self._ended:
            raise BadPackage("more was sent after the end")
        self._buffer += piece
        while self._buffer:
            if self._writing is not None:
                if not self._write():
                    return
            elif not self._begin():
                return

    def finish(self) -> int:
        """Return how many files came. Raises `BadPackage` where the end is missing."""
        if not self._ended:
            raise BadPackage("it ended before its time")
        return self._files

    def close(self) -> None:
        """Give up a file that is only half there."""
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None

    def _write(self) -> bool:
        assert self._writing is not None
        piece = self._buffer[: self._missing]
        view = memoryview(piece)
        while view:
            view = view[os.write(self._writing, view) :]
        self._missing -= len(piece)
        del self._buffer[: len(piece)]
        if self._missing:
            return False
        os.close(self._writing)
        self._writing = None
        return True

    def _begin(self) -> bool:
        if len(self._buffer) < 4:
            return False
        length = int.from_bytes(self._buffer[:4], "big")
        if length == 0:
            self._ended = True
            if len(self._buffer) > 4:
                raise BadPackage("more was sent after the end")
            self._buffer.clear()
            return False
        if length > _LONGEST_HEAD:
            raise BadPackage("a head is too long")
        if len(self._buffer) < 4 + length:
            return False
        path, size, executable = _head(bytes(self._buffer[4 : 4 + length]))
        del self._buffer[: 4 + length]
        self._files += 1
        self._left -= size
        if self._files > MOST_FILES:
            raise BadPackage(f"there are more than {MOST_FILES:,} files")
        if self._left < 0:
            raise BadPackage("the files are larger than they may be")
        self._open(path, executable)
        self._missing = size
        return self._write()

    def _open(self, path: list[str], executable: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            for depth in range(1, len(path)):
                folder = "/".join(path[:depth])
                if folder not in self._made:
                    (self._folder / folder).mkdir()
                    self._made.add(folder)
            self._writing = os.open(self._folder.joinpath(*path), flags, 0o755 if executable else 0o644)
        except FileExistsError:
            raise BadPackage("two files have one name") from None


def _head(data: bytes) -> tuple[list[str], int, bool]:
    try:
        head = json.loads(data)
    except (ValueError, RecursionError):
        raise BadPackage("a head is no JSON") from None
    match head:
        case [str() as path, int() as size, bool() as executable] if size >= 0 and not isinstance(size, bool):
            parts = path.split("/")
        case _:
            raise BadPackage("a head is not as it should be")
    try:
        fits = all(part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME for part in parts)
    except UnicodeEncodeError:
        fits = False
    if not fits or "\0" in path or len(parts) > MOST_DEEP:
        raise BadPackage(f"{path!r:.200} is no path of a file")
    return parts, size, executable
