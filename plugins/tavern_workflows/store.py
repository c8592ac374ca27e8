"""Workflow files in folders: which there are, what they hold, and writing one so that a crash leaves the
old content or the new. Says nothing of nodes or edges beyond their shape."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tavern_host import clock
from tavern_host.common.redaction import has_mask
from tavern_host.contracts.documents import MAX_DOCUMENT, read_document_file, revision_of
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable, TavernError
from tavern_host.contracts.plugins import PluginAsset
from tavern_host.contracts.workflows import Workflow
from tavern_host.storage.files import write_atomic
from tavern_host.storage.open_folder import open_any
from tavern_workflows.api.workflows import WorkflowProblem, workflow_id_of
from tavern_workflows.report import report
from tavern_workflows.shape import problems_error, read

PROJECT = "project"
"""The source of the project's own folder."""

SUFFIX = ".json"
MAX_ID = 200
"""How many bytes an id may have, so that it is a path of files everywhere."""

DEEPEST = 20
"""How many names an id may have: how deeply folders are looked into."""

_FORBIDDEN = frozenset('<>:"\\|?*')
_STAMP_TRUSTED_AFTER = 2.0
"""Seconds after which a file's time stamp is trusted to change when the file does."""


@dataclass(frozen=True)
class Folder:
    """A folder of workflow files; `source` is `PROJECT` or `plugin:NAME`.

    Nothing outside of it is read, and nothing at all where it leads out of `home`, the project or plugin.
    """

    path: Path
    source: str
    home: Path

    @classmethod
    def of_plugin(cls, asset: PluginAsset) -> Folder:
        """Return a folder that a plugin brings along."""
        return cls(Path(asset.path), f"plugin:{asset.plugin}", home=Path(asset.path))

    def escapes(self) -> bool:
        """Return whether links lead the folder out of its home."""
        return not self.path.resolve().is_relative_to(self.home.resolve())


@dataclass(frozen=True)
class Entry:
    """A workflow file that holds a JSON object. With `problems` the workflow is only what could be read."""

    id: str
    path: Path
    source: str
    revision: str
    workflow: Workflow
    updated_at: datetime | None
    problems: tuple[WorkflowProblem, ...] = ()


@dataclass(frozen=True)
class FileProblem:
    """Why a workflow file, or a whole folder of them, is not used; `source` is that of the folder."""

    path: Path
    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"


@dataclass(frozen=True)
class Scan:
    """All workflow files by id, and what is wrong with the others."""

    entries: dict[str, Entry]
    problems: tuple[FileProblem, ...]

    def unlisted(self) -> list[FileProblem]:
        """Return why workflows of plugins are not listed although their files hold JSON."""
        bad = [entry for entry in self.entries.values() if entry.problems and entry.source != PROJECT]
        return [FileProblem(e.path, e.source, str(problems_error("is not a workflow", list(e.problems)))) for e in bad]


