"""The files of a project that tools may read and write, and the `projectFiles` service.

A path is that of a file in the project's files folder, with `/` between folders; a `/` in front means that folder
itself, so `/logs/today.log` and `logs/today.log` are one file. Nothing outside of the folder can be named, and links
are not followed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts
from tavern_host.contracts.wire import Model

PROJECT_FILE = "project-file"
"""Marks a text as the path of one of the project's files: the `format` in a JSON Schema, and in the `config` of a slot.

A tool gets such an argument, and rules, approvals, caches and the audit log see it, in its canonical form: the names of
folders and file with one `/` between them, as `logs/today.log`; the files folder itself is an empty text."""

ProjectPath = Annotated[str, Field(json_schema_extra={"format": PROJECT_FILE})]
"""The type of a service method's parameter that is such a path."""


class FileText(Model):
    """Text of a file: `lines` of its `total_lines` lines, from line `offset` on (counted from 1), as they stand there.

    `next_offset` is where to read on; None where the rest of the file is in `content`. `is_cut`: the only line given is
    longer than that, and its end is left out. `size` is that of the whole file, in bytes.
    """

    path: str
    content: str
    offset: int = 1
    lines: int = 0
    total_lines: int = 0
    next_offset: int | None = None
    is_cut: bool = False
    size: int = 0


class FileWritten(Model):
    """A file as it is after it was written: its size in bytes, and whether it is new."""

    path: str
    size: int
    created: bool = False


class FileEntry(Model):
    """A file or folder of a listing. `path` goes from the files folder; `size` (bytes) and `modified` are of files."""

    path: str
    kind: Literal["file", "folder"]
    size: int | None = None
    modified: datetime | None = None


class FileListing(Model):
    """What a folder holds, by path: the first of the `total` entries. Where there are more than could be looked at,
    `is_complete` is false and `total` counts those that were."""

    path: str
    entries: list[FileEntry] = Field(default_factory=list)
    total: int = 0
    is_complete: bool = True


class FileDeleted(Model):
    """What was deleted."""

    path: str
    kind: Literal["file", "folder"]


class FileEdited(Model):
    """A file after an edit. `first_line` is the line, counted from 1, where the first replaced text began."""

    path: str
    replaced: int
    first_line: int
    size: int


_READ = "Read and list the project's files."
_WRITE = "Write, change and delete the project's files."


class ProjectFiles(ServiceInterface, name="projectFiles", version=2):
    """Reads and writes what lies in the project's files folder. Text is UTF-8.

    All methods raise `InvalidInput` for a path that names nothing in the folder, leads over a link, or ends at
    something other than what is asked for; beyond the size that the operator allows; and where the disk refuses.
    """

    @acts("projectFiles:read", _READ)
    async def read_file(
        self, file_path: ProjectPath, *, offset: int = 1, limit: int = 2000, call: CallContext | None = None
    ) -> FileText:
        """Return at most `limit` lines of a text file, from line `offset` on; fewer where they are very long.

        Raises `NotFound` with near names, `InvalidInput` for what is no text, saying what it looks like.
        """

    @acts("projectFiles:read", _READ)
    async def list_files(
        self,
        file_path: ProjectPath = "",
        *,
        recursive: bool = False,
        pattern: str | None = None,
        limit: int = 500,
        call: CallContext | None = None,
    ) -> FileListing:
        """Return the files and folders in a folder, with `recursive` also those in the folders within it.

        `pattern` (`*` is any text, `?` any character) picks files by name, or, where it has a `/`, by the path from
        that folder; folders are left out then. Links are left out. Raises `NotFound`.
        """

    @acts("projectFiles:write", _WRITE)
    async def write_file(
        self, file_path: ProjectPath, content: str, *, overwrite: bool = True, call: CallContext | None = None
    ) -> FileWritten:
        """Make `content` the whole content of a file; missing folders are made.

        A crash leaves the old content or the new. Raises `Conflict` where there is a file and `overwrite` is false.
        """

    @acts("projectFiles:write", _WRITE)
    async def append_file(
        self, file_path: ProjectPath, content: str, *, call: CallContext | None = None
    ) -> FileWritten:
        """Add `content` at the end of a file, exactly as it is given; the file and missing folders are made."""

    @acts("projectFiles:write", _WRITE)
    async def delete_file(self, file_path: ProjectPath, *, call: CallContext | None = None) -> FileDeleted:
        """Delete a file or an empty folder. Raises `NotFound`."""

    @acts("projectFiles:write", _WRITE)
    async def apply_edit(
        self,
        file_path: ProjectPath,
        search_string: str,
        replace_string: str,
        *,
        all: bool = False,
        expected_count: int = 1,
        call: CallContext | None = None,
    ) -> FileEdited:
        """Replace a text in a file that occurs there exactly `expected_count` times, or, with `all`, wherever it does.

        In a file all of whose lines end with CR LF, line breaks of both texts count as such. Otherwise nothing is
        changed and `InvalidInput` says where the text is, or what in the file is nearest to it. Raises `NotFound`,
        `Conflict` where another writer keeps changing the file.
        """

    @acts("projectFiles:read", _READ, since=2)
    async def read_blob(self, file_path: ProjectPath, *, call: CallContext | None = None) -> Blob:
        """Return the content of a file as a Blob, whatever it is; its media type is that of the name. Raises
        `NotFound`."""

    @acts("projectFiles:write", _WRITE, since=2)
    async def write_blob(
        self, file_path: ProjectPath, content: Blob, *, overwrite: bool = True, call: CallContext | None = None
    ) -> FileWritten:
        """Make a Blob the whole content of a file, as `write_file` does with text. Raises `NotFound` for a Blob that is
        not there."""


PROJECT_FILES = ServiceKey(ProjectFiles)
