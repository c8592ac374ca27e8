"""A bare git repository with the workflows, in the plugin's data folder. Blocking: call it from a thread.

It is written through dulwich, which is Python: no program is started, and no hook or filter of a repository runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from dulwich.object_store import commit_tree_changes
from dulwich.objects import Blob, Commit, Tree
from dulwich.objectspec import parse_commit
from dulwich.repo import Repo

from tavern_host import PluginContext, clock
from tavern_host.contracts.calls import Principal
from tavern_workflows.api.workflows import StoredWorkflow

_REF: Any = b"refs/heads/main"


class WorkflowRepository:
    """One file for each workflow, `workflows/ID.json`, on the branch `main`."""

    def __init__(self, context: PluginContext) -> None:
        self._path = context.data_dir / "workflows.git"
        self._lock = Lock()

    def commit(self, changes: Mapping[str, StoredWorkflow | None], message: str, by: Principal) -> None:
        """Commit workflows, None for one that is gone; nothing where the last commit has all of it already."""
        with self._lock, self._open() as repo:
            written = False
            while not written:  # another host may have moved the branch meanwhile
                head = repo.refs.as_dict().get(_REF)
                tree = repo[head].tree if head else _added(repo, Tree())  # type: ignore[attr-defined]
                files = [(_path(id), *_file(repo, stored)) for id, stored in changes.items()]
                commit = Commit()
                commit.tree = commit_tree_changes(repo.object_store, tree, files)
                if commit.tree == tree:
                    return
                commit.parents, commit.message = [head] if head else [], message.encode()
                commit.author = commit.committer = _author(by)
                commit.author_time = commit.commit_time = int(clock.seconds())
                commit.author_timezone = commit.commit_timezone = 0
                written = repo.refs.set_if_equals(_REF, head, _added(repo, commit))

    def log(self, workflow_id: str, most: int) -> list[dict[str, str]]:
        """Return the newest commits, of one workflow or, where that is empty, of all."""
        with self._lock, self._open() as repo:
            if (head := repo.refs.as_dict().get(_REF)) is None:
                return []
            paths = [_path(workflow_id)] if workflow_id else None
            return [_entry(one.commit) for one in repo.get_walker(include=[head], paths=paths, max_entries=most)]

    def read(self, workflow_id: str, commit: str) -> dict[str, Any] | None:
        """Return a workflow's document as it was in a commit, or None where either is not there."""
        with self._lock, self._open() as repo:
            try:
                tree: Any = repo[parse_commit(repo, commit.encode()).tree]
                blob: Any = repo[tree.lookup_path(repo.__getitem__, _path(workflow_id))[1]]
            except KeyError:
                return None
            return dict(json.loads(blob.data))

    def _open(self) -> Repo:
        if not self._path.exists():
            Repo.init_bare(str(self._path), mkdir=True, default_branch=b"main").close()
        return Repo(str(self._path))


def _path(workflow_id: str) -> bytes:
    return f"workflows/{workflow_id}.json".encode()


def _file(repo: Repo, stored: StoredWorkflow | None) -> tuple[Any, Any]:
    if stored is None:
        return None, None
    document = stored.workflow.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return 0o100644, _added(repo, Blob.from_string(json.dumps(document, ensure_ascii=False, indent=2).encode() + b"\n"))


def _added(repo: Repo, made: Any) -> Any:
    repo.object_store.add_object(made)
    return made.id


def _author(by: Principal) -> bytes:
    name = "".join(letter for letter in by.id if letter.isprintable() and letter not in "<>")
    return f"{name} <{by.kind}.{name.replace(' ', '.')}@tavern.invalid>".encode()


def _entry(commit: Commit) -> dict[str, str]:
    at = datetime.fromtimestamp(commit.commit_time, UTC).isoformat()
    author = commit.author.decode().partition(" <")[0]
    return {"commit": commit.id.decode()[:12], "at": at, "author": author, "message": commit.message.decode()}
