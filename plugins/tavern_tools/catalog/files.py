"""Reading `*.tool.json` from folders: what is there, has it changed, and what is wrong with it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from tavern_host.contracts.documents import canonical, read_document, read_document_bytes
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.contracts.wire import without_surrogates
from tavern_host.storage.file_watch import file_stamps
from tavern_tools.api.json_positions import JsonText, nearest
from tavern_tools.catalog.definitions import DEPENDENCY_KINDS, Finding, dependency, read_definition
from tavern_tools.catalog.schemas import Location

SUFFIX = ".tool.json"

MAX_TOOL_FILE = 1 << 20
"""How many bytes a tool file may have."""


@dataclass(frozen=True)
class ToolFolder:
    """A folder with tool files, and the plugin that it belongs to (None for the project's own)."""

    path: str
    plugin: str | None


class ToolProblem(Problem):
    """Something that is wrong with a tool, and the plugins that it is reported against: none, where the project's own
    file is wrong. With a `warning` the tool is used nevertheless. `location` is a place in the file's document."""

    plugins: list[str] = Field(default_factory=list)
    warning: bool = False
    location: list[str | int] = Field(default_factory=list)


@dataclass(frozen=True)
class ReadFiles:
    """The definitions of all files that can be used, and everything that is wrong with any of them."""

    definitions: tuple[ToolDefinition, ...]
    problems: tuple[ToolProblem, ...]


class Surroundings(Protocol):
    """What is there beside tool files, by name: node types, workflows, and other tools."""

    @property
    def nodes(self) -> Collection[str]: ...

    @property
    def workflows(self) -> Collection[str]: ...

    def find(self, name: str) -> object | None: ...


def read_folders(folders: list[ToolFolder]) -> ReadFiles:
    """Read every tool file of these folders, in order."""
    definitions: list[ToolDefinition] = []
    problems: list[ToolProblem] = []
    for folder in folders:
        for path, *_ in file_stamps(folder.path, SUFFIX):
            project = Path(folder.path).parent if folder.plugin is None else None
            definition, found = read_file(Path(path), folder.plugin, within=project)
            problems += found
            if definition is not None:
                definitions.append(definition)
    return ReadFiles(tuple(definitions), tuple(problems))


def read_file(
    path: Path, plugin: str | None, within: Path | None = None
) -> tuple[ToolDefinition | None, list[ToolProblem]]:
    """Return the definition in a tool file and everything that is wrong with the file, each with line and column; None
    where the file cannot be used. Nothing that is not `within` a folder is read or reported."""
    about = _File(path, plugin)
    try:
        if within is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(within)):
            return None, [about.problem(f"is a link that leads out of {within}, and is not read")]
        return read_text(read_document_bytes(path), path, plugin)
    except TavernError as error:
        return None, [about.problem(error.message.removeprefix(f"{path} "))]


def read_text(data: bytes, path: Path, plugin: str | None) -> tuple[ToolDefinition | None, list[ToolProblem]]:
    """Do the same with what is, or is to be, in the file."""
    about = _File(path, plugin)
    if len(data) > MAX_TOOL_FILE:
        return None, [about.problem(f"is larger than {MAX_TOOL_FILE // 1024} KiB")]
    try:
        document = read_document(data, name=str(path))
    except InvalidInput as error:
        line, column, reason = (error.info.details.get(key) for key in ("line", "column", "reason"))
        if isinstance(line, int) and isinstance(column, int):
            return None, [about.problem(f"is not JSON: {reason}", (line, column))]
        return None, [about.problem(error.message.removeprefix(f"{path} "))]
    about.text = JsonText.of(data)
    spoilt = [*about.repeated(), *_unwritable(document)]
    if spoilt:
        return None, about.problems(spoilt)
    definition, findings = read_definition(document, source=str(path), plugin=plugin)
    return definition, about.problems(findings)


def check(
    paths: Iterable[Path],
    surroundings: Surroundings | None = None,
    unserved: Callable[[ToolDefinition], Iterable[str]] = lambda definition: (),
    plugin: str | None = None,
) -> list[ToolProblem]:
    """Return everything that is wrong with these tool files, and those in these folders, without a host.

    Two files with one id and version are a problem of both. With `surroundings`, so are node types, workflows and
    tools that are not there; `unserved` says which services and scripts are not. The files are the project's own, or
    those of a `plugin`.
    """
    problems: list[ToolProblem] = []
    by_name: dict[tuple[str, str], list[ToolDefinition]] = {}
    files = [read_file(file, plugin, within=within) for file, within in _tool_files(paths, problems).items()]
    checked = {definition.id for definition, _ in files if definition is not None}
    for definition, found in files:
        problems += found
        if definition is not None:
            by_name.setdefault((definition.id, definition.version), []).append(definition)
            missing = (*missing_parts(definition, surroundings, checked), *unserved(definition))
            problems += [_of(definition, message) for message in missing]
    for same in by_name.values():
        for definition in same if len(same) > 1 else ():
            others = " and ".join(other.source for other in same if other is not definition)
            problems.append(_of(definition, f'the tool "{definition.id}" is defined in {others}, too', of=_ID))
    return problems


