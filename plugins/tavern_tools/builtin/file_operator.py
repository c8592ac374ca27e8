"""The provider of `projectFiles`: text files of the project for tools. What keeps it in the files folder is in
`catalog/project_paths.py` and `project_folder.py`."""

from __future__ import annotations

import asyncio
import codecs
import fnmatch
import io
import mimetypes
import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

from tavern_host.context import PluginContext
from tavern_host.contracts.blobs import BINARY, Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_tools.api.projectfiles import (
    FileDeleted,
    FileEdited,
    FileEntry,
    FileListing,
    FileText,
    FileWritten,
    ProjectFiles,
)
from tavern_tools.builtin import project_folder
from tavern_tools.builtin.edits import Edit, Edited, apply
from tavern_tools.builtin.project_folder import Found, Steps
from tavern_tools.catalog.names import quoted
from tavern_tools.catalog.project_paths import read_path, shown

T = TypeVar("T")

SIZE = "fileMegabytes"
"""The setting with the size of the largest file that tools read or make, in megabytes."""

DEFAULT_SIZE = 16.0

MOST_LINES = 10_000
"""How many lines one reading gives at most."""

MOST_TEXT = 200_000
"""How many characters one reading gives; a line that is longer is cut."""

MOST_ENTRIES = 5_000
"""How many entries one listing gives at most."""

MOST_EXPECTED = 100
"""How many occurrences an edit may expect."""

_LONGEST_PATTERN = 200
_PART = 65_536
_AT_ONCE = 4
"""How many operations run at a time: each waits for the disk on a thread that others need too."""

_BOM = "\ufeff"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Files(ProjectFiles):
    """The files of the host's project."""

    def __init__(self, context: PluginContext) -> None:
        self._root = context.project.folder("files")
        self._settings = context.settings
        self._blobs = context.blobs
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def read_file(
        self, file_path: str, *, offset: int = 1, limit: int = 2000, call: CallContext | None = None
    ) -> FileText:
        """Return lines of a text file; see the interface."""
        _require_within("offset", offset, 1, None)
        _require_within("limit", limit, 1, MOST_LINES)
        steps = _file(file_path)
        most = self._most()

        def work() -> FileText:
            data = project_folder.read(self._root, steps, most=most)
            _text(data, steps)
            return _excerpt(_path(steps), data, offset, limit)

        return await self._wait_for(work)

    async def list_files(
        self,
        file_path: str = "",
        *,
        recursive: bool = False,
        pattern: str | None = None,
        limit: int = 500,
        call: CallContext | None = None,
    ) -> FileListing:
        """Return the entries of a folder; see the interface."""
        _require_within("limit", limit, 1, MOST_ENTRIES)
        steps, wanted = read_path(file_path), _matcher(pattern)

        def work() -> FileListing:
            found = project_folder.list_folder(self._root, steps, recursive=recursive, wanted=wanted, limit=limit)
            entries = [_entry(entry) for entry in found.entries]
            return FileListing(path=_path(steps), entries=entries, total=found.total, is_complete=found.is_complete)

        return await self._wait_for(work)

    async def write_file(
        self, file_path: str, content: str, *, overwrite: bool = True, call: CallContext | None = None
    ) -> FileWritten:
        """Make `content` the content of a file; see the interface."""
        steps = _file(file_path)
        data = self._data(content, steps)
        created = await self._wait_for(lambda: project_folder.write(self._root, steps, data, overwrite=overwrite))
        return FileWritten(path=_path(steps), size=len(data), created=created)

    async def read_blob(self, file_path: str, *, call: CallContext | None = None) -> Blob:
        """Return the content of a file as a Blob; see the interface."""
        steps, most = _file(file_path), self._most()
        data = await self._wait_for(lambda: project_folder.read(self._root, steps, most=most))
        return await self._blobs.put(data, mimetypes.guess_type(steps[-1])[0] or BINARY)

    async def write_blob(
        self, file_path: str, content: Blob, *, overwrite: bool = True, call: CallContext | None = None
    ) -> FileWritten:
        """Make a Blob the content of a file; see the interface."""
        steps, most = _file(file_path), self._most()
        if content.length > most:
            raise project_folder.too_large(steps, most)
        data = await self._blobs.read(content)
        created = await self._wait_for(lambda: project_folder.write(self._root, steps, data, overwrite=overwrite))
        return FileWritten(path=_path(steps), size=len(data), created=created)

    async def append_file(self, file_path: str, content: str, *, call: CallContext | None = None) -> FileWritten:
        """Add `content` at the end of a file; see the interface."""
        steps = _file(file_path)
        data, most = self._data(content, steps), self._most()
        size, created = await self._wait_for(lambda: project_folder.append(self._root, steps, data, most=most))
        return FileWritten(path=_path(steps), size=size, created=created)

    async def delete_file(self, file_path: str, *, call: CallContext | None = None) -> FileDeleted:
        """Delete a file or an empty folder; see the interface."""
        steps = _file(file_path)
        is_folder = await self._wait_for(lambda: project_folder.delete(self._root, steps))
        return FileDeleted(path=_path(steps), kind="folder" if is_folder else "file")

    async def apply_edit(
        self,
        file_path: str,
        search_string: str,
        replace_string: str,
        *,
        all: bool = False,
        expected_count: int = 1,
        call: CallContext | None = None,
    ) -> FileEdited:
        """Replace a text in a file; see the interface."""
        _require_within("expected_count", expected_count, 1, MOST_EXPECTED)
        steps = _file(file_path)
        edit = Edit(search_string, replace_string, None if all else expected_count)
        most = self._most()

        def work() -> FileEdited:
            done: list[Edited] = []

            def change(data: bytes) -> bytes:
                text = _text(data, steps)
                bom = _BOM if text.startswith(_BOM) else ""
                done.append(apply(text.removeprefix(_BOM), edit, shown(steps)))
                return self._data(bom + done[-1].text, steps)

            size = project_folder.change(self._root, steps, change, most=most)
            edited = done[-1]
            return FileEdited(path=_path(steps), replaced=edited.replaced, first_line=edited.first_line, size=size)

        return await self._wait_for(work)

    async def _wait_for(self, work: Callable[[], T]) -> T:
        """Do something that waits for the disk. What was begun is done to its end though it is no longer awaited."""
        async with self._turn:
            return await asyncio.to_thread(work)

    def _most(self) -> int:
        """Return the size of the largest file, in bytes. A project may lower what the operator allows, not raise it."""
        layers = self._settings.layers(SIZE)
        allowed = layers.get("environment", layers.get("operator", DEFAULT_SIZE))
        return int(min(float(allowed), float(layers.get("project", allowed))) * 2**20)

    def _data(self, text: str, steps: Steps) -> bytes:
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"the text for {shown(steps)} cannot be written as UTF-8: {error.reason}") from None
        most = self._most()
        if len(data) > most:
            raise InvalidInput(f"the text for {shown(steps)} has {len(data):,} bytes; at most {most:,} are possible")
        return data


