"""Collects the nodes and edges of one level of a plan, and makes the level of them: feeds by input, who waits for whom.

Knows nothing of workflow documents; `compiler.py` reads those.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.deadlocks import mark_unbounded
from tavern_engine.plan import VALUE, Feed, Input, Level, PlanNode, Role
from tavern_host.contracts.dataflow import OPEN_SLOT, Converter, edge_order
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import WorkflowNode

Slots = dict[str, SlotDefinition]
End = tuple["LevelBuilder", int, str, SlotDefinition]

_CONTAINERS = (list, dict)
_NO_SLOTS: Slots = {}


class Site:
    """Where a node of a document is: edges to and from it are looked up here.

    A plain node has `inputs` and `outputs`. A closed one stands for others: `outs` says where its outputs are really
    given, `ins` who really takes an input; of a bypassed node several may (`fans`).
    """

    __slots__ = (
        "dynamic", "fans", "index", "inner_ins", "inner_outs", "inputs", "ins", "is_closed", "level", "node", "outputs",
        "outs", "own_inputs", "spare",
    )  # fmt: skip

    def __init__(
        self, level: LevelBuilder, index: int, inputs: Slots, outputs: Slots, dynamic: bool, node: WorkflowNode | None
    ) -> None:
        self.level = level
        self.index = index
        self.inputs = inputs
        self.outputs = outputs
        self.dynamic = dynamic
        self.node = node
        self.is_closed = False
        self.outs: dict[str, End] = {}
        self.ins: dict[str, Site] = {}
        self.fans: dict[str, list[tuple[Site, SlotDefinition]]] = {}
        self.spare: Slots = _NO_SLOTS
        self.own_inputs: Slots = _NO_SLOTS
        self.inner_outs: dict[str, End] = {}
        self.inner_ins: dict[str, Site] = {}

    def inside_inputs(self, node: WorkflowNode) -> Site:
        """Return what stands for a group's own `core:GroupInput`."""
        return self._inside(node, self.inner_outs, {})

    def inside_outputs(self, node: WorkflowNode) -> Site:
        """Return what stands for a group's own `core:GroupOutput`."""
        return self._inside(node, {}, self.inner_ins)

    def _inside(self, node: WorkflowNode, outs: dict[str, End], ins: dict[str, Site]) -> Site:
        site = Site(self.level, self.index, _NO_SLOTS, _NO_SLOTS, False, node)
        site.is_closed = True
        site.outs, site.ins = outs, ins
        return site


Arriving = tuple[
    tuple[int | None, int] | None, str, str, int, str, SlotDefinition, SlotDefinition, Converter | None, str
]
"""An edge: its place, id, name, source, output, the slots of both ends, what converts it, and what says so."""


@dataclass(eq=False)
class LevelBuilder:
    """A level that is being made. `zone` is the place of the loop's node in `parent`."""

    parent: LevelBuilder | None = None
    zone: int = -1
    nodes: list[PlanNode] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)
    arriving: list[dict[str, list[Arriving]] | None] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    bodies: list[tuple[PlanNode, LevelBuilder]] = field(default_factory=list)
    originals: dict[int, tuple[WorkflowNode, str]] = field(default_factory=dict)
    captures: dict[tuple[int, str], int] = field(default_factory=dict)
    has_streams: bool = False

    @property
    def root_place(self) -> int:
        """The place, at the top, of the loop that this level lies in."""
        level = self
        while level.parent is not None and level.parent.parent is not None:
            level = level.parent
        return level.zone

    def empty(self) -> Level:
        """Return a level without nodes."""
        return Level([])

    def add(
        self,
        built: PlanNode,
        inputs: Slots,
        outputs: Slots,
        dynamic: bool,
        node: WorkflowNode | None,
        *,
        plain: bool = False,
    ) -> Site:
        """Put a node in."""
        site = Site(self, len(self.nodes), inputs, outputs, dynamic, node)
        self.nodes.append(built)
        self.sites.append(site)
        self.plain.append(plain)
        self.arriving.append(None)
        return site

    def relay(self, name: str, slot: SlotDefinition) -> Site:
        """Put in a node that hands one value on."""
        built = PlanNode(name, Role.RELAY)
        built.outputs = {VALUE: slot}
        return self.add(built, {VALUE: slot}, built.outputs, False, None)

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
        into = self.arriving[target]
        if into is None:
            into = self.arriving[target] = {}
        entry = (order, edge or name, name, source, handle, given, slot, convert, token)
        if key in into:
            into[key].append(entry)
        else:
            into[key] = [entry]
        if given.is_stream:
            self.has_streams = True

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
            self.sources[key] = relay.index
            self.captures[index, handle] = relay.index
            self.parent.connect(name, index, handle, self.zone, key, given, OPEN_SLOT, None, None)
        return self.captures[index, handle]


