"""A workflow as the engine runs it: integers instead of ids, edges grouped by input, conversions bound to them.

Made by `compiler.py`; values are apart (`bound.py`), so that one plan serves many runs. A plan has one level for the
workflow, groups included, and one for the body of each loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tavern_engine.kinds import Kind
from tavern_engine.registry import NodeType
from tavern_host.context import Contribution
from tavern_host.contracts.dataflow import Converter
from tavern_host.contracts.loops import Zone
from tavern_host.contracts.nodes import DirectCall, NodeDefinition, NodeInstance, SlotDefinition
from tavern_host.contracts.workflows import NodePolicy

CARRIER = "__interface_outputs__"
"""The id of the node that carries the outputs which a client mapped to an interface by itself."""

VALUE = "value"
"""The only output, and input, of the nodes that the compiler puts in."""


class Role(Enum):
    """What a node of a plan is."""

    NODE = "node"
    RELAY = "relay"
    """Hands a value on: of a slot of a group's instance, of an output of a bypassed node, from outside of a loop."""
    INPUT = "input"
    """`core:GroupInput` of the workflow itself, and what of a group's instance is seen of it."""
    OUTPUT = "output"
    """`core:GroupOutput`: what arrives there are the workflow's interface outputs."""
    GROUP = "group"
    """What is seen of an instance of a group; it ends when all outputs of the group are there."""
    BYPASSED = "bypassed"
    """What is seen of a node that is bypassed."""
    LOOP = "loop"


class Feed(NamedTuple):
    """An edge into an input: the output `key` of node `source`, converted on the way.

    `reader` is the edge's number among the readers of a stream; `collects` says that its items become one value.
    """

    edge: str
    source: int
    key: str
    convert: Converter | None
    reader: int = -1
    collects: bool = False
    is_branch: bool = False


@dataclass(slots=True)
class Input:
    """An input of a node: its slot and the edges that feed it, in order.

    `direct` are their sources and outputs where all of them bring values as they are.
    """

    key: str
    slot: SlotDefinition
    feeds: tuple[Feed, ...]
    direct: tuple[tuple[int, str], ...] | None = None


@dataclass(slots=True)
class PlanNode:
    """A node of one level. `number` is its place in the account of a run; hidden ones have none (-1).

    `written` are the values and defaults of its inputs, `instance` what runs it, opened once, where it has no state.
    `token` stands in its signature for its type, configuration and edges; None: its outputs are never used again.
    """

    id: str
    role: Role
    number: int = -1
    type: str = ""
    label: str = ""
    inputs: list[Input] = field(default_factory=list)
    outputs: dict[str, SlotDefinition] = field(default_factory=dict)
    written: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    node_type: NodeType | None = None
    kind: Kind | None = None
    instance: NodeInstance | None = None
    policy: NodePolicy | None = None
    token: bytes | None = b""
    loop: Loop | None = None

    @property
    def plugin(self) -> str | None:
        """Who owns the node's type."""
        return self.node_type.plugin if self.node_type else None


@dataclass(slots=True)
class Loop:
    """A loop: what its configuration says and the level of its body. `sources` are the body's nodes that bring values
    in, by the zone's inner output or the zone's input for a value from outside; `end` gathers what the body gives. One
    that is bypassed has no iterations."""

    zone: Zone
    body: Level
    sources: dict[str, int]
    end: int
    is_bypassed: bool = False


@dataclass(slots=True)
class Level:
    """Nodes that are scheduled together. `waiting_for[i]` counts the nodes before node `i`; `followers[i]` are those
    that wait for its end, `early[i]` those that wait for its beginning, as readers of its streams do.

    `simple[i]` is `(input, source, output)` for each edge, where node `i` needs nothing but these and its written
    values to run; None where it does. `streams[i]`: for each of its outputs that somebody reads as a stream, the nodes
    that do, by the number of the reader, and whether each may hold items without limit.
    """

    nodes: list[PlanNode]
    waiting_for: list[int] = field(default_factory=list)
    followers: list[tuple[int, ...]] = field(default_factory=list)
    early: dict[int, tuple[int, ...]] = field(default_factory=dict)
    simple: list[tuple[tuple[str, int, str], ...] | None] = field(default_factory=list)
    streams: dict[int, dict[str, list[tuple[int, bool]]]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    """All nodes, each after those that it waits for."""
    calls: list[Callable[[dict[str, Any], None], Awaitable[dict[str, Any]]] | None] = field(default_factory=list)
    """What runs the simple ones."""
    direct: list[DirectCall | None] = field(default_factory=list)
    """How those of them are called that need no more than that."""
    numbers: list[int] = field(default_factory=list)


class Shown(NamedTuple):
    """A node in the account of a run."""

    id: str
    type: str
    label: str


@dataclass(slots=True)
class Plan:
    """A compiled workflow. `interface` are the nodes that bring the values of interface inputs in, by key; `outputs`
    those that carry the interface's outputs; `shown` the nodes in the account of a run;
    `contributions` what the nodes' code belongs to, each once."""

    level: Level
    interface: dict[str, int]
    outputs: list[int]
    shown: list[Shown]
    contributions: tuple[Contribution[list[NodeDefinition]], ...]
    numbers: dict[str, int]
    targets: dict[str, int]
    """By id the node of the top level that must run for a node: itself, or the loop that it is in."""
    streaming: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By number the outputs of a node that are streams."""
    by_place: list[int] = field(default_factory=list)
    """By the document's order, the node of the top level whose written values are its; -1 for others."""
    asking: list[int] = field(default_factory=list)
    """The nodes of the top level that must be asked whether they changed."""
    lineages: dict[int, bytes] = field(default_factory=dict)
    """By number what code the results of a node come from, where it may have no signature; see `lineage.py`."""