def _file(path: str) -> Steps:
    steps = read_path(path)
    if not steps:
        raise InvalidInput("the path names the files folder itself; name a file in it, such as logs/today.log")
    return steps


def _path(steps: Steps) -> str:
    return "/".join(steps)


def _text(data: bytes, steps: Steps) -> str:
    """Return the text of a file. Raises `InvalidInput` for a file that is no text, with its likely type."""
    problem = None
    if data.startswith(_UTF_16):
        problem = "UTF-16"
    elif b"\0" in data:
        problem = "binary data"
    else:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            problem = f"no UTF-8 (byte {error.start:,})"
    kind = mimetypes.guess_type(steps[-1], strict=False)[0]
    about = f"{kind}, " if kind is not None else ""
    raise InvalidInput(f"{shown(steps)} is not a text file in UTF-8 but {problem} ({about}{len(data):,} bytes)")


def _excerpt(path: str, data: bytes, offset: int, limit: int) -> FileText:
    """Return lines of a text, each with the LF that ends it."""
    text = data.removeprefix(codecs.BOM_UTF8)
    total = text.count(b"\n") + (not text.endswith(b"\n") and text != b"")
    if offset > max(total, 1):
        raise InvalidInput(f"{quoted(path)} has {total:,} lines, so there is no line {offset:,}")
    following = io.BytesIO(text)
    following.seek(_start_of(offset, text))
    chosen: list[str] = []
    room = MOST_TEXT
    for line in map(bytes.decode, islice(following, limit)):
        if len(line) > room and chosen:
            break
        chosen.append(line[:room])
        room -= len(line)
    next_offset = offset + len(chosen)
    return FileText(
        path=path,
        content="".join(chosen),
        offset=offset,
        lines=len(chosen),
        total_lines=total,
        next_offset=next_offset if next_offset <= total else None,
        is_cut=room < 0,
        size=len(data),
    )


def _start_of(line: int, text: bytes) -> int:
    """Return where a line begins. Searches a part at a time: one long search would block the event loop."""
    at, left = 0, line - 1
    while left:
        count = text.count(b"\n", at, at + _PART)
        if count >= left:
            break
        at, left = at + _PART, left - count
    for _ in range(left):
        at = text.index(b"\n", at) + 1
    return at


def _matcher(pattern: str | None) -> Callable[[Steps, bool], bool]:
    """Return the test of whether an entry of a listing is wanted, by its names and whether it is a folder."""
    if pattern is None:
        return lambda names, is_folder: True
    if not pattern or len(pattern) > _LONGEST_PATTERN:
        raise InvalidInput(f"the pattern must have 1 to {_LONGEST_PATTERN} characters, it has {len(pattern):,}")
    whole = "/" in pattern
    fits = re.compile(fnmatch.translate(pattern.removeprefix("/"))).match
    return lambda names, is_folder: not is_folder and fits("/".join(names) if whole else names[-1]) is not None


def _entry(found: Found) -> FileEntry:
    modified = None if found.modified is None else datetime.fromtimestamp(int(found.modified), UTC)
    kind = "folder" if found.is_folder else "file"
    return FileEntry.model_validate(
        {"path": _path(found.steps), "kind": kind, "size": found.size, "modified": modified}
    )


def _require_within(name: str, value: int, least: int, most: int | None) -> None:
    if value < least or (most is not None and value > most):
        bounds = f"{least:,} to {most:,}" if most is not None else f"at least {least:,}"
        raise InvalidInput(f"{name} must be {bounds}, it is {value:,}")
