"""Collects the nodes and edges of one level of a plan, and makes the level of them: feeds by input, who waits for whom.

Knows nothing of workflow documents; `compiler.py` reads those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.compile.bypass import Way
from tavern_engine.compile.deadlocks import mark_unbounded
from tavern_engine.compile.kinds import (
    OTHER,
    Handed,
    Joins,
    Kind,
    Shape,
    Simple,
    Slots,
    Source,
    is_flat,
    joined,
    simple_of,
    token_of,
)
from tavern_engine.compile.plan import VALUE, Feed, Input, Level, Nodes, PlanNode, Role
from tavern_host.contracts.dataflow import OPEN_SLOT, Converter, edge_order, find_slot
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import WorkflowNode

End = tuple["LevelBuilder", int, str, SlotDefinition]

_NO_SLOTS: Slots = {}


class Site:
    """Where a node of a document is: edges to and from it are looked up here.

    One that is run has `inputs` and `outputs` of its own. Others stand for something: `outs` says where an output is
    really given, `ins` who really takes an input; at a bypassed node, with the inputs `spare`, several may (`fans`).
    """

    __slots__ = (
        "dynamic", "fans", "index", "inner_ins", "inner_outs", "inputs", "ins", "level", "outputs", "outs", "spare"
    )  # fmt: skip

    def __init__(
        self,
        level: LevelBuilder,
        index: int,
        inputs: Slots = _NO_SLOTS,
        outputs: Slots = _NO_SLOTS,
        dynamic: bool = False,
    ) -> None:
        self.level = level
        self.index = index
        self.inputs = inputs
        self.outputs = outputs
        self.dynamic = dynamic
        self.outs: dict[str, End] = {}
        self.ins: dict[str, End] = {}
        self.fans: dict[str, list[tuple[int, Way]]] = {}
        self.spare: Slots = _NO_SLOTS
        self.inner_outs: dict[str, End] = {}
        self.inner_ins: dict[str, End] = {}

    def inside_inputs(self) -> Site:
        """Return what stands for a group's own `core:GroupInput`."""
        site = Site(self.level, self.index)
        site.outs = self.inner_outs
        return site

    def inside_outputs(self) -> Site:
        """Return what stands for a group's own `core:GroupOutput`."""
        site = Site(self.level, self.index)
        site.ins = self.inner_ins
        return site

    def output(self, handle: str) -> End | None:
        """Return where an output is given, or None where there is none of that name."""
        if handle in self.outs:
            return self.outs[handle]
        slot = self.outputs.get(handle) or (OPEN_SLOT if self.dynamic and handle else None)
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
    """A level that is being made, in columns. `zone` is the place of the loop's node in `parent`; `ids` are those of
    the nodes in the account of a run, of all levels together.

    Of a plain node, which has nothing but values of its own, no `made` node is there. Edges into nodes that have a
    `shape` are in `arriving`, as the nodes that they come from, the others in `edges`, by target and input.
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
    """What stands for a made node beside its edges."""
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
    is_in_order: bool = True
    """Whether all edges in `arriving` lead from a node to a later one."""

    @property
    def root_place(self) -> int:
        """The place, at the top, of the loop that this level lies in."""
        level = self
        while level.parent is not None and level.parent.parent is not None:
            level = level.parent
        return level.zone

    def add_plain(self, nodes: list[WorkflowNode], kinds: list[Kind], number: int) -> None:
        """Put in nodes that have nothing of their own but values and a name, with numbers from here on."""
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
        """Put in any other node, with what stands for it in signatures; `inputs` are those of one without a kind."""
        index, kind = len(self.gives), built.kind
        self.documents.append(node)
        self.gives.append(kind or Handed(built.outputs))
        self.shapes.append(kind.shape if kind is not None else OTHER)
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

    def site(self, index: int) -> Site:
        """Return where a node with slots of its own is."""
        kind = self.gives[index]
        assert isinstance(kind, Kind)
        return Site(self, index, kind.inputs, kind.outputs, kind.dynamic)

    def relay(
        self, name: str, slot: SlotDefinition, *, written: Any = None, gives: SlotDefinition | None = None
    ) -> int:
        """Put in a node that hands one value on, as its slot has it unless it `gives` another."""
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
        given: SlotDefinition,
        slot: SlotDefinition,
        convert: Converter | None,
        order: tuple[int | None, int] | None,
        token: str = "",
        edge: str = "",
    ) -> None:
        """Put an edge in, both ends of which are on this level."""
        self.shapes[target] = OTHER
        entry = (order, edge or name, name, source, handle, given, slot, convert, token)
        self.edges.setdefault(target, {}).setdefault(key, []).append(entry)
        if not given.is_stream:
            self.link(source, target)
        if given.is_stream:
            self.has_streams = True

    def link(self, source: int, target: int) -> None:
        """Let a node whose edges are looked at one by one wait for another."""
        linked = self.links.setdefault(target, set())
        if source not in linked:
            linked.add(source)
            self.followers[source].append(target)

    def path_from(self, outer: LevelBuilder) -> list[LevelBuilder] | None:
        """Return the levels from below `outer` down to this one; None where `outer` is not around it."""
        path: list[LevelBuilder] = []
        level: LevelBuilder | None = self
        while level is not None and level is not outer:
            path.append(level)
            level = level.parent
        return path[::-1] if level is outer else None

    def capture(self, name: str, outer: LevelBuilder, index: int, handle: str, given: SlotDefinition) -> int:
        """Bring a value of the level around into this one, the same for all iterations; return where it is."""
        assert self.parent is not None
        if (index, handle) not in self.captures:
            key = f"@{len(self.captures)}"
            relay = self.relay(name, given.model_copy(update={"required": False}))
            self.sources[key] = self.captures[index, handle] = relay
            self.parent.connect(name, index, handle, self.zone, key, given, OPEN_SLOT, None, None)
        return self.captures[index, handle]


def finish(builder: LevelBuilder) -> Level:
    """Return the level. Raises `InvalidInput` for nodes that wait for one another and inputs with too many edges."""
    for index, body in builder.bodies:
        node = builder.made[index]
        assert node is not None and node.loop is not None
        node.loop.body = finish(body)
        builder.tokens[index] = _loop_token(builder.tokens[index], node.loop.body)
    if builder.has_streams:
        _shorten_streams(builder)
    level = Level(
        nodes=Nodes(builder.made, _maker(builder)),
        written=builder.written,
        numbers=builder.numbers,
        waiting_for=[len(edges) for edges in builder.arriving],
        followers=builder.followers,
        sources=builder.arriving,
        asking=tuple(builder.asking),
        branching=_branching(builder.gives),
    )
    others = _put_plain(builder, level)
    early: dict[int, set[int]] = {}
    for index in others:
        _put_other(builder, level, index, early)
    for source, following in early.items():
        following.difference_update(level.followers[source])
        for follower in following:
            level.waiting_for[follower] += 1
    level.early = {source: tuple(following) for source, following in early.items() if following}
    level.order = range(len(level.nodes)) if builder.is_in_order and not others else _order(level)
    if builder.has_streams:
        mark_unbounded(level)
    return level


def _branching(gives: list[Source]) -> frozenset[int]:
    """Return which nodes have an output that may be left out; nodes of one kind share what says so."""
    ways = {id(given) for given in set(gives) if any(slot.is_branch for slot in given.outputs.values())}
    return frozenset(index for index, given in enumerate(gives) if id(given) in ways) if ways else frozenset()


def _maker(builder: LevelBuilder) -> Callable[[int], PlanNode]:
    """Return what makes the plain nodes of a level when somebody looks at them. It keeps no document."""
    ids, shapes, written, arriving = builder.ids, builder.shapes, builder.written, builder.arriving
    numbers, kinds, labels = builder.numbers, builder.gives, builder.labels

    def make(index: int) -> PlanNode:
        kind, number = kinds[index], numbers[index]
        assert isinstance(kind, Kind)
        kind.ready()
        node = PlanNode(ids[number], Role.NODE, number, kind.type, labels.get(index, kind.label))
        node.node_type, node.kind, node.instance = kind.node_type, kind, kind.instance
        node.outputs, node.config, node.written = kind.outputs, kind.config, written[index]
        if shapes[index] is not OTHER:
            node.inputs = _plain_inputs(shapes[index], arriving[index], written[index])
        return node

    return make


def _put_plain(builder: LevelBuilder, level: Level) -> list[int]:
    """Set the columns of the nodes whose edges bring values as they are; return the others."""
    shapes, written = builder.shapes, builder.written
    for shape in set(shapes):
        shape.ready()
    level.tokens = [shape.token for shape in shapes]
    level.simple = [
        shape.simple(values) if values else shape.bare for shape, values in zip(shapes, written, strict=True)
    ]
    for index, token in builder.tokens.items():
        shape, node = shapes[index], builder.made[index]
        if shape is not OTHER and node is not None:
            node.inputs = _plain_inputs(shape, builder.arriving[index], written[index])
            level.tokens[index] = joined(token, shape.token)
            level.simple[index] = _simple(node, shape.joins) if shape.missing <= written[index].keys() else None
    return [index for index, shape in enumerate(shapes) if shape is OTHER]


def _simple(node: PlanNode, joins: Joins) -> Simple | None:
    """Return how a node that has the inputs it needs is run with nothing but them, where it can be."""
    if node.role is not Role.NODE or node.kind is None or node.policy is not None or not is_flat(node.written):
        return None
    return simple_of(node.kind.calls_of(node.instance), joins)


def _plain_inputs(shape: Shape, sources: list[int], written: dict[str, Any]) -> list[Input]:
    """Return the inputs of a node whose edges bring values as they are."""
    inputs = []
    for source, (key, handle, given) in zip(sources, shape.slots, strict=True):
        feed = Feed("", source, handle, None, is_branch=bool(given.is_branch))
        inputs.append(Input(key, shape.kind.inputs[key], (feed,)))
    return inputs + [Input(key, shape.kind.inputs[key], ()) for key in shape.missing if key not in written]


def _loop_token(token: bytes | None, body: Level) -> bytes | None:
    """Return what stands for a loop in signatures: all that its body is made of; None where a part is never cached."""
    if body.asking:
        return None
    parts: list[Any] = [token]
    for index, node in enumerate(body.nodes):
        if body.tokens[index] is None:
            return None
        feeds = [[(feed.source, feed.key) for feed in item.feeds] for item in node.inputs]
        parts.append((body.tokens[index], node.written, [item.key for item in node.inputs], feeds))
    try:
        return token_of(parts)
    except ValueError:
        return None


def _put_other(builder: LevelBuilder, level: Level, index: int, early: dict[int, set[int]]) -> None:
    """Set the columns and the inputs of a node whose edges are looked at one by one."""
    node = level.nodes[index]
    written = node.written
    is_simple = True
    joins: list[tuple[str, str]] = []
    shape: list[Any] = []
    arriving = builder.edges.get(index, {})
    for key, entries in arriving.items():
        slot = entries[0][6]
        if len(entries) > 1:
            if not slot.multi:
                raise InvalidInput(f"node {node.id}: the input {key!r} takes one edge and has {len(entries)}")
            _sort(builder, index, key, entries)
        feeds = []
        for _, _, name, source, handle, given, wanted, convert, token in entries:
            if given.is_stream:
                # The others are told what it was when it has ended; a relay of one stream is no part of its way.
                reads = bool(wanted.is_stream) and node.role is Role.NODE
                feeds.append(_stream_feed(level, name, source, handle, convert, reads, index, builder, early))
            else:
                feeds.append(Feed(name, source, handle, convert, is_branch=bool(given.is_branch)))
                builder.link(source, index)
            shape.append((key, handle, token))
            if convert is not None or given.is_stream:
                is_simple = False
        if slot.multi or slot.is_stream:
            is_simple = False
        joins.append((key, feeds[0].key))
        is_direct = slot.multi and all(f.convert is None and f.reader < 0 and not f.collects for f in feeds)
        node.inputs.append(Input(key, slot, tuple(feeds), _columns(feeds) if is_direct else None))
    slots = node.kind.inputs if node.kind is not None else builder.inputs.get(index, {})
    for key, slot in slots.items():
        if key not in arriving and (slot.multi or slot.is_stream or (slot.required and key not in written)):
            node.inputs.append(Input(key, slot, ()))
            is_simple = False
    level.waiting_for[index] += len(builder.links.get(index, ()))
    own = builder.tokens.get(index, b"")
    if node.kind is not None:
        own = joined(own, node.kind.token)
    level.tokens[index] = joined(own, token_of(shape)) if shape else own
    if is_simple:
        level.simple[index] = _simple(node, tuple(joins))
    level.sources[index] = [feed.source for item in node.inputs for feed in item.feeds]


def _columns(feeds: list[Feed]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return tuple([feed.source for feed in feeds]), tuple([feed.key for feed in feeds])


def _stream_feed(
    level: Level,
    name: str,
    source: int,
    handle: str,
    convert: Converter | None,
    reads: bool,
    index: int,
    builder: LevelBuilder,
    early: dict[int, set[int]],
) -> Feed:
    """Return the feed of an edge that a stream flows along; number it among the readers of that stream."""
    known = level.streams.setdefault(source, {}).setdefault(handle, [])
    if not reads:
        builder.link(source, index)
        return Feed(name, source, handle, convert, -1, True)
    known.append((index, False))
    early.setdefault(source, set()).add(index)
    return Feed(name, source, handle, convert, len(known) - 1)


def _sort(builder: LevelBuilder, index: int, key: str, entries: list[Arriving]) -> None:
    """Bring the edges into a `multi` input into their order."""
    node = builder.documents[index]
    if index in builder.originals:
        node, key = builder.originals[index]
    if node is None:
        return
    order = edge_order(node, key)
    entries.sort(key=lambda e: order((e[1], e[0][0] if e[0] else None, e[0][1] if e[0] else 0)))


def _shorten_streams(builder: LevelBuilder) -> None:
    """Let edges out of relays that hand streams on begin where the stream does: a stream has one set of readers."""

    def origin(source: int, handle: str, depth: int) -> Arriving | None:
        node = builder.made[source]
        if node is None or node.role is not Role.RELAY or depth > len(builder.made):
            return None
        entries = builder.edges.get(source, {}).get(VALUE, [])
        if len(entries) != 1 or not entries[0][5].is_stream:
            return None
        return origin(entries[0][3], entries[0][4], depth + 1) or entries[0]

    for arriving in builder.edges.values():
        for entries in arriving.values():
            for place, entry in enumerate(entries):
                if not entry[5].is_stream:
                    continue
                first = origin(entry[3], entry[4], 0)
                if first is not None:
                    convert = both(first[7], entry[7])
                    token = f"{first[8]},{entry[8]}"
                    entries[place] = (*entry[:3], first[3], first[4], first[5], entry[6], convert, token)
    for index, node in enumerate(builder.made):
        if (
            node is not None
            and node.role is Role.RELAY
            and node.outputs[VALUE].is_stream
            and origin(index, VALUE, 0) is not None
        ):
            del builder.edges[index]  # nothing is handed on there any more


def both(first: Converter | None, second: Converter | None) -> Converter | None:
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


def _order(level: Level) -> list[int]:
    """Return all nodes, each after those that it waits for. Raises `InvalidInput` where there is no such order."""
    left = list(level.waiting_for)
    order = [index for index, count in enumerate(left) if not count]
    early = level.early
    for index in order:
        following = level.followers[index]
        if index in early:
            following = [*following, *early[index]]
        for follower in following:
            left[follower] -= 1
            if not left[follower]:
                order.append(follower)
    if len(order) != len(left):
        tangled = [level.nodes[index].id for index, count in enumerate(left) if count][:5]
        raise InvalidInput(f"some nodes wait for one another: {', '.join(tangled)}")
    return order