class WorkflowFiles:
    """Reads and writes workflow files; remembers what it read until the file changes. Blocking: call it
    from a thread."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], Entry]] = {}

    def scan(self, folders: list[Folder]) -> Scan:
        """Read the folders. Of two files with one id, in two folders, the first wins.

        That is a problem, except for a workflow of the project that takes the place of a plugin's.
        """
        entries: dict[str, Entry] = {}
        problems: list[FileProblem] = []
        seen: set[Path] = set()
        for folder in folders:
            for path in _files(folder, problems):
                seen.add(path)
                try:
                    entry = self._entry(path, folder)
                except TavernError as error:
                    message = error.message.removeprefix(f"{path} ")
                    problems.append(FileProblem(path, folder.source, message))
                    continue
                first = entries.setdefault(entry.id, entry)
                if first is not entry and first.source != PROJECT:
                    other = f"{first.source.replace(':', ' ')} ({first.path})"
                    message = f"has the id {entry.id!r} of {other} and is ignored"
                    problems.append(FileProblem(path, folder.source, message))
        self._known = {path: known for path, known in self._known.items() if path in seen}
        return Scan(entries, tuple(problems))

    def _entry(self, path: Path, folder: Folder) -> Entry:
        try:
            about = path.stat()
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error}") from None
        stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
        known = self._known.get(path)
        if known is not None and known[0] == stamp and known[1].source == folder.source:
            return known[1]
        document = read_document_file(path)
        entry = _make_entry(path, folder, document, datetime.fromtimestamp(about.st_mtime, UTC))
        if clock.file_seconds() - about.st_mtime > _STAMP_TRUSTED_AFTER:
            self._known[path] = (stamp, entry)
        return entry

    def write(self, path: Path, workflow: Workflow) -> str:
        """Replace a file's content and return its revision. Raises `InvalidInput` for what is not JSON."""
        document, revision = content_of(workflow)
        data = (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode()
        if len(data) > MAX_DOCUMENT:
            raise InvalidInput(f"the workflow is larger than {MAX_DOCUMENT // (1024 * 1024)} MiB")
        _replace(path, data)
        self._forget(path)
        return revision

    def move(self, path: Path, new: Path) -> None:
        """Give a file another place in its folder, where none is."""
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
            path.rename(new)
            _flush_folder(new.parent)
            _flush_folder(path.parent)
        except OSError as error:
            raise ServiceUnavailable(f"{path} cannot be moved to {new}: {error.strerror or error}") from error
        self._forget(path)

    def delete(self, path: Path) -> None:
        """Delete a file."""
        try:
            path.unlink(missing_ok=True)
            _flush_folder(path.parent)
        except OSError as error:
            raise ServiceUnavailable(f"{path} cannot be deleted: {error.strerror or error}") from error
        self._forget(path)

    def _forget(self, path: Path) -> None:
        self._known.pop(path, None)


def find(entries: Mapping[str, Entry], reference: str) -> Entry | None:
    """Return the entry that a reference means: by its id, or by its path."""
    return entries.get(reference) or entries.get(workflow_id_of(reference))


def document_of(workflow: Workflow) -> dict[str, Any]:
    """Return a workflow as its file has it: what was set and nothing else, unknown keys included."""
    return workflow.model_dump(mode="json", exclude_unset=True)


def masked_in(workflow: Workflow) -> dict[str, Any] | None:
    """Return a workflow as its file would have it where `MASK` stands in that, else None."""
    document = document_of(workflow)
    return document if has_mask(document) else None


def content_of(workflow: Workflow) -> tuple[dict[str, Any], str]:
    """Return a workflow as its file would have it, and the revision of that. Raises `InvalidInput` for what is not
    JSON, or too much of it."""
    try:
        document = document_of(workflow)
        size = len(json.dumps(document, ensure_ascii=False).encode())
        revision = revision_of(document)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the workflow cannot be written as JSON: {error}") from None
    if size > MAX_DOCUMENT:
        raise InvalidInput(f"the workflow is larger than {MAX_DOCUMENT // (1024 * 1024)} MiB")
    return document, revision


def check_id(workflow_id: str) -> None:
    """Raise `InvalidInput` unless an id is a path of plain file names on every system."""
    reason = _id_problem(workflow_id)
    if reason:
        raise InvalidInput(f"{workflow_id!r} cannot be the id of a workflow: {reason}")


def _id_problem(workflow_id: str) -> str | None:
    if not workflow_id:
        return "it is empty"
    try:
        length = len(workflow_id.encode())
    except UnicodeEncodeError:
        return "it is not Unicode"
    if length > MAX_ID:
        return f"it has {length} bytes, at most {MAX_ID} are allowed"
    bad = sorted({c for c in workflow_id if c in _FORBIDDEN or not c.isprintable()})
    if bad:
        return f"it holds {', '.join(map(repr, bad))}"
    names = workflow_id.split("/")
    if len(names) > DEEPEST:
        return f"it has more than {DEEPEST} parts"
    if not all(names):
        return "a name in it is empty"
    if any(name.startswith(".") or name != name.strip() or name.endswith(".") for name in names):
        return "a name in it begins or ends with a dot or a space"
    return None


def _files(folder: Folder, problems: list[FileProblem]) -> list[Path]:
    """Return the workflow files of a folder and those below it by path, without those that lead out of it."""
    try:
        root = folder.path.resolve(strict=True)
        if not root.is_relative_to(folder.home.resolve()):
            message = f"is a link that leads out of {folder.home} and is not read"
            problems.append(FileProblem(folder.path, folder.source, message))
            return []
    except FileNotFoundError:
        return []
    except (OSError, RuntimeError) as error:
        problems.append(FileProblem(folder.path, folder.source, f"cannot be read: {error}"))
        return []
    found: list[Path] = []
    waiting = [folder.path]
    while waiting:
        below = waiting.pop()
        try:
            with os.scandir(below) as listed:
                files = [file for file in listed if file.name[0] != "."]
        except OSError as error:
            problems.append(FileProblem(below, folder.source, f"cannot be read: {error}"))
            continue
        for file in files:
            path = below / file.name
            is_link = file.is_symlink()
            if file.is_dir():
                if is_link:
                    problems.append(FileProblem(path, folder.source, "is a link to a folder and is not read"))
                elif len(path.parts) - len(folder.path.parts) < DEEPEST:
                    waiting.append(path)
            elif file.name.endswith(SUFFIX):
                if is_link and not path.resolve().is_relative_to(root):
                    message = "is a link that leads out of its folder and is ignored"
                    problems.append(FileProblem(path, folder.source, message))
                else:
                    found.append(path)
    return sorted(found)


def _make_entry(path: Path, folder: Folder, document: dict[str, Any], modified: datetime) -> Entry:
    reading = read(document)
    return Entry(
        id=path.relative_to(folder.path).as_posix().removesuffix(SUFFIX),
        path=path,
        source=folder.source,
        revision="" if reading.findings else revision_of(document),
        workflow=reading.workflow,
        updated_at=_updated_at(document) or modified,
        problems=tuple(report(reading.findings)),
    )


def _updated_at(document: dict[str, Any]) -> datetime | None:
    try:
        value = datetime.fromisoformat(document["updatedAt"])
    except (KeyError, TypeError, ValueError):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _replace(path: Path, data: bytes) -> None:
    """Write beside the file, flush to disk, rename over it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = None
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode & 0o777
        write_atomic(path, data, mode=mode)
        _flush_folder(path.parent)
    except OSError as error:
        raise ServiceUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


def _flush_folder(folder: Path) -> None:
    """Flush the rename itself; where the system cannot, it is its own to keep."""
    with contextlib.suppress(OSError), open_any(folder) as opened:
        opened.sync()
