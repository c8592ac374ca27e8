"""Where the history of workflows is kept: every revision of their files, and their drafts.

The file of a workflow is not kept here: it is what is published. A store decides each step in one transaction, so that
several hosts can share one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from pydantic import JsonValue

from tavern_workflows.api.workflows import RevisionKind, WorkflowRevision

Document = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class NewDraft:
    """A draft that is to be kept, and the revision of its content."""

    workflow: str
    document: Document
    revision: str


@dataclass(frozen=True, slots=True)
class KeptDraft:
    """The draft of a workflow. `base` is the revision of the file that it was made of."""

    kept: WorkflowRevision
    document: Document
    base: str


class WorkflowHistoryStore(ABC):
    """The history of one project's workflows. What a method wrote has survived the end of the process when it returns.

    Revisions of a workflow have numbers that only grow. Of those without a name the oldest may be forgotten, but not
    the newest nor a draft. Methods raise `TavernError` where the store cannot be read or written.
    """

    @abstractmethod
    async def revisions(self, workflow: str | None, before: int | None, limit: int) -> list[WorkflowRevision]:
        """Return revisions, the newest first, of numbers below `before`; without a workflow the newest of each."""

    @abstractmethod
    async def read(self, workflow: str, number: int) -> tuple[WorkflowRevision, Document]:
        """Return a revision and its document. Raises `NotFound`."""

    @abstractmethod
    async def draft(self, workflow: str) -> KeptDraft | None:
        """Return the draft of a workflow, if there is one."""

    @abstractmethod
    async def record(
        self, workflow: str, kind: RevisionKind, document: Document, revision: str, *, by: str | None, reason: str = ""
    ) -> None:
        """Add what became of a file. A draft that says the same is done with; so is any where the file is deleted."""

    @abstractmethod
    async def follow(self, workflow: str, document: Document, revision: str) -> bool:
        """Add the file as it is unless it is in the history so already; return whether it was added to a history that
        there was."""

    @abstractmethod
    async def save_draft(
        self, draft: NewDraft, *, published: str, expected: str | None, rebase: bool, by: str | None, reason: str
    ) -> None:
        """Keep a draft. Its base is that of the draft that there is, or, where there is none or with `rebase`, the file
        at its revision `published`. A draft that is as the file is none.

        Raises `Conflict` where the draft, or without one the file, is not at the revision `expected`.
        """

    @abstractmethod
    async def discard_draft(self, workflow: str, *, published: str, expected: str | None) -> None:
        """Give a draft up; its revisions stay. Raises `Conflict` as `save_draft`."""

    @abstractmethod
    async def move(self, workflow: str, new: str) -> None:
        """Give a workflow's history and draft to another id, after what there is of that one."""

    @abstractmethod
    async def name(self, workflow: str, number: int, name: str | None) -> WorkflowRevision:
        """Name a revision, or take its name away. Raises `NotFound`."""

    @abstractmethod
    async def close(self) -> None:
        """Finish the writes in flight, and close the store."""
