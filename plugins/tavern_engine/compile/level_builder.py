"""Collects the nodes and edges of one level of a plan, in columns; `level_assembly.py` makes the level of them.

Knows nothing of workflow documents; `compiler.py` reads those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tavern_engine.compile.bypass import PassThrough
from tavern_engine.compile.node_kinds import IRREGULAR, Kind, OwnOutputs, Shape, Slots, Source
from tavern_engine.compile.plan import VALUE, PlanNode, Role
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import WorkflowNode
from tavern_workflows.api.dataflow import OPEN_SLOT, Converter, find_output, find_slot

End = tuple["LevelBuilder", int, str, SlotDefinition]

_NO_SLOTS: Slots = {}


@dataclass(eq=False, slots=True)
class Endpoint:
    """The slots that the edges of a document's node connect to.

    A node that is run has `inputs` and `outputs` of its own. Others are placeholders: `outs` maps an output to the one
    that provides it, `ins` an input to the one that receives it; that of a bypassed node, with the inputs `spare`, may
    go to several relays (`fan_out`).
    """

    level: LevelBuilder
    index: int
    inputs: Slots = field(default_factory=dict)
    outputs: Slots = field(default_factory=dict)
    dynamic: bool = False
    outs: dict[str, End] = field(default_factory=dict)
    ins: dict[str, End] = field(default_factory=dict)
    fan_out: dict[str, list[tuple[int, PassThrough]]] = field(default_factory=dict)
    spare: Slots = field(default_factory=dict)
    inner_outs: dict[str, End] = field(default_factory=dict)
    inner_ins: dict[str, End] = field(default_factory=dict)

    def inside_inputs(self) -> Endpoint:
        """Return the endpoint of a group's own `core:GroupInput`."""
        return Endpoint(self.level, self.index, outs=self.inner_outs)

    def inside_outputs(self) -> Endpoint:
        """Return the endpoint of a group's own `core:GroupOutput`."""
        return Endpoint(self.level, self.index, ins=self.inner_ins)

    def output(self, handle: str) -> End | None:
        """Return the slot that provides an output, or None where there is none of that name."""
        if handle in self.outs:
            return self.outs[handle]
        slot = find_output(self.outputs, handle, dynamic=self.dynamic)
        return (self.level, self.index, handle, slot) if slot is not None else None

    def find(self, handle: str) -> tuple[str, SlotDefinition, int | None] | None:
        """Return the key, slot and position of the input that a handle names, or None where there is none."""
        slots = {key: slot for key, (_, _, _, slot) in self.ins.items()} | self.spare | self.inputs
        return find_slot(slots, handle, dynamic=self.dynamic)


Arriving = tuple[
    tuple[int | None, int] | None, str, str, int, str, SlotDefinition, SlotDefinition, Converter | None, str
]
"""An edge: its place, id, name, source, output, the slots of both ends, what converts it, and what says so."""


