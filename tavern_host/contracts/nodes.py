"""Nodes as data: slots, definitions, and the runner through which an engine executes one.

The JSON of a `NodeDefinition` is what the existing platform serves at `GET /api/nodes` (DESIGN §4).
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

from pydantic import ConfigDict, Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, reads
from tavern_host.contracts.wire import OpenModel


class DataFlowType(enum.StrEnum):
    """The type of what flows through a slot."""

    STRING = "STRING"
    INTEGER = "INTEGER"
    FLOAT = "FLOAT"
    BOOLEAN = "BOOLEAN"
    OBJECT = "OBJECT"
    ARRAY = "ARRAY"
    BINARY = "BINARY"
    WILDCARD = "WILDCARD"
    CONVERTIBLE_ANY = "CONVERTIBLE_ANY"


class SlotDefinition(OpenModel):
    """An input, output or configuration slot of a node, as `api_nodes.json` shows it.

    `config` holds `default`, `min`, `max`, `suggestions` and other hints of the slot's control;
    `multi` inputs take several edges.
    """

    data_flow_type: DataFlowType
    display_name: str | None = None
    description: str | None = None
    required: bool | None = None
    multi: bool | None = None
    match_categories: tuple[str, ...] | None = None
    config: dict[str, JsonValue] | None = None
    is_stream: bool | None = None
    allow_dynamic_type: bool | None = None

    @property
    def has_default(self) -> bool:
        """Whether the slot has a value of its own."""
        return self.config is not None and "default" in self.config

    @property
    def default(self) -> JsonValue:
        """The slot's own value, or None."""
        return self.config.get("default") if self.config else None


class NodeMode(OpenModel):
    """A mode of a node: with it selected, these slots take the place of the node's own."""

    id: str
    display_name: str | None = None
    description: str | None = None
    inputs: dict[str, SlotDefinition] = Field(default_factory=dict)
    outputs: dict[str, SlotDefinition] = Field(default_factory=dict)


class NodeDefinition(OpenModel):
    """A node type. `handler` is `module:name` in the owning plugin and is never sent out.

    With `modes`, `config_values[mode_config_key]` (else `default_mode_id`) selects the slots in force.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    type: str
    namespace: str
    category: str = ""
    display_name: str = ""
    description: str = ""
    width: int | None = None
    dynamic_slots: bool | None = None
    inputs: dict[str, SlotDefinition] = Field(default_factory=dict)
    outputs: dict[str, SlotDefinition] = Field(default_factory=dict)
    config_schema: dict[str, SlotDefinition] | None = None
    config_values: dict[str, JsonValue] | None = None
    modes: dict[str, NodeMode] | None = None
    default_mode_id: str | None = None
    mode_config_key: str | None = None
    client_script_url: str | None = None
    version: str | None = None
    handler: str = Field(default="", exclude=True)

    @property
    def full_type(self) -> str:
        """`namespace:type`, the name by which workflows use the node."""
        return f"{self.namespace}:{self.type}"

    def slots(
        self, config: dict[str, Any] | None = None
    ) -> tuple[dict[str, SlotDefinition], dict[str, SlotDefinition]]:
        """Return the input and output slots in force under `config` (the selected mode's, if any)."""
        if self.modes:
            key = (config or {}).get(self.mode_config_key or "", self.default_mode_id)
            mode = self.modes.get(str(key))
            if mode is not None:
                return mode.inputs, mode.outputs
        return self.inputs, self.outputs

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON of `GET /api/nodes`: what is set, plus the platform's two markers of a node
        that has code (a function cannot be sent, so it shows as `{"__function__": true}`)."""
        data = self.to_json()
        data["execute"] = {"__function__": True}
        data["_executes"] = True
        return data


class NodeCall(OpenModel):
    """Which node of which run is being executed, and on whose behalf."""

    run_id: str
    node_id: str
    call: CallContext


class NodeInstance(Protocol):
    """One node of one run, opened with its configuration."""

    async def run(self, inputs: dict[str, Any], node_call: NodeCall) -> dict[str, Any]:
        """Execute once: values by input slot in, values by output slot out. Raises what the node raises."""

    async def close(self) -> None:
        """Release what the instance holds; it is not used again."""


class NodeRunner(Protocol):
    """Makes instances of one node type; the engine never sees the author's function (DESIGN §3, rule 4)."""

    def open(self, config: dict[str, Any]) -> NodeInstance:
        """Return an instance for a node with these configuration values."""


class NodeManager(ServiceInterface, name="nodeManager"):
    """The node types that loaded plugins offer, after `tavern_before_register_node`."""

    @reads
    async def list_nodes(self) -> list[NodeDefinition]:
        """Return all node types, by full type."""

    @reads
    async def get(self, full_type: str) -> NodeDefinition:
        """Return one node type. Raises `NotFound` with near names."""


NODE_MANAGER = ServiceKey(NodeManager)
