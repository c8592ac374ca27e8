"""Reading `*.tool.json` from folders: what is there, has it changed, and what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tavern_host.contracts.documents import canonical, read_document_file
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.definitions import read_definition

SUFFIX = ".tool.json"

FileStamp = tuple[str, int, int, int]
"""A file's path, modification time in nanoseconds, size and inode: what tells that it has changed."""


@dataclass(frozen=True)
class ToolFolder:
    """A folder with tool files, and the plugin that it belongs to (None for the project's own)."""

    path: str
    plugin: str | None


class ToolProblem(Problem):
    """Something that is wrong with a tool, and the plugins that it is to be told of: none, where the project's own
    file is wrong."""

    plugins: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class ReadFiles:
    """The definitions of all files that can be used, and everything that is wrong with any of them."""

    definitions: tuple[ToolDefinition, ...]
    problems: tuple[ToolProblem, ...]


def stamps(folder: str, suffix: str = SUFFIX) -> tuple[FileStamp, ...]:
    """Return the stamps of the files with this suffix in and beneath a folder, by path; none where it is absent."""
    found: list[FileStamp] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(suffix):
                path = os.path.join(parent, name)  # noqa: PTH118  # asked on every call: no Path objects
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError:
                    continue  # gone between the listing and now
                found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(sorted(found))


def read_folders(folders: list[ToolFolder]) -> ReadFiles:
    """Read every tool file of these folders, in order."""
    definitions: list[ToolDefinition] = []
    problems: list[ToolProblem] = []
    for folder in folders:
        for path, *_ in stamps(folder.path):
            definition, found = read_file(Path(path), folder.plugin)
            problems += found
            if definition is not None:
                definitions.append(definition)
    return ReadFiles(tuple(definitions), tuple(problems))


def read_file(path: Path, plugin: str | None) -> tuple[ToolDefinition | None, list[ToolProblem]]:
    """Return the definition in a tool file and what is wrong with the file; None where it cannot be used."""
    try:
        document = read_document_file(path)
        canonical(document)
    except TavernError as error:
        return None, [_in_file(path, plugin, error.message.removeprefix(f"{path} "))]
    except ValueError as error:
        return None, [_in_file(path, plugin, f"holds what JSON has no form for: {error}")]
    definition, findings = read_definition(document, source=str(path), plugin=plugin)
    return definition, [_in_file(path, plugin, str(finding)) for finding in findings]


def _in_file(path: Path, plugin: str | None, message: str) -> ToolProblem:
    return ToolProblem(message=message, file=str(path), plugins=[] if plugin is None else [plugin])