@dataclass(eq=False)
class LevelBuilder:
    """A level under construction, in columns. `zone` is the place of the loop's node in `parent`; `ids` are those of
    the node table of a run, of all levels together.

    A plain node, which has nothing but values of its own, has no `made` node. Edges into nodes with a regular `shape`
    are in `arriving`, as the nodes that they come from, the others in `edges`, by target and input.
    """

    ids: list[str]
    parent: LevelBuilder | None = None
    zone: int = -1
    documents: list[WorkflowNode | None] = field(default_factory=list)
    gives: list[Source] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    written: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    made: list[PlanNode | None] = field(default_factory=list)
    arriving: list[list[int]] = field(default_factory=list)
    followers: list[list[int]] = field(default_factory=list)
    edges: dict[int, dict[str, list[Arriving]]] = field(default_factory=dict)
    links: dict[int, set[int]] = field(default_factory=dict)
    """By target the nodes that `edges` come from, streams apart."""
    tokens: dict[int, bytes | None] = field(default_factory=dict)
    """The signature token of a made node, its edges apart."""
    inputs: dict[int, Slots] = field(default_factory=dict)
    """The inputs of those made nodes that have no kind."""
    labels: dict[int, str] = field(default_factory=dict)
    """The names of those plain nodes that have one of their own."""
    asking: list[int] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    bodies: list[tuple[int, LevelBuilder]] = field(default_factory=list)
    originals: dict[int, tuple[WorkflowNode, str]] = field(default_factory=dict)
    captures: dict[tuple[int, str], int] = field(default_factory=dict)
    has_streams: bool = False

    @property
    def root_place(self) -> int:
        """The place, at the top, of the loop that contains this level."""
        level = self
        while level.parent is not None and level.parent.parent is not None:
            level = level.parent
        return level.zone

    def add_plain(self, nodes: list[WorkflowNode], kinds: list[Kind], number: int) -> None:
        """Add nodes that have nothing of their own but values and a name, with consecutive numbers from `number`."""
        first = len(self.gives)
        self.documents += nodes
        self.gives += kinds
        self.shapes += [kind.shape for kind in kinds]
        self.written += [
            kind.values(node) if node.input_values else kind.defaults for node, kind in zip(nodes, kinds, strict=True)
        ]
        self.numbers += range(number, number + len(nodes))
        self.made += [None] * len(nodes)
        self.arriving += [[] for _ in nodes]
        self.followers += [[] for _ in nodes]
        self.labels.update({i: node.display_name for i, node in enumerate(nodes, first) if node.display_name})

    def add(self, built: PlanNode, node: WorkflowNode | None, token: bytes | None, inputs: Slots = _NO_SLOTS) -> int:
        """Add any other node, with its signature token; `inputs` are those of one without a kind."""
        index, kind = len(self.gives), built.kind
        self.documents.append(node)
        self.gives.append(kind or OwnOutputs(built.outputs))
        self.shapes.append(kind.shape if kind is not None else IRREGULAR)
        self.written.append(built.written)
        self.numbers.append(built.number)
        self.made.append(built)
        self.arriving.append([])
        self.followers.append([])
        self.tokens[index] = token
        if kind is None:
            self.inputs[index] = inputs
        elif kind.is_asked:
            self.asking.append(index)
        return index

    def endpoint(self, index: int) -> Endpoint:
        """Return the endpoint of a node with slots of its own."""
        kind = self.gives[index]
        assert isinstance(kind, Kind)
        return Endpoint(self, index, kind.inputs, kind.outputs, kind.dynamic)

    def relay(
        self, name: str, slot: SlotDefinition, *, written: Any = None, gives: SlotDefinition | None = None
    ) -> int:
        """Add a node that passes one value on, with its slot as output unless it `gives` another."""
        built = PlanNode(name, Role.RELAY)
        built.outputs = {VALUE: gives or slot}
        built.written = {VALUE: written} if written is not None else {}
        return self.add(built, None, b"", {VALUE: slot})

    def connect(
        self,
        name: str,
        source: int,
        handle: str,
        target: int,
        key: str,
        source_slot: SlotDefinition,
        slot: SlotDefinition,
        convert: Converter | None,
        order: tuple[int | None, int] | None,
        token: str = "",
        edge: str = "",
    ) -> None:
        """Add an edge, both ends of which are on this level."""
        self.shapes[target] = IRREGULAR
        entry = (order, edge or name, name, source, handle, source_slot, slot, convert, token)
        self.edges.setdefault(target, {}).setdefault(key, []).append(entry)
        if not source_slot.is_stream:
            self.link(source, target)
        if source_slot.is_stream:
            self.has_streams = True

    def link(self, source: int, target: int) -> None:
        """Make a node with an irregular shape wait for another."""
        linked = self.links.setdefault(target, set())
        if source not in linked:
            linked.add(source)
            self.followers[source].append(target)

    def path_from(self, outer: LevelBuilder) -> list[LevelBuilder] | None:
        """Return the levels from below `outer` down to this one; None where `outer` does not contain it."""
        path: list[LevelBuilder] = []
        level: LevelBuilder | None = self
        while level is not None and level is not outer:
            path.append(level)
            level = level.parent
        return path[::-1] if level is outer else None

    def capture(self, name: str, index: int, handle: str, source_slot: SlotDefinition) -> int:
        """Add a relay for a value of the outer level, the same for all iterations; return its place."""
        assert self.parent is not None
        if (index, handle) not in self.captures:
            key = f"@{len(self.captures)}"
            relay = self.relay(name, source_slot.model_copy(update={"required": False}))
            self.sources[key] = self.captures[index, handle] = relay
            self.parent.connect(name, index, handle, self.zone, key, source_slot, OPEN_SLOT, None, None)
        return self.captures[index, handle]