def finish(builder: LevelBuilder) -> Level:
    """Return the level. Raises `InvalidInput` for nodes that wait for one another and inputs with too many edges."""
    for built, body in builder.bodies:
        assert built.loop is not None
        built.loop.body = finish(body)
        built.token = _loop_token(built.token, built.loop.body)
    nodes = builder.nodes
    if builder.has_streams:
        _shorten_streams(builder)
    links: list[set[int]] = [set() for _ in nodes]
    early: dict[int, set[int]] = {}
    streams: dict[int, dict[str, list[tuple[int, bool]]]] = {}
    simple: list[tuple[tuple[str, int, str], ...] | None] = []
    for index, node in enumerate(nodes):
        simple.append(_feed(builder, index, node, links, early, streams))
    waiting_for = [0] * len(nodes)
    for source, following in early.items():
        following -= links[source]
    for after in links:
        for follower in after:
            waiting_for[follower] += 1
    for following in early.values():
        for follower in following:
            waiting_for[follower] += 1
    level = Level(
        nodes,
        waiting_for,
        [tuple(after) for after in links],
        {source: tuple(following) for source, following in early.items() if following},
        simple,
        streams,
    )
    for index, node in enumerate(nodes):
        if node.instance is None:
            simple[index] = None
    level.calls = [node.instance.run if node.instance is not None else None for node in nodes]
    level.direct = [node.instance.direct if node.kind is not None and node.kind.is_direct else None for node in nodes]
    level.numbers = [node.number for node in nodes]
    level.order = _order(level)
    if builder.has_streams:
        mark_unbounded(level)
    return level


def _loop_token(token: bytes | None, body: Level) -> bytes | None:
    """Return what stands for a loop in signatures: all that its body is made of; None where a part is never cached."""
    parts: list[Any] = [token]
    for node in body.nodes:
        if node.token is None or (node.kind is not None and node.kind.is_asked):
            return None
        parts.append((node.token, node.written, [[(f.source, f.key) for f in item.feeds] for item in node.inputs]))
    try:
        return marshal.dumps(parts, 2)
    except (TypeError, ValueError):
        return None


