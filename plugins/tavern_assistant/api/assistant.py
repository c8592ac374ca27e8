"""Changes of documents by patches (RFC 6902), and the `assistant` service that checks and applies them.

A document is a workflow as it is being made (its draft, else its file), a tool file, an agent's profile, a panel, or a
plugin's settings.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts
from tavern_host.contracts.wire import Model

PatchKind = Literal["workflow", "tool", "agent", "panel", "settings"]
"""What a patch is of: a workflow by its id, a tool by the name of its file, an agent or a panel by its id, or the
settings of a plugin by its name."""

MAX_OPERATIONS = 1000
"""How many operations one patch may have."""

UPDATE_WORKFLOW = "UPDATE_WORKFLOW_STATE_FROM_AGENT"
"""The event with which the studio gets a workflow that the assistant has changed."""

UPDATE_PANEL = "UPDATE_PANEL_FROM_AGENT"
"""The event with which the studio gets a panel that the assistant proposes or has changed."""


class PatchProposal(Model):
    """A patch: the document that it changes, by its `id` or as it is in `document`, and its operations.

    `revision` is that of the document which it was made for. `reason` is what it is meant to do, for the history.
    """

    kind: PatchKind = "workflow"
    id: str | None = Field(default=None, min_length=1, max_length=1000)
    document: dict[str, JsonValue] | None = None
    revision: str | None = Field(default=None, max_length=200)
    operations: list[JsonValue]
    reason: str = Field(default="", max_length=500)


class PatchUndo(Model):
    """Which patch is undone: that after which the document had the `revision`; `to` is the one that it had before."""

    kind: PatchKind = "workflow"
    id: str = Field(min_length=1, max_length=1000)
    revision: str = Field(max_length=200)
    to: str = Field(max_length=200)


class PatchProblem(Model):
    """Why a patch is not applied. `index` is that of the operation, None where it is none in particular.

    `path` is a JSON pointer into the document, with ids and localIds in the place of indexes; `hint` says what to do.
    """

    index: int | None = None
    path: str = ""
    code: str
    message: str
    hint: str = ""


class PatchChange(Model):
    """Something that a patch changes. `group` is a loop zone or a group of another workflow, an `element` is one of
    a panel; of what is no workflow, a `value` is named by its JSON pointer."""

    kind: Literal["added", "removed", "changed"]
    what: Literal["node", "edge", "group", "comment", "interface", "value", "element"]
    id: str
    local_id: str | None = None


class PatchConflict(Model):
    """Why a patch for an old revision is refused: the document is at `revision`, `changes` are what became other since
    `expected`, and `touched` the places, as JSON pointers with ids, that the patch would change as well.

    Without `changes` the old revision is not known any more.
    """

    expected: str
    revision: str
    by: str | None = None
    at: datetime | None = None
    changes: list[PatchChange] = Field(default_factory=list)
    touched: list[str] = Field(default_factory=list)


class PatchResult(Model):
    """What became of a patch: it is `applied`, or there are `problems` and nothing is changed.

    `revision` is that of the document as it is now, `former` the one before the patch, `document` the whole new one.
    Of a patch that was only proposed, `applied` says that it could be. `rebased`: it was made for an older revision.
    """

    applied: bool
    revision: str = ""
    former: str = ""
    rebased: bool = False
    document: dict[str, JsonValue] | None = None
    changes: list[PatchChange] = Field(default_factory=list)
    problems: list[PatchProblem] = Field(default_factory=list)
    conflict: PatchConflict | None = None


class Assistant(ServiceInterface, name="assistant"):
    """Checks patches of documents, applies them, and takes them back.

    A patch is applied as a whole or not at all, and only where what comes of it is valid. In a workflow, nodes and
    edges may be named by their ids (`/nodes/{id}/inputValues/text`). A node is added without id and position, with a
    `localId` by which the patch can name it; an edge with `source` and `target`, or `sourceLocalId` and
    `targetLocalId`, and its handles. The edges of a removed node go with it. In a panel, elements may be named by
    their ids (`/elements/{id}/title`); they are added with a `localId`, without id, and stand below the others
    where they have no place.

    All methods raise `NotFound` for a document that is not there; what is wrong with a patch is in the result.
    """

    @acts("assistant:propose", "Check patches without applying them, and read what they are of.")
    async def propose_patch(
        self,
        operations: list[JsonValue],
        *,
        kind: PatchKind = "workflow",
        id: str | None = None,
        document: dict[str, JsonValue] | None = None,
        revision: str | None = None,
        whole: bool = True,
        call: CallContext | None = None,
    ) -> PatchResult:
        """Return the result of a patch to a document, named by its `id` or passed as `document`. Nothing is saved. The
        result has the new document where it is asked for `whole`."""

    @acts("assistant:apply", "Change workflows, tools, agents and panels by patches.")
    async def apply_patch(
        self,
        operations: list[JsonValue],
        id: str,
        *,
        kind: PatchKind = "workflow",
        revision: str | None = None,
        reason: str = "",
        whole: bool = True,
        call: CallContext | None = None,
    ) -> PatchResult:
        """Apply a patch and save the document: a workflow as its draft, which its history keeps.

        If the document is no longer at the `revision` that the patch was made for, it is applied where it does not
        touch what became other since, else refused with the `conflict`. Raises `PermissionDenied` for settings, which
        only a route for those who operate the host changes.
        """

    @acts("assistant:apply", "Change workflows, tools, agents and panels by patches.")
    async def undo_patch(
        self, id: str, revision: str, to: str, *, kind: PatchKind = "workflow", call: CallContext | None = None
    ) -> PatchResult:
        """Take a patch back: the document, now at `revision`, becomes again what it was at `to`, the `former` revision
        of the patch's result. Raises `Conflict` where it was changed since."""


ASSISTANT = ServiceKey(Assistant)
