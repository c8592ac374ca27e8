"""A compiled workflow: integers instead of ids, edges grouped by input, conversions bound to them.

Made by `compiler.py`; values are bound separately (`bound.py`), so that one plan serves many runs. A plan has one level
for the workflow, groups included, and one for the body of each loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import chain
from operator import mul
from typing import Any, NamedTuple

from tavern_engine.compile.node_kinds import Invocation, Kind
from tavern_engine.registry import NodeType
from tavern_host.context import HookResult
from tavern_host.contracts.nodes import NodeDefinition, NodeInstance, SlotDefinition
from tavern_host.contracts.workflows import NodePolicy
from tavern_workflows.api.dataflow import Converter
from tavern_workflows.api.loops import Zone

CARRIER = "__interface_outputs__"
"""The id of the node that carries the outputs which a client mapped to an interface by itself."""

_TOLD_APART = 1000
"""How many nodes a run may have whose types are counted one by one."""
VALUE = "value"
"""The only output, and input, of the nodes that the compiler puts in."""


class Role(Enum):
    """What a node of a plan is."""

    NODE = "node"
    RELAY = "relay"
    """Passes a value on: of a slot of a group's instance, of an output of a bypassed node, from outside of a loop."""
    INPUT = "input"
    """`core:GroupInput` of the workflow itself, and of a displayed group instance."""
    OUTPUT = "output"
    """`core:GroupOutput`: what arrives there are the workflow's interface outputs."""
    GROUP = "group"
    """Displays an instance of a group; it ends when all outputs of the group have values."""
    BYPASSED = "bypassed"
    """Displays a bypassed node."""
    LOOP = "loop"


class InEdge(NamedTuple):
    """An edge into an input: the output `key` of node `source`, converted on the way.

    `reader` is the edge's number among the readers of a stream; `collects` says that its items become one value.
    """

    id: str
    source: int
    key: str
    convert: Converter | None
    reader: int = -1
    collects: bool = False
    is_branch: bool = False


@dataclass(slots=True)
class Input:
    """An input of a node: its slot and its edges, in order.

    `direct` are their sources, and the outputs of these, where all of them bring values as they are.
    """

    key: str
    slot: SlotDefinition
    edges: tuple[InEdge, ...]
    direct: tuple[tuple[int, ...], tuple[str, ...]] | None = None


