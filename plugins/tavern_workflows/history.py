"""Keeps what became of workflows in a SQLite database of the project: every revision of their files and drafts.

What a method wrote has survived the end of the process when it returns. Of revisions without a name the oldest go when
there are too many, or too much in them.
"""

from __future__ import annotations

import json
import logging
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tavern_host import clock
from tavern_host.contracts.documents import MAX_DOCUMENT
from tavern_host.contracts.errors import Conflict, NotFound
from tavern_host.storage.sqlite import DatabaseThread, Schema
from tavern_workflows.api.workflow_history import Document, KeptDraft, NewDraft, WorkflowHistoryStore
from tavern_workflows.api.workflows import RevisionKind, WorkflowRevision

if TYPE_CHECKING:
    import sqlite3

_FIRST = (
    # `at` is in microseconds since 1970, `body` the document as compressed JSON (RFC 1950), `size` its length in bytes.
    "CREATE TABLE revisions (id INTEGER PRIMARY KEY, workflow TEXT NOT NULL, number INTEGER NOT NULL, "
    "revision TEXT NOT NULL, kind TEXT NOT NULL, at INTEGER NOT NULL, by TEXT, reason TEXT NOT NULL, name TEXT, "
    "size INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (workflow, number))",
    # `base` is the revision of the file that a draft was made of.
    "CREATE TABLE drafts (workflow TEXT PRIMARY KEY, number INTEGER NOT NULL, base TEXT NOT NULL) WITHOUT ROWID",
)

HISTORY = Schema("workflows.sqlite3", (_FIRST,))

_ANY = 2**62
_MOST_READ = 2 * MAX_DOCUMENT

MOST = 500
"""How many revisions without a name are kept of a workflow."""

MOST_BYTES = 64 * 2**20
"""How many bytes, compressed, the revisions without a name may have of a workflow."""

_COLUMNS = "workflow, number, revision, kind, at, by, reason, name"
_NEWEST = f"SELECT {_COLUMNS}, body FROM revisions WHERE workflow = ? AND kind <> 'draft' ORDER BY number DESC LIMIT 1"
_PRUNE = (
    "DELETE FROM revisions WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER newest AS place, "
    "sum(size) OVER newest AS total FROM revisions WHERE workflow = ?1 AND name IS NULL AND number NOT IN "
    "(SELECT number FROM drafts WHERE workflow = ?1) WINDOW newest AS (ORDER BY number DESC)) "
    "WHERE place > ?2 OR (total > ?3 AND place > 1))"
)