def _tool_files(paths: Iterable[Path], problems: list[ToolProblem]) -> dict[Path, Path | None]:
    """Return the files, each with the folder above the one it was found in, unless it was named itself."""
    files: dict[Path, Path | None] = {}
    for path in paths:
        if not path.is_dir():
            files[path] = None
            continue
        found = file_stamps(str(path), SUFFIX)
        unread = [file for file, *_ in file_stamps(str(path), "") if file.lower().endswith((".json", ".jsonc"))]
        for file in sorted({*unread} - {file for file, *_ in found}):
            message = f"is not read: the name of a tool file ends with {SUFFIX}"
            problems.append(ToolProblem(message=message, file=file, warning=True))
        if not found:
            problems.append(ToolProblem(message=f"there is no *{SUFFIX} in it", file=str(path)))
        files |= dict.fromkeys((Path(stamp[0]) for stamp in found), path.absolute().parent)
    return files


def missing_parts(
    definition: ToolDefinition, surroundings: Surroundings | None, checked: Collection[str]
) -> Iterator[str]:
    """Yield what a tool names that is not there, neither around nor among the tools that are `checked` with it."""
    if surroundings is None:
        return
    implementation = definition.implementation
    needed = [dependency(text) for text in definition.dependencies]
    needed += [("workflow", implementation.workflow_id)] if implementation.workflow_id else []
    needed += [("node", implementation.node_type)] if implementation.node_type else []
    for kind, name in dict.fromkeys(needed):
        known = {"node": surroundings.nodes, "workflow": surroundings.workflows}.get(kind)
        if known is not None and name not in known:
            yield f"there is no {kind} {name}{did_you_mean(name, known)}"
        if kind == "tool" and name.partition("@")[0] not in checked and surroundings.find(name) is None:
            yield f"there is no tool {name}{did_you_mean(name, checked)}"


def _of(definition: ToolDefinition, message: str, of: re.Pattern[str] | None = None) -> ToolProblem:
    """Return a problem of a file that can be used, with its place: where a pattern is found, else what it names."""
    try:
        text = Path(definition.source).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ToolProblem(message=message, file=definition.source)
    named = [one for one in (of or _VALUE).finditer(text) if of is not None or _is_named(one[1], message)]
    at = max(named, key=lambda one: (f"'{one[1]}'" in message, len(one[1]))).start(1) if named else 0
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return ToolProblem(message=message, file=definition.source, line=line, column=column)


def _is_named(value: str, message: str) -> bool:
    """Return whether a message is about a text of a file: as it is, or without the kind that stands before it."""
    kind, colon, name = value.partition(":")
    is_inner = any(word in value for word in re.findall(r"'([^']{3,})'", message))  # as a script in its command
    return value in message or is_inner or (bool(colon) and kind in DEPENDENCY_KINDS and f" {name}" in message)


_ID = re.compile(r'("(?:id|toolId)"\s*:)')
_VALUE = re.compile(r'(?<!"type": )(?<!"type":)(?<=[:\[,\s])"([^"\\]{3,})"(?!\s*:)')
"""A text in JSON that is no key, nor a kind of implementation."""


def _unwritable(document: dict[str, Any]) -> list[Finding]:
    """Return where a document holds what JSON has no form for: NaN, infinities, half characters."""
    try:
        canonical(document)
        return []
    except ValueError:
        pass
    found: list[Finding] = []
    waiting: list[tuple[Location, Any]] = [((), document)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [((*place, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*place, index), inner) for index, inner in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            found.append(Finding(place, f"expected a number that JSON can write, got {value}"))
        if isinstance(value, str) and without_surrogates(value) is not value:
            found.append(Finding(place, "holds half of a character (a lone surrogate)"))
        if place and isinstance(place[-1], str) and without_surrogates(place[-1]) is not place[-1]:
            found.append(Finding(place[:-1], "has a key with half of a character (a lone surrogate)"))
    return found or [Finding((), "holds what JSON has no form for")]


@dataclass
class _File:
    """Words what is found in one file."""

    path: Path
    plugin: str | None
    text: JsonText | None = field(default=None)

    def repeated(self) -> list[Finding]:
        found = self.text.repeated_keys() if self.text is not None else []
        return [Finding(place, "stands here twice: keep one of them", mark=mark) for place, mark in found]

    def problems(self, findings: list[Finding]) -> list[ToolProblem]:
        """Return the findings as problems, in the order of the file."""
        marks = self.text.marks(finding.location for finding in findings) if self.text and findings else {}
        marked = [(finding.mark or nearest(marks, finding.location), finding) for finding in findings]
        marked.sort(key=lambda pair: pair[0])
        return [self.problem(str(finding), mark, finding) for mark, finding in marked]

    def problem(self, message: str, mark: tuple[int, int] | None = None, of: Finding | None = None) -> ToolProblem:
        line, column = mark or (None, None)
        return ToolProblem(
            message=message,
            file=str(self.path),
            line=line,
            column=column,
            plugins=[] if self.plugin is None else [self.plugin],
            warning=of is not None and of.warning,
            location=list(of.location) if of is not None else [],
        )
