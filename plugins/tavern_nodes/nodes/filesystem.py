"""Nodes that read, write and list the files of a project, inside its `files/` folder and nowhere else.

How they are kept inside is in `files`.
"""

from __future__ import annotations

import asyncio
import datetime
import fnmatch
import secrets
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from tavern_host import Blob, Config, InvalidInput, NodeContext, NotFound, PluginContext, Slot, node
from tavern_nodes.documents import decode, read_json
from tavern_nodes.files import append_inside, list_inside, read_inside, stamp_inside, write_inside
from tavern_nodes.values import check_size, choose_from, shorten, to_json
from tavern_tools.api.projectfiles import PROJECT_FILE

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

MAX_PATTERN = 200
"""The longest pattern for names, in characters."""

PathIn = Annotated[
    str, Slot("The path of the file in the project's files/ folder, such as notes/today.md.", format=PROJECT_FILE)
]


class FileRead(TypedDict):
    """The outputs of `ReadFile`."""

    content: Annotated[Any, Slot("What the file holds, or the default.")]
    size: Annotated[int, Slot("How many bytes it has; 0 where there is none.")]
    found: Annotated[bool, Slot("Whether there is such a file.")]


class FileWritten(TypedDict):
    """The outputs of `WriteFile`."""

    path: Annotated[str, Slot("The path of the file.")]
    size: Annotated[int, Slot("How many bytes the file has now.")]


class FileList(TypedDict):
    """The outputs of `ListFiles`."""

    files: Annotated[list[str], Slot("The paths of the files, in order.")]
    details: Annotated[list[Any], Slot("For each file an object with path, name, size and modified (UTC).")]
    count: Annotated[int, Slot("How many there are.")]


async def _file_stamp(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> Any:
    """Return a stamp that differs once the file has changed; a new one each time where the path is not known yet."""
    path = inputs.get("path")
    if not isinstance(path, str):
        return secrets.token_hex(16)
    try:
        return await asyncio.to_thread(stamp_inside, context.project.folder("files"), path)
    except NotFound:
        return "missing"
    except InvalidInput:
        return secrets.token_hex(16)


async def _folder_stamp(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> Any:
    """Return a stamp that differs once files came, went or changed; a new one each time for unknown inputs."""
    folder, recursive = inputs.get("folder"), inputs.get("recursive")
    if not isinstance(folder, str) or not isinstance(recursive, bool):
        return secrets.token_hex(16)
    try:
        found = await asyncio.to_thread(list_inside, context.project.folder("files"), folder, recursive=recursive)
    except (InvalidInput, NotFound):
        return secrets.token_hex(16)
    return [[path, about.st_mtime_ns, about.st_size] for path, about in found]


@node(category="Files", display_name="Read file", blocking=True, is_changed=_file_stamp, bypass="mute")
def read_file(
    context: NodeContext,
    path: PathIn,
    default: Annotated[Any, Slot("The content where there is no such file.")] = None,
    format: Annotated[Literal["text", "JSON", "binary"], Config("How the file is read; text is UTF-8.")] = "text",
    missing: Annotated[Literal["error", "default"], Config("What to do where there is no such file.")] = "error",
) -> FileRead:
    """Read a file of the project."""
    fails = choose_from({"error": True, "default": False}, missing, "ReadFile: missing")
    read = choose_from(_FORMATS, format, "ReadFile: format")
    try:
        data = read_inside(context.plugin.project.folder("files"), path)
    except NotFound as problem:
        if fails:
            raise NotFound(f"ReadFile: {problem.message}") from None
        return {"content": default, "size": 0, "found": False}
    except InvalidInput as problem:
        raise InvalidInput(f"ReadFile: {problem.message}") from None
    return {"content": read(data, f"ReadFile: {shorten(path)!r}"), "size": len(data), "found": True}


@node(category="Files", display_name="Write file", cached=False, bypass="mute")
async def write_file(
    context: NodeContext,
    path: PathIn,
    content: Annotated[Any, Slot("Text and binary data are written as they are, anything else as JSON.")],
    mode: Annotated[
        Literal["replace", "append", "create"],
        Config("Whether a file that is there is replaced, made longer, or left alone with an error."),
    ] = "replace",
    new_line: Annotated[bool, Config("End with a new line, where the content does not do so itself.")] = False,
) -> FileWritten:
    """Write a file of the project; folders that are missing are made. Another run sees the old content or the new."""
    write = choose_from(_MODES, mode, "WriteFile: mode")
    whole = await context.blobs.read(content) if isinstance(content, Blob) else content
    data = await asyncio.to_thread(_bytes, whole, new_line)
    try:
        size = await asyncio.to_thread(write, context.plugin.project.folder("files"), path, data)
    except InvalidInput as problem:
        raise InvalidInput(f"WriteFile: {problem.message}") from None
    return {"path": path, "size": size}


@node(category="Files", display_name="List files", blocking=True, is_changed=_folder_stamp, bypass="mute")
def list_files(
    context: NodeContext,
    folder: Annotated[
        str, Slot("The folder in the project's files/ folder; empty means that one itself.", format=PROJECT_FILE)
    ] = "",
    pattern: Annotated[str, Slot("Which names are listed: * is any text, ? any character.")] = "*",
    recursive: Annotated[bool, Slot("List the files of the folders within it too.")] = False,
) -> FileList:
    """List files of the project. Links are left out."""
    if len(pattern) > MAX_PATTERN:
        raise InvalidInput(f"ListFiles: the pattern has {len(pattern)} characters; at most {MAX_PATTERN} are possible")
    try:
        found = list_inside(context.plugin.project.folder("files"), folder, recursive=recursive)
    except (InvalidInput, NotFound) as problem:
        raise type(problem)(f"ListFiles: {problem.message}") from None
    details = [_details(path, about) for path, about in found if _is_named(path, pattern)]
    check_size(details, "ListFiles: the list")
    return {"files": [each["path"] for each in details], "details": details, "count": len(details)}


def _is_named(path: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern)


def _details(path: str, about: os.stat_result) -> dict[str, Any]:
    modified = datetime.datetime.fromtimestamp(about.st_mtime_ns // 1_000_000_000, datetime.UTC)
    return {
        "path": path,
        "name": path.rpartition("/")[2],
        "size": about.st_size,
        "modified": modified.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _bytes(content: Any, new_line: bool) -> bytes:
    if not isinstance(content, bytes):
        text = content if isinstance(content, str) else to_json(content, "WriteFile: the content", indent=2)
        try:
            content = text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"WriteFile: the content cannot be written as UTF-8: {error.reason}") from None
    data: bytes = content
    return data + b"\n" if new_line and not data.endswith(b"\n") else data


def _create(root: Path, path: str, data: bytes) -> int:
    return write_inside(root, path, data, replace=False)


_FORMATS: dict[str, Callable[[bytes, str], Any]] = {
    "text": decode,
    "JSON": lambda data, where: read_json(decode(data, where), where),
    "binary": lambda data, where: data,
}
_MODES: dict[str, Callable[[Path, str, bytes], int]] = {
    "replace": write_inside,
    "append": append_inside,
    "create": _create,
}