class SqliteWorkflowHistory(WorkflowHistoryStore):
    """The history of one project's workflows, in a folder."""

    def __init__(self, folder: Path, log: logging.Logger) -> None:
        self._database = DatabaseThread(folder, HISTORY, log, "history of workflows")

    async def close(self) -> None:
        """Finish the writes in flight, and close the store."""
        await self._database.close()

    async def revisions(self, workflow: str | None, before: int | None, limit: int) -> list[WorkflowRevision]:
        """Return revisions, the newest first; without a workflow the newest of each."""
        chosen = "id IN (SELECT max(id) FROM revisions GROUP BY workflow) ORDER BY id DESC"
        values: tuple[str | int, ...] = (limit,)
        if workflow is not None:
            chosen = "workflow = ? AND number < ? ORDER BY number DESC"
            values = (workflow, min(before or _ANY, _ANY), limit)
        query = f"SELECT {_COLUMNS} FROM revisions WHERE {chosen} LIMIT ?"
        return await self._database.read(lambda c: [_revision(row) for row in c.execute(query, values)], [])

    async def read(self, workflow: str, number: int) -> tuple[WorkflowRevision, Document]:
        """Return a revision and its document. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> tuple[WorkflowRevision, Document] | None:
            query = f"SELECT {_COLUMNS}, body FROM revisions WHERE workflow = ? AND number = ?"
            return _whole(connection.execute(query, (workflow, number)).fetchone())

        found = await self._database.read(work, None)
        if found is None:
            raise _unknown(workflow, number)
        return found

    async def draft(self, workflow: str) -> KeptDraft | None:
        """Return the draft of a workflow, if there is one."""
        return await self._database.read(lambda connection: _draft(connection, workflow), None)

    async def record(
        self, workflow: str, kind: RevisionKind, document: Document, revision: str, *, by: str | None, reason: str = ""
    ) -> None:
        """Add what became of a file. A draft that says the same is done with; so is any where the file is deleted."""

        def work(connection: sqlite3.Connection) -> None:
            _add(connection, workflow, kind, document, revision, by=by, reason=reason)
            draft = _draft(connection, workflow)
            if draft is not None and (kind == "deleted" or _content(draft.document) == _content(document)):
                connection.execute("DELETE FROM drafts WHERE workflow = ?", (workflow,))
            _prune(connection, workflow)

        await self._database.write(work)

    async def follow(self, workflow: str, document: Document, revision: str) -> bool:
        """Add the file as it is unless it is in the history so already; return whether it was added to one."""
        query = "SELECT revision FROM revisions WHERE workflow = ? AND kind <> 'draft' ORDER BY number DESC LIMIT 1"
        known = await self._database.read(lambda c: c.execute(query, (workflow,)).fetchone(), None)
        if known is not None and known[0] == revision:
            return False

        def work(connection: sqlite3.Connection) -> bool:
            newest = _whole(connection.execute(_NEWEST, (workflow,)).fetchone())
            if newest is not None and newest[0].revision == revision and newest[0].kind != "deleted":
                return False
            _add(connection, workflow, "outside", document, revision, by=None, reason="")
            _prune(connection, workflow)
            return newest is not None

        return await self._database.write(work)

    async def save_draft(
        self, draft: NewDraft, *, published: str, expected: str | None, rebase: bool, by: str | None, reason: str
    ) -> None:
        """Keep a draft, of the base of the one that there is, if there is one. Raises `Conflict` where that, or the
        file, is not at the revision `expected`. A draft that is as the file is none."""
        workflow, revision = draft.workflow, draft.revision

        def work(connection: sqlite3.Connection) -> None:
            before = _expected(connection, workflow, published, expected)
            if revision == published:
                connection.execute("DELETE FROM drafts WHERE workflow = ?", (workflow,))
                return
            if before is not None and before.kept.revision == revision:
                number = before.kept.number
            else:
                number = _add(connection, workflow, "draft", draft.document, revision, by=by, reason=reason)
            base = published if rebase or before is None else before.base
            connection.execute("INSERT OR REPLACE INTO drafts VALUES (?, ?, ?)", (workflow, number, base))
            _prune(connection, workflow)

        await self._database.write(work)

    async def discard_draft(self, workflow: str, *, published: str, expected: str | None) -> None:
        """Give a draft up. Raises `Conflict` as `save_draft`."""

        def work(connection: sqlite3.Connection) -> None:
            _expected(connection, workflow, published, expected)
            connection.execute("DELETE FROM drafts WHERE workflow = ?", (workflow,))

        await self._database.write(work)

    async def move(self, workflow: str, new: str) -> None:
        """Give a workflow's history and draft to another id, after what there is of that one."""

        def work(connection: sqlite3.Connection) -> None:
            last = _last(connection, new)
            values = (new, last, workflow)
            connection.execute("UPDATE revisions SET workflow = ?, number = number + ? WHERE workflow = ?", values)
            connection.execute("UPDATE drafts SET workflow = ?, number = number + ? WHERE workflow = ?", values)

        await self._database.write(work)

    async def name(self, workflow: str, number: int, name: str | None) -> WorkflowRevision:
        """Name a revision, or take its name away. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> WorkflowRevision:
            query = f"UPDATE revisions SET name = ? WHERE workflow = ? AND number = ? RETURNING {_COLUMNS}"
            row = connection.execute(query, (name, workflow, number)).fetchone()
            if row is None:
                raise _unknown(workflow, number)
            return _revision(row)

        return await self._database.write(work)


def _expected(connection: sqlite3.Connection, workflow: str, published: str, expected: str | None) -> KeptDraft | None:
    """Return the draft that there is. Raises `Conflict` where another revision is expected."""
    draft = _draft(connection, workflow)
    present = draft.kept.revision if draft is not None else published
    if expected not in (None, present):
        who = draft.kept.by if draft is not None else None
        message = f"the draft of {workflow!r} was changed{f' by {who}' if who else ''}: it is at revision {present}"
        raise Conflict(message, revision=present, expected=expected)
    return draft


def _draft(connection: sqlite3.Connection, workflow: str) -> KeptDraft | None:
    query = (
        f"SELECT {', '.join(f'r.{name}' for name in _COLUMNS.split(', '))}, r.body, d.base FROM drafts d "
        "JOIN revisions r ON r.workflow = d.workflow AND r.number = d.number WHERE d.workflow = ?"
    )
    row = connection.execute(query, (workflow,)).fetchone()
    return None if row is None else KeptDraft(_revision(row), _document(row[-2]), row[-1])


def _add(
    connection: sqlite3.Connection,
    workflow: str,
    kind: RevisionKind,
    document: Document,
    revision: str,
    *,
    by: str | None,
    reason: str,
) -> int:
    number = _last(connection, workflow) + 1
    body = zlib.compress(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), 1)
    now = clock.microseconds()
    values = (workflow, number, revision, kind, now, by, reason, len(body), body)
    query = "INSERT INTO revisions (workflow, number, revision, kind, at, by, reason, size, body)"
    connection.execute(f"{query} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    return number


def _last(connection: sqlite3.Connection, workflow: str) -> int:
    query = "SELECT coalesce(max(number), 0) FROM revisions WHERE workflow = ?"
    return int(connection.execute(query, (workflow,)).fetchone()[0])


def _prune(connection: sqlite3.Connection, workflow: str) -> None:
    connection.execute(_PRUNE, (workflow, MOST, MOST_BYTES))


def _whole(row: tuple[Any, ...] | None) -> tuple[WorkflowRevision, Document] | None:
    return None if row is None else (_revision(row), _document(row[-1]))


def _revision(row: tuple[Any, ...]) -> WorkflowRevision:
    workflow, number, revision, kind, at, by, reason, name = row[:8]
    return WorkflowRevision(
        workflow=workflow,
        number=number,
        revision=revision,
        kind=kind,
        at=datetime.fromtimestamp(at / 1_000_000, UTC),
        by=by,
        reason=reason,
        name=name,
    )


def _document(body: bytes) -> Document:
    data = zlib.decompressobj().decompress(body, _MOST_READ)  # a project may come from anybody
    document: Document = json.loads(data)
    return document


def _content(document: Document) -> Document:
    """Return a document without the time at which an editor wrote it."""
    return {key: value for key, value in document.items() if key != "updatedAt"}


def _unknown(workflow: str, number: int) -> NotFound:
    return NotFound(f"there is no revision {number} of the workflow {workflow!r}", workflow=workflow, number=number)
