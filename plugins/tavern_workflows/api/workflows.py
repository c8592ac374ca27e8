"""The `workflowManager` service: workflow files with their drafts, history, checks and layout."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model
from tavern_host.contracts.workflows import Workflow

GROUP_INPUT = "core:GroupInput"


GROUP_OUTPUT = "core:GroupOutput"
"""The two node types that carry a workflow's interface."""


NODE_GROUP = "core:NodeGroup"
"""The node type that stands for a whole workflow, the one that its configuration `referencedWorkflowId` names."""


LOOP_ZONE = "core:LoopZone"
"""The node type that runs the nodes inside of it several times; they name it as their `parentNode`."""


ERROR_OUTPUT = "error"
"""The output that a node has beside its own where its policy routes errors there."""


def workflow_id_of(reference: str) -> str:
    """Return the id that a reference to a workflow means, which may be written as its path: `workflows/sub/x.json`."""
    return reference.removeprefix("./").removeprefix("workflows/").removesuffix(".json")


class WorkflowProblem(Model):
    """One thing that is wrong with a workflow. `path` is a JSON path into the file (`$.edges[3].target`);
    `node` and `slot` are given where the problem is at one."""

    path: str
    message: str
    node: str | None = None
    slot: str | None = None
    severity: str = "error"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class WorkflowSummary(Model):
    """What a list of workflows shows."""

    id: str
    name: str
    description: str | None = None
    revision: str
    source: str
    updated_at: datetime | None = None


class StoredWorkflow(Model):
    """A workflow with the revision (a hash of its content) that a save may be made conditional on.

    `source` is `project` for a file of the project, else `plugin:NAME`; the latter are read-only.
    """

    workflow: Workflow
    id: str
    revision: str
    source: str = "project"


RevisionKind = Literal["draft", "published", "outside", "deleted"]


class WorkflowRevision(Model):
    """One revision in the history of a workflow: a `draft`, the file as it was `published`, as something `outside` of
    the host left it, or as it was when it was `deleted`. `number` grows by one with each.

    `by` is the principal, None where nobody can say. `reason` is what was done, `name` that of a restore point, which
    is kept for good.
    """

    workflow: str
    number: int
    revision: str
    kind: RevisionKind
    at: datetime
    by: str | None = None
    reason: str = ""
    name: str | None = None


