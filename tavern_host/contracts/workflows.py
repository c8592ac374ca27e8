"""Workflow files as data, and the `workflowManager` service (DESIGN §4, *Workflow file*).

The format is the existing platform's; keys that we do not know survive a load and a save.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model, OpenModel

GROUP_INPUT = "core:GroupInput"
GROUP_OUTPUT = "core:GroupOutput"
"""The two node types that carry a workflow's interface."""


class WorkflowNode(OpenModel):
    """A node on the canvas: its full type, where it stands, and its own values."""

    id: str
    type: str
    position: dict[str, int | float] = Field(default_factory=dict)
    parent_node: str | None = None
    display_name: str | None = None
    input_values: dict[str, JsonValue] = Field(default_factory=dict)
    config_values: dict[str, JsonValue] = Field(default_factory=dict)
    input_connection_orders: dict[str, list[str]] = Field(default_factory=dict)


class WorkflowEdge(OpenModel):
    """An edge from an output slot to an input slot; a `multi` input's handles are `key__0`, `key__1` …"""

    id: str
    source: str
    source_handle: str
    target: str
    target_handle: str


class InterfaceSlot(SlotDefinition):
    """A slot of a workflow's interface, with its own key. `custom_description` stands in where there is no
    `description`."""

    key: str | None = None
    custom_description: str | None = None


class Workflow(OpenModel):
    """A workflow file. The file's stem is its id where it has none of its own."""

    id: str | None = None
    name: str = ""
    description: str | None = None
    version: str | None = None
    nodes: list[WorkflowNode] = Field(default_factory=list)
    edges: list[WorkflowEdge] = Field(default_factory=list)
    viewport: dict[str, int | float] | None = None
    interface_inputs: dict[str, InterfaceSlot] = Field(default_factory=dict)
    interface_outputs: dict[str, InterfaceSlot] = Field(default_factory=dict)
    referenced_workflows: list[str] = Field(default_factory=list)


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


class WorkflowManager(ServiceInterface, name="workflowManager"):
    """Loads, checks and saves the project's workflows; those of plugins are listed beside them."""

    @reads
    async def list_workflows(self) -> list[WorkflowSummary]:
        """Return all workflows that can be read, by id. Files that cannot be are named in the log; `check` says
        what is wrong with one, and so does `get` for a file that breaks the format."""

    @reads
    async def get(self, workflow_id: str) -> StoredWorkflow:
        """Return a workflow by id. Raises `NotFound` with near names, `InvalidInput` with all problems."""

    @reads
    async def parse(self, document: dict[str, JsonValue]) -> Workflow:
        """Return a document as a workflow. Raises `InvalidInput`; `details["problems"]` has every one."""

    @reads
    async def check(self, document: dict[str, JsonValue]) -> list[WorkflowProblem]:
        """Return every problem of a document: shape, node types, slots, edges, cycles. Never raises."""

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
        one (`""`: the workflow must not exist yet). Raises `InvalidInput` for an id that is no file name.
        """


WORKFLOW_MANAGER = ServiceKey(WorkflowManager)