def _feed(
    builder: LevelBuilder,
    index: int,
    node: PlanNode,
    links: list[set[int]],
    early: dict[int, set[int]],
    streams: dict[int, dict[str, list[tuple[int, bool]]]],
) -> tuple[tuple[str, int, str], ...] | None:
    """Set the inputs of a node; return its edges where it needs nothing but them and its written values."""
    arriving = builder.arriving[index]
    written = node.written
    site = builder.sites[index]
    is_simple = builder.plain[index]
    edges: list[tuple[str, int, str]] = []
    shape: list[Any] = []
    inputs: list[Input] = []
    if arriving:
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
                    feeds.append(_stream_feed(name, source, handle, convert, reads, index, links, early, streams))
                else:
                    feeds.append(Feed(name, source, handle, convert, -1, False, bool(given.is_branch)))
                    links[source].add(index)
                shape.append((key, handle, token))
                if convert is not None or given.is_stream:
                    is_simple = False
            if slot.multi or slot.is_stream:
                is_simple = False
            else:
                edges.append((key, feeds[0].source, feeds[0].key))
            is_direct = slot.multi and all(f.convert is None and f.reader < 0 and not f.collects for f in feeds)
            direct = tuple((f.source, f.key) for f in feeds) if is_direct else None
            inputs.append(Input(key, slot, tuple(feeds), direct))
    for key, slot in site.inputs.items():
        if arriving is not None and key in arriving:
            continue
        if slot.multi or slot.is_stream or (slot.required and key not in written):
            inputs.append(Input(key, slot, ()))
            is_simple = False
    if is_simple and written and any(isinstance(value, _CONTAINERS) for value in written.values()):
        is_simple = False  # they are copied for each run
    node.inputs = inputs
    if node.token is not None:
        node.token = marshal.dumps((node.token, shape), 2) if shape else node.token
    return tuple(edges) if is_simple and node.role is Role.NODE else None


def _stream_feed(
    name: str,
    source: int,
    handle: str,
    convert: Converter | None,
    reads: bool,
    index: int,
    links: list[set[int]],
    early: dict[int, set[int]],
    streams: dict[int, dict[str, list[tuple[int, bool]]]],
) -> Feed:
    """Return the feed of an edge that a stream flows along; number it among the readers of that stream."""
    readers = streams.setdefault(source, {})
    known = readers.setdefault(handle, [])
    if not reads:
        links[source].add(index)
        return Feed(name, source, handle, convert, -1, True)
    known.append((index, False))
    early.setdefault(source, set()).add(index)
    return Feed(name, source, handle, convert, len(known) - 1)


def _sort(builder: LevelBuilder, index: int, key: str, entries: list[Arriving]) -> None:
    """Bring the edges into a `multi` input into their order."""
    node: WorkflowNode | None = builder.sites[index].node
    if index in builder.originals:
        node, key = builder.originals[index]
    if node is None:
        return
    order = edge_order(node, key)
    entries.sort(key=lambda e: order((e[1], e[0][0] if e[0] else None, e[0][1] if e[0] else 0)))


def _shorten_streams(builder: LevelBuilder) -> None:
    """Let edges out of relays that hand streams on begin where the stream does: a stream has one set of readers."""

    def origin(source: int, handle: str, depth: int) -> Arriving | None:
        node = builder.nodes[source]
        if node.role is not Role.RELAY or depth > len(builder.nodes):
            return None
        entries = (builder.arriving[source] or {}).get(VALUE, [])
        if len(entries) != 1 or not entries[0][5].is_stream:
            return None
        return origin(entries[0][3], entries[0][4], depth + 1) or entries[0]

    for arriving in builder.arriving:
        for entries in (arriving or {}).values():
            for place, entry in enumerate(entries):
                if not entry[5].is_stream:
                    continue
                first = origin(entry[3], entry[4], 0)
                if first is not None:
                    convert = _both(first[7], entry[7])
                    token = f"{first[8]},{entry[8]}"
                    entries[place] = (*entry[:3], first[3], first[4], first[5], entry[6], convert, token)
    for index, node in enumerate(builder.nodes):
        if node.role is Role.RELAY and node.outputs[VALUE].is_stream and origin(index, VALUE, 0) is not None:
            builder.arriving[index] = None  # nothing is handed on there any more


def _both(first: Converter | None, second: Converter | None) -> Converter | None:
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
            following += early[index]
        for follower in following:
            left[follower] -= 1
            if not left[follower]:
                order.append(follower)
    if len(order) != len(left):
        tangled = [level.nodes[index].id for index, count in enumerate(left) if count][:5]
        raise InvalidInput(f"some nodes wait for one another: {', '.join(tangled)}")
    return order
