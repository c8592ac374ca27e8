"""The document of a workflow: nodes, edges and interface.

The format is the existing platform's; keys that we do not know survive a load and a save.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.wire import OpenModel


class NodePolicy(OpenModel):
    """What becomes of a node that fails or takes long.

    `retry`: how often it is tried again, after `retry_delay` seconds, which doubles each time. `timeout`: the
    seconds that one try may take. `on_error`, when no try is left: `fail` (the run fails; what follows is skipped),
    `skip_branch` (what follows is skipped, the run continues), `default` (its outputs are `defaults`, where they name
    none the empty value of the type), `route` (the output `error` gives the error, the others give nothing).
    """

    retry: int = Field(default=0, ge=0, le=100)
    retry_delay: float = Field(default=0, ge=0, le=3600)
    timeout: float | None = Field(default=None, gt=0, le=7 * 86400)
    on_error: Literal["fail", "skip_branch", "default", "route"] = "fail"
    defaults: dict[str, JsonValue] = Field(default_factory=dict)


class WorkflowNode(OpenModel):
    """A node on the canvas: its full type, where it stands, its own values, and what becomes of it when it fails.

    A `bypassed` node is not run; what it gives instead is the business of its type's `bypassBehavior`. One with the
    `placement` `cluster` is run on a cluster where one is set up, and otherwise as any other. `pinned_outputs` are
    given by the editor to the runs that it begins (`RunRequest.overrides`); other runs take no notice of them.
    """

    id: str
    type: str
    position: dict[str, int | float] = Field(default_factory=dict)
    parent_node: str | None = None
    display_name: str | None = None
    input_values: dict[str, JsonValue] = Field(default_factory=dict)
    config_values: dict[str, JsonValue] = Field(default_factory=dict)
    input_connection_orders: dict[str, list[str]] = Field(default_factory=dict)
    bypassed: bool = False
    pinned_outputs: dict[str, JsonValue] = Field(default_factory=dict)
    policy: NodePolicy | None = None
    placement: Literal["cluster"] | None = None


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


class WorkflowComment(OpenModel):
    """A note on the canvas, in Markdown; it means nothing to a run."""

    id: str
    text: str = ""
    position: dict[str, int | float] = Field(default_factory=dict)
    width: float | None = None
    height: float | None = None


class Workflow(OpenModel):
    """A workflow file. The file's stem is its id where it has none of its own."""

    id: str | None = None
    name: str = ""
    description: str | None = None
    version: str | None = None
    nodes: list[WorkflowNode] = Field(default_factory=list)
    edges: list[WorkflowEdge] = Field(default_factory=list)
    comments: list[WorkflowComment] = Field(default_factory=list)
    viewport: dict[str, int | float] | None = None
    interface_inputs: dict[str, InterfaceSlot] = Field(default_factory=dict)
    interface_outputs: dict[str, InterfaceSlot] = Field(default_factory=dict)
    referenced_workflows: list[str] = Field(default_factory=list)
    preview_target: dict[str, JsonValue] | None = None
