"""Nodes as data: slots, definitions, and the runner through which an engine executes one.

The JSON of a `NodeDefinition` is what the existing platform serves at `GET /api/nodes`.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import ConfigDict, Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.wire import Model, OpenModel, without_surrogates


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
    `multi` inputs take several edges; `actions` are the buttons beside the slot, as the platform's pages know them.
    An output that `is_branch` may be left out of a node's outputs: what follows it is then skipped, without an error.
    """

    data_flow_type: DataFlowType
    display_name: str | None = None
    description: str | None = None
    required: bool | None = None
    multi: bool | None = None
    match_categories: tuple[str, ...] | None = None
    config: dict[str, JsonValue] | None = None
    is_stream: bool | None = None
    is_branch: bool | None = None
    allow_dynamic_type: bool | None = None
    actions: tuple[dict[str, JsonValue], ...] | None = None

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


class BypassBehavior(OpenModel):
    """What a bypassed node gives: by output slot, the input whose value it passes through. An output that is not
    named, or whose input has no value, gives the empty value of its type."""

    pass_through: dict[str, str] = Field(default_factory=dict)


class NodeTraits(Model):
    """How an engine may run a node type.

    `streams`: its code is an async generator. `stateful`: an instance is opened for each run (in a loop: for all
    of its iterations) and closed after it; others are opened once. `placement`: where its code runs, on the event
    loop, in a thread, or in a process that can be killed. `cached`: the same configuration and inputs give the
    same outputs, so that earlier ones may be used. `checks_change`: the runner's `change` says whether they may.
    `wants_call`: it looks at the `NodeCall`; the others may be given None. `actions`: the buttons that `act` knows.
    `takes_immutable`: the inputs that take `ImmutableJson` as it is, and do not change it.
    """

    streams: bool = False
    stateful: bool = False
    placement: Literal["loop", "thread", "process"] = "loop"
    cached: bool = True
    checks_change: bool = False
    wants_call: bool = True
    actions: tuple[str, ...] = ()
    takes_immutable: tuple[str, ...] = ()


class NodeDefinition(OpenModel):
    """A node type. `handler` is `module:name` in the owning plugin; it and `traits` are never sent out.

    `bypass_behavior` says what a bypassed node gives: `mute` (empty values), named inputs, or, where it is not
    set, for each output the first input of a type that goes into it.

    With `modes`, `config_values[mode_config_key]` (else `default_mode_id`) selects the slots in force.

    `texts` says by language what names, descriptions and labels are in it, each by what it is here; the host makes it
    of the plugins' catalogues.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)
    KIND: ClassVar[ContributionKind] = ContributionKind(
        name="node",
        title="full_type",
        collector="tavern_host.sdk.decorator:collect_nodes",
        opener="node_runners:open_node",
        transport="loopback_nodes:transport_runner",
    )

    type: str
    namespace: str
    category: str = ""
    display_name: str = ""
    description: str = ""
    icon: str | None = None
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
    bypass_behavior: Literal["mute"] | BypassBehavior | None = None
    version: str | None = None
    texts: dict[str, dict[str, str]] | None = None
    handler: Handler = Field(default="", exclude=True)
    traits: NodeTraits = Field(default_factory=NodeTraits, exclude=True)

    @property
    def full_type(self) -> str:
        """`namespace:type`, the name by which workflows use the node."""
        return f"{self.namespace}:{self.type}"

    def mode(self, config: Mapping[str, Any] | None = None) -> str | None:
        """Return the mode that `config` selects, else the type's values, else the default; null selects none."""
        key, schema = self.mode_config_key, self.config_schema or {}
        if not self.modes or key is None:
            return self.default_mode_id if self.modes else None
        preset = schema[key].default if key in schema else None
        chosen = ((config or {}).get(key), (self.config_values or {}).get(key), preset, self.default_mode_id)
        value = next((one for one in chosen if one is not None), None)
        if value is None or isinstance(value, str):
            return value
        return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)

    def slots(
        self, config: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, SlotDefinition], dict[str, SlotDefinition]]:
        """Return the input and output slots in force under `config` (the selected mode's, if any)."""
        mode = self.modes.get(self.mode(config) or "") if self.modes else None
        return (self.inputs, self.outputs) if mode is None else (mode.inputs, mode.outputs)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON of `GET /api/nodes`: what is set, plus the platform's two markers of a node
        that has code (a function cannot be sent, so it shows as `{"__function__": true}`)."""
        data = self.to_json()
        data["execute"] = {"__function__": True}
        data["_executes"] = True
        return data


class NodeCall(Model):
    """Which node of which run is being executed, and on whose behalf. `iteration` counts from 0 within a loop."""

    run_id: str
    node_id: str
    call: CallContext
    iteration: int | None = None


MAX_MESSAGE = 500
"""How many characters of the message of a node's progress are passed on."""


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


