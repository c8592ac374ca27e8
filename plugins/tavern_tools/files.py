"""Reading `*.tool.json` from folders: what is there, has it changed, and what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tavern_host.contracts.documents import canonical, read_document_file
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.definitions import Finding, read_definition

SUFFIX = ".tool.json"

FileStamp = tuple[str, int, int, int]
"""A file's path, modification time in nanoseconds, size and inode: what tells that it has changed."""


@dataclass(frozen=True)
class ToolFolder:
    """A folder with tool files, and the plugin that it belongs to (None for the project's own)."""

    path: str
    plugin: str | None


@dataclass(frozen=True)
class ReadFiles:
    """The definitions of all files that can be used, and everything that is wrong with any of them."""

    definitions: tuple[ToolDefinition, ...]
    problems: tuple[Problem, ...]


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
    problems: list[Problem] = []
    for folder in folders:
        for path, *_ in stamps(folder.path):
            definition, found = read_file(Path(path), folder.plugin)
            problems += found
            if definition is not None:
                definitions.append(definition)
    return ReadFiles(tuple(definitions), tuple(problems))


def read_file(path: Path, plugin: str | None) -> tuple[ToolDefinition | None, list[Problem]]:
    """Return the definition in a tool file and what is wrong with the file; None where it cannot be used."""
    try:
        document = read_document_file(path)
        canonical(document)
    except TavernError as error:
        return None, [Problem(message=error.message.removeprefix(f"{path} "), file=str(path))]
    except ValueError as error:
        return None, [Problem(message=f"holds what JSON has no form for: {error}", file=str(path))]
    definition, findings = read_definition(document, source=str(path), plugin=plugin)
    return definition, [as_problem(finding, str(path)) for finding in findings]


def as_problem(finding: Finding, file: str) -> Problem:
    """Return a finding about a definition as a problem of the file (or plugin) that it came from."""
    return Problem(message=f"{finding.path}: {finding.message}", file=file)