@dataclass(slots=True)
class PlanNode:
    """A node of one level. `number` is its place in the node table of a run; hidden ones have none (-1).

    `written` are the values and defaults of its inputs, `instance` what runs it, opened once, where it has no state.
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
    loop: Loop | None = None
    placement: str | None = None

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


class Nodes:
    """The nodes of a level. A plain one is made by `make` on first access, which is rare."""

    def __init__(self, made: list[PlanNode | None], make: Callable[[int], PlanNode]) -> None:
        self._made = made
        self._make = make

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, index: int) -> PlanNode:
        node = self._made[index]
        if node is None:
            node = self._made[index] = self._make(index)
        return node

    def __iter__(self) -> Iterator[PlanNode]:
        return (self[index] for index in range(len(self._made)))


@dataclass(slots=True)
class Cone:
    """Some nodes of a level, `touched`, and all that come after one of them: in `order`, and by node in `runs`.

    Where all of these run, the outputs of the `border` are used, the `rest` is not needed, `waiting_for` says for how
    many each waits, and the `ready` ones wait for none.
    """

    touched: tuple[int, ...]
    order: list[int]
    runs: bytearray
    border: list[int]
    rest: list[int]
    waiting_for: list[int]
    ready: list[int]


@dataclass
class Level:
    """Nodes that are scheduled together, in columns: what is said of node `i` stands at `i`.

    `written`: the values and defaults of its inputs. `tokens`: what stands in its signature for its type, configuration
    and the slots that its edges join; None: its outputs are never used again. `numbers`: its place in the node table of
    a run, -1 where it has none. `waiting_for`: how many edges it waits for, counted as in `followers`, the nodes that
    wait for its end, one with several edges perhaps several times; `early`: those that wait for its beginning, as
    readers of its streams do.

    `sources`: the nodes that it has edges from, one for each edge, in the order of its inputs. `invocations`: how it is
    called if it needs nothing but the values of these and its written ones; else None. `streams`: for each of its
    outputs that are read as a stream, the nodes that do, by the number of the reader, and whether each may hold
    items without limit.
    """

    nodes: Nodes | tuple[PlanNode, ...] = ()
    written: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[bytes | None] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    waiting_for: list[int] = field(default_factory=list)
    followers: list[list[int]] = field(default_factory=list)
    early: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sources: list[list[int]] = field(default_factory=list)
    invocations: list[Invocation | None] = field(default_factory=list)
    streams: dict[int, dict[str, list[tuple[int, bool]]]] = field(default_factory=dict)
    order: Sequence[int] = ()
    """All nodes, each after those that it waits for."""
    asking: tuple[int, ...] = ()
    """The nodes that must be asked whether they changed."""
    branching: frozenset[int] = frozenset()
    """The nodes with an output that may be left out."""
    _cone: Cone | None = None

    def is_read_immutable(self, index: int) -> bool:
        """Return whether all that read the value of a relay, directly or through others, take it unchanged."""
        for follower in set(self.followers[index]):
            node = self.nodes[follower]
            if node.role in (Role.RELAY, Role.INPUT):
                if not self.is_read_immutable(follower):
                    return False
                continue
            takes = () if node.node_type is None else node.node_type.definition.traits.takes_immutable
            for item in node.inputs:
                for edge in item.edges:
                    if edge.source == index and (item.key not in takes or item.slot.multi or edge.convert is not None):
                        return False
        return True

    @cached_property
    def placed(self) -> list[int]:
        """The nodes that the workflow places on a cluster."""
        return [index for index, node in enumerate(self.nodes) if node.placement]

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The nodes that none waits for."""
        return tuple(i for i, after in enumerate(self.followers) if not after and i not in self.early)

    @cached_property
    def ranks(self) -> list[int]:
        """The place of each node in `order`."""
        found = [0] * len(self.followers)
        for place, index in enumerate(self.order):
            found[index] = place
        return found

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The nodes that wait for none."""
        return tuple(i for i, count in enumerate(self.waiting_for) if not count)

    @cached_property
    def branches(self) -> list[int]:
        """The nodes that branch and all that come after one, in order; made where there are some."""
        found = bytearray(len(self.followers))
        for index in self.order:
            if found[index] or index in self.branching:
                found[index] = 1
                for follower in (*self.followers[index], *self.early.get(index, ())):
                    found[follower] = 1
        return [index for index in self.order if found[index]]

    def after(self, touched: tuple[int, ...]) -> Cone:
        """Return some nodes and all that come after one of them. What comes after those of the last time is known: a
        person changes one value again and again."""
        if self._cone is None or self._cone.touched != touched:
            self._cone = self._found_after(touched)
        return self._cone

    def _found_after(self, touched: tuple[int, ...]) -> Cone:
        """Return the cone of some nodes; see `after`."""
        followers, early = self.followers, self.early
        runs = bytearray(len(followers))
        waiting = list(touched)
        for index in waiting:
            runs[index] = 1
        for index in waiting:
            following = followers[index] if index not in early else (*followers[index], *early[index])
            for follower in following:
                if not runs[follower]:
                    runs[follower] = 1
                    waiting.append(follower)
        order = [index for index in self.order if runs[index]]
        border = set(chain.from_iterable(map(self.sources.__getitem__, order))).union(self.ends).difference(order)
        rest = [index for index in self.order if not runs[index] and index not in border]
        left = self.waiting(runs, border)
        return Cone(touched, order, runs, sorted(border), rest, left, [index for index in order if not left[index]])

    def waiting(self, runs: bytearray, known: Iterable[int]) -> list[int]:
        """Return by node for how many of those that run it waits; what comes before them runs itself or is known.
        The others, at 0 or less, never become ready."""
        left = list(map(mul, self.waiting_for, runs))
        for index in known:
            for follower in self.followers[index]:
                left[follower] -= 1
            for follower in self.early.get(index, ()):
                left[follower] -= 1
        return left


@dataclass
class Plan:
    """A compiled workflow. `ids` are the nodes in the node table of a run, by number; `interface` the nodes that bring
    the values of interface inputs in, by key; `outputs` those that carry the interface's outputs; `contributions` what
    the nodes' code belongs to, each once; `streaming`, by number, the outputs of a node that are streams.

    `by_place`: by the document's order, the node of the top level whose written values are its; -1 for others.
    `stand_ins`: by id, the node of the top level that must run for one that is not there itself: that lies in a loop.
    """

    level: Level
    ids: list[str]
    interface: dict[str, int]
    outputs: list[int]
    contributions: tuple[HookResult[list[NodeDefinition]], ...]
    streaming: dict[int, tuple[str, ...]]
    by_place: list[int]
    stand_ins: dict[str, int]
    code_digests: dict[int, bytes] = field(default_factory=dict)
    """By node of the top level its digest, where it may have no signature; see `code_digests.py`."""
    loops: frozenset[int] = frozenset()
    """The numbers of loops."""
    is_current: Callable[[], bool] = lambda: True
    """Says whether settings are as they were when its nodes were signed: what they give later is not cached."""

    @cached_property
    def takes_immutable(self) -> frozenset[str]:
        """The interface inputs that only nodes read which take `ImmutableJson` as it is."""
        return frozenset(key for key, index in self.interface.items() if self.level.is_read_immutable(index))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """By id the place of a node in the node table of a run."""
        return {identifier: number for number, identifier in enumerate(self.ids)}

    @cached_property
    def types(self) -> list[tuple[str, str]]:
        """By place in the node table the plugin and the type of each node; empty where there are many."""
        found = [("", "")] * len(self.ids) if len(self.ids) <= _TOLD_APART else []
        levels = [self.level] if found else []
        for level in levels:
            for node in level.nodes:
                if node.number >= 0:
                    found[node.number] = (node.plugin or "", node.type)
                if node.loop is not None:
                    levels.append(node.loop.body)
        return found

    @cached_property
    def targets(self) -> dict[str, int]:
        """By id the node of the top level that must run for a node: itself, or the loop that it is in."""
        here = {self.ids[number]: index for index, number in enumerate(self.level.numbers) if number >= 0}
        return {**self.stand_ins, **here}