class NodeProgress(Model):
    """How far a node says it is: `value` of `maximum`, where that is known, and what it does at the moment."""

    value: float
    maximum: float | None = None
    message: str | None = None

    @classmethod
    def of(cls, value: object, maximum: object = None, message: object = None) -> NodeProgress:
        """Return a node's progress, its message at most `MAX_MESSAGE` characters long. Raises `InvalidInput`."""
        if not (_is_finite(value) and (maximum is None or _is_finite(maximum))):
            wrong = maximum if _is_finite(value) else value
            raise InvalidInput(f"the progress of a node must be finite numbers, not {wrong!r:.80}")
        if not (message is None or isinstance(message, str)):
            raise InvalidInput(f"the message of a node's progress must be text, not {message!r:.80}")
        said = None if message is None else without_surrogates(str.__str__(message)[:MAX_MESSAGE])
        return cls.construct(value=value, maximum=maximum, message=said)


Report = Callable[[NodeProgress], None]
"""Takes what a node says of its progress, on any thread. A boundary carries it over like an item of a stream."""


class DirectCall(NamedTuple):
    """A shorter way to run the simplest nodes: `function(**inputs)`, awaited where it `is_async`, is the value of the
    one output `output`. It does what `run` does, for inputs that the type declares, and raises what `run` would."""

    function: Callable[..., Any]
    output: str
    is_async: bool


class ItemStream(Protocol):
    """Executes a node whose one output is a stream."""

    def __call__(
        self, inputs: dict[str, Any], node_call: NodeCall | None, report: Report | None = None
    ) -> AsyncIterator[Any]:
        """Yield the items of the stream; closing the iterator ends the node's code."""


class NodeInstance(Protocol):
    """A node with its configuration. One that is not stateful may be run several times at once.

    `direct` is there for speed, and None wherever there is anything between the caller and the node's code. So is
    `items`: what a node yields whose one output is a stream, as it is; else it is as `stream`.
    """

    direct: DirectCall | None
    items: ItemStream | None

    async def run(
        self, inputs: dict[str, Any], node_call: NodeCall | None, report: Report | None = None
    ) -> dict[str, Any]:
        """Execute once: values by input slot in, values by output slot out. Raises what the node raises.

        `report` takes the node's progress while it runs. An input that is a stream is an `AsyncIterator` with one
        reader. `inputs` is not used again by the caller.
        """

    def stream(
        self, inputs: dict[str, Any], node_call: NodeCall | None, report: Report | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Execute a node that streams: yields, by output slot, items of its streams and values of its other outputs.

        Of an output that is no stream the last value counts. Closing the iterator ends the node's code.
        """

    async def close(self) -> None:
        """Release what the instance holds; it is not used again."""


class NodeRunner(Protocol):
    """Makes instances of one node type; the engine never sees the author's function."""

    def open(self, config: dict[str, Any]) -> NodeInstance:
        """Return an instance for a node with these configuration values."""

    async def change(self, inputs: dict[str, Any], config: dict[str, Any]) -> JsonValue:
        """Return a value that differs from the one before where the node must be run again although nothing of it
        changed. `inputs` are those that are known before the run. For types whose traits say `checks_change`."""

    async def act(self, action: str, inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, JsonValue]:
        """Carry out what a button of the node's face asks for; return the input values that it changes.

        Raises `NotFound` for an action that the type does not have.
        """