class WorkflowDraft(Model):
    """What is being made of a workflow and is not published yet; without a `workflow` there is nothing of the kind.

    `base` is the revision of the file that it was made of, `published` the present one: where they differ, somebody
    has changed the file meanwhile. `revision` is what a change of the draft is conditional on. `number` is that in the
    history.
    """

    id: str
    revision: str
    published: str
    base: str
    workflow: Workflow | None = None
    number: int | None = None
    at: datetime | None = None
    by: str | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the file has changed since the draft was begun."""
        return self.workflow is not None and self.base != self.published


class WorkflowUse(Model):
    """Something that names a workflow: a `workflow` with a group of it, a `tool`, an `agent`, a `scene` or a `panel`.
    `place` is a JSON path into it."""

    kind: Literal["workflow", "tool", "agent", "scene", "panel"]
    id: str
    name: str
    place: str


class WorkflowMatch(Model):
    """A place in a workflow where words were found: in the node `node`, else in what is said of the workflow."""

    workflow: str
    name: str
    node: str | None = None
    path: str
    text: str


class LayoutSize(Model):
    """The size of a node on the canvas, in pixels."""

    width: float = Field(ge=0, le=1e6)
    height: float = Field(ge=0, le=1e6)


class Placed(Model):
    """Where the upper left corner of a node is on the canvas, in pixels, from that of the zone that it lies in."""

    x: float
    y: float


class WorkflowLayout(Model):
    """Places of nodes by id, and the sizes that loop zones need for what lies in them."""

    positions: dict[str, Placed]
    zones: dict[str, LayoutSize] = Field(default_factory=dict)


class WorkflowManager(ServiceInterface, name="workflowManager", version=4):
    """Loads, checks and saves the project's workflows; those of plugins are listed beside them.

    A workflow's file is what is *published*: what agents, tools, HTTP and commands run. Drafts and the history of both
    lie beside, and are read as workflows by `ID@draft` and `ID@rNUMBER`.
    """

    @reads
    async def list_workflows(self) -> list[WorkflowSummary]:
        """Return all workflows that can be read, by id, without those of plugins that say `"listed": false`. Files that
        cannot be read are named in the log; `check` says what is wrong with one, and so does `get` for a file that
        breaks the format."""

    @reads
    async def get(self, workflow_id: str) -> StoredWorkflow:
        """Return a workflow by its id, or its path: see `workflow_id_of`. `ID@draft` is its draft, `ID@r12` revision 12
        of its history, with that as its `source`. Raises `NotFound` with near names, `InvalidInput` with all
        problems."""

    @reads
    async def parse(self, document: dict[str, JsonValue]) -> Workflow:
        """Return a document as a workflow. Raises `InvalidInput`; `details["problems"]` has every one."""

    @reads
    async def check(self, document: dict[str, JsonValue]) -> list[WorkflowProblem]:
        """Return every problem of a document: shape, node types, slots, edges, groups, loops, cycles. Never raises."""

    @reads(since=2)
    async def closure(self, workflow: Workflow) -> dict[str, StoredWorkflow]:
        """Return, by reference as it is written, the workflows that the groups of a workflow stand for, and those that
        theirs do, at any depth; those that do not exist or cannot be read are left out."""

    @acts("workflowManager:save", "Write workflows into the project.")
    async def save(
        self,
        workflow_id: str,
        workflow: Workflow,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredWorkflow:
        """Write a workflow into the project, atomically.

        With `expected_revision` the save is refused with `Conflict` unless the stored revision is that
        one (`""`: the workflow must not exist yet). Raises `InvalidInput` for an id that is no path of files.
        The `id` inside stays as it is.
        """

    @acts("workflowManager:save", "Write workflows into the project.", since=3)
    async def move(
        self,
        workflow_id: str,
        new_id: str,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredWorkflow:
        """Give a workflow of the project another id, which is its path. Raises `NotFound`, `InvalidInput` for an id
        that is no path of files, and `Conflict` where that id is taken, or as `save` does."""

    @acts("workflowManager:save", "Write workflows into the project.", since=3)
    async def delete(
        self, workflow_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> None:
        """Delete a workflow of the project. Raises `NotFound`, and `Conflict` as `save` does."""

    @reads(since=4)
    async def draft(self, workflow_id: str) -> WorkflowDraft:
        """Return the draft of a workflow of the project. Raises `NotFound`."""

    @acts("workflowManager:save", "Write workflows into the project.", since=4)
    async def save_draft(
        self,
        workflow_id: str,
        workflow: Workflow,
        *,
        expected_revision: str | None = None,
        reason: str = "",
        rebase: bool = False,
        call: CallContext | None = None,
    ) -> WorkflowDraft:
        """Keep a draft, and it in the history. With `expected_revision` it is refused with `Conflict` unless that is
        the `revision` of what `draft` returns. A draft that is as the file is none. It stays based on the file that it
        was begun with, unless `rebase` says that it is to take the place of the present one. Raises `NotFound`."""

    @acts("workflowManager:save", "Write workflows into the project.", since=4)
    async def discard_draft(
        self, workflow_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> WorkflowDraft:
        """Give a draft up; its revisions stay in the history. Raises `NotFound`, and `Conflict` as `save_draft`."""

    @reads(since=4)
    async def history(
        self, workflow_id: str | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[WorkflowRevision]:
        """Return revisions of a workflow, the newest first, of those whose number is less than `before`; without a
        workflow the newest of each, of deleted ones too."""

    @acts("workflowManager:save", "Write workflows into the project.", since=4)
    async def name_revision(
        self, workflow_id: str, number: int, name: str | None, *, call: CallContext | None = None
    ) -> WorkflowRevision:
        """Make a revision a restore point with a name, or with None no longer one. Raises `NotFound`."""

    @reads(since=4)
    async def uses(self, workflow_id: str) -> list[WorkflowUse]:
        """Return the places that name a workflow: groups of other workflows, tools, agents."""

    @reads(since=4)
    async def search(self, text: str, *, limit: int = 100) -> list[WorkflowMatch]:
        """Return where in the workflows all words of `text` stand together, in one node or in what is said of a
        workflow, without regard to case."""

    @reads(since=4)
    async def layout(
        self, workflow: Workflow, *, sizes: dict[str, LayoutSize] | None = None, keep: list[str] | None = None
    ) -> WorkflowLayout:
        """Return places for the nodes of a workflow, in layers from left to right. Those to `keep` stay, and the others
        are put near their neighbours where nothing is. `sizes` are those of nodes, by id."""


WORKFLOW_MANAGER = ServiceKey(WorkflowManager)
