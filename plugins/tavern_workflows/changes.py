"""Which workflow files may be changed: those of the project, at the revision that is expected, inside of its folder."""

from __future__ import annotations

from pathlib import Path

from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.store import PROJECT, Entry, Folder, WorkflowFiles


def check_change(workflow_id: str, entry: Entry | None, expected: str | None) -> None:
    """Raise `Conflict` unless a workflow is the project's and at the revision that is expected."""
    if entry is not None and entry.source != PROJECT:
        owner = entry.source.partition(":")[2]
        raise Conflict(f"the workflow {workflow_id!r} belongs to the plugin {owner}; save it under another id")
    stored = entry.revision if entry is not None else ""
    if expected is None or expected == stored:
        return
    if entry is None:
        raise Conflict(f"the workflow {workflow_id!r} does not exist any more", revision=stored)
    if not expected:
        raise Conflict(f"the workflow {workflow_id!r} exists already", revision=stored)
    raise Conflict(
        f"the workflow {workflow_id!r} was changed by someone else: it is at revision {stored}, not {expected}",
        revision=stored,
        expected=expected,
    )


def write(files: WorkflowFiles, folder: Folder, path: Path, workflow: Workflow, *, is_new: bool) -> None:
    """Write a workflow into a folder. Raises `Conflict` where that leads elsewhere, or a new file is there already."""
    _check_place(folder, path, is_new=is_new)
    files.write(path, workflow)


def move(files: WorkflowFiles, folder: Folder, path: Path, new: Path) -> None:
    """Give a file of a folder another place in it. Raises `Conflict` as `write` does."""
    _check_place(folder, new, is_new=True)
    files.move(path, new)


def _check_place(folder: Folder, path: Path, *, is_new: bool) -> None:
    if folder.escapes():
        raise Conflict(f"{folder.path} leads out of the project; nothing is written there")
    if path.parent.resolve() != folder.path.resolve() / path.parent.relative_to(folder.path):
        raise Conflict(f"{path.parent} is behind a link to a folder; nothing is written there")
    if is_new and (path.exists() or path.is_symlink()):
        raise Conflict(f"the file {path.name} exists already")
