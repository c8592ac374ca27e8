"""Makes the level of a plan from the columns of a `LevelBuilder`: edges by input, in-degrees, topological order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tavern_engine.compile.bypass import composed
from tavern_engine.compile.deadlocks import mark_unbounded
from tavern_engine.compile.level_builder import Arriving, LevelBuilder
from tavern_engine.compile.node_kinds import (
    IRREGULAR,
    Invocation,
    Joins,
    Kind,
    Shape,
    Source,
    invocation_of,
    is_flat,
    joined,
    token_of,
)
from tavern_engine.compile.plan import VALUE, InEdge, Input, Level, Nodes, PlanNode, Role
from tavern_host.contracts.errors import InvalidInput
from tavern_workflows.api.dataflow import Converter, edge_order


def assemble(builder: LevelBuilder) -> Level:
    """Return the level. Raises `InvalidInput` for nodes that wait for one another and inputs with too many edges."""
    for index, body in builder.bodies:
        node = builder.made[index]
        assert node is not None and node.loop is not None
        node.loop.body = assemble(body)
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
    _put_displays_first(level, others)
    for source, following in early.items():
        following.difference_update(level.followers[source])
        for follower in following:
            level.waiting_for[follower] += 1
    level.early = {source: tuple(following) for source, following in early.items() if following}
    level.order = _order(level)
    if builder.has_streams:
        mark_unbounded(level)
    return level


def _put_displays_first(level: Level, others: list[int]) -> None:
    """See to it that a group's instance or a bypassed node is done before what follows, where both become ready."""
    displays = {index for index in others if level.nodes[index].role in (Role.GROUP, Role.BYPASSED)}
    for source in {source for index in displays for source in level.sources[index]}:
        level.followers[source].sort(key=lambda follower: follower not in displays)


def _branching(gives: list[Source]) -> frozenset[int]:
    """Return which nodes have an output that may be left out; nodes of one kind share their slots."""
    ways = {id(source) for source in set(gives) if any(slot.is_branch for slot in source.outputs.values())}
    return frozenset(index for index, source in enumerate(gives) if id(source) in ways) if ways else frozenset()


def _maker(builder: LevelBuilder) -> Callable[[int], PlanNode]:
    """Return a function that makes the plain nodes of a level on first access. It keeps no document."""
    ids, shapes, written, arriving = builder.ids, builder.shapes, builder.written, builder.arriving
    numbers, kinds, labels = builder.numbers, builder.gives, builder.labels

    def make(index: int) -> PlanNode:
        kind, number = kinds[index], numbers[index]
        assert isinstance(kind, Kind)
        kind.ready()
        node = PlanNode(ids[number], Role.NODE, number, kind.type, labels.get(index, kind.label))
        node.node_type, node.kind, node.instance = kind.node_type, kind, kind.instance
        node.outputs, node.config, node.written = kind.outputs, kind.config, written[index]
        if shapes[index] is not IRREGULAR:
            node.inputs = _plain_inputs(shapes[index], arriving[index], written[index])
        return node

    return make


def _put_plain(builder: LevelBuilder, level: Level) -> list[int]:
    """Set the columns of the nodes with a regular shape; return the others."""
    shapes, written = builder.shapes, builder.written
    for shape in set(shapes):
        shape.ready()
    level.tokens = [shape.token for shape in shapes]
    level.invocations = [
        shape.invocation(values) if values else shape.bare for shape, values in zip(shapes, written, strict=True)
    ]
    for index, token in builder.tokens.items():
        shape, node = shapes[index], builder.made[index]
        if shape is not IRREGULAR and node is not None:
            node.inputs = _plain_inputs(shape, builder.arriving[index], written[index])
            level.tokens[index] = joined(token, shape.token)
            level.invocations[index] = (
                _invocation(node, shape.joins) if shape.missing <= written[index].keys() else None
            )
    return [index for index, shape in enumerate(shapes) if shape is IRREGULAR]


def _invocation(node: PlanNode, joins: Joins) -> Invocation | None:
    """Return the invocation of a node that needs nothing but its inputs, where it has one."""
    if node.role is not Role.NODE or node.kind is None or node.policy is not None or not is_flat(node.written):
        return None
    return invocation_of(node.kind.calls_of(node.instance), joins)


def _plain_inputs(shape: Shape, sources: list[int], written: dict[str, Any]) -> list[Input]:
    """Return the inputs of a node with a regular shape."""
    inputs = []
    for source, (key, handle, slot) in zip(sources, shape.slots, strict=True):
        edge = InEdge("", source, handle, None, is_branch=bool(slot.is_branch))
        inputs.append(Input(key, shape.kind.inputs[key], (edge,)))
    return inputs + [Input(key, shape.kind.inputs[key], ()) for key in shape.missing if key not in written]


def _loop_token(token: bytes | None, body: Level) -> bytes | None:
    """Return the signature token of a loop, of all that its body is made of; None where a part is never cached."""
    if body.asking:
        return None
    parts: list[Any] = [token]
    for index, node in enumerate(body.nodes):
        if body.tokens[index] is None:
            return None
        into = [[(edge.source, edge.key) for edge in item.edges] for item in node.inputs]
        parts.append((body.tokens[index], node.written, [item.key for item in node.inputs], into))
    try:
        return token_of(parts)
    except ValueError:
        return None


def _put_other(builder: LevelBuilder, level: Level, index: int, early: dict[int, set[int]]) -> None:
    """Set the columns and the inputs of a node with an irregular shape."""
    node = level.nodes[index]
    written = node.written
    is_direct_call = True
    joins: list[tuple[str, str]] = []
    shape: list[Any] = []
    arriving = builder.edges.get(index, {})
    for key, entries in arriving.items():
        slot = entries[0][6]
        if len(entries) > 1:
            if not slot.multi:
                raise InvalidInput(f"node {node.id}: the input {key!r} takes one edge and has {len(entries)}")
            _sort(builder, index, key, entries)
        into = []
        for _, _, name, source, handle, source_slot, wanted, convert, token in entries:
            if source_slot.is_stream:
                # Others receive its items when it has ended; a relay of one stream is bypassed by its edges.
                reads = bool(wanted.is_stream) and node.role is Role.NODE
                into.append(_stream_edge(level, name, source, handle, convert, reads, index, builder, early))
            else:
                into.append(InEdge(name, source, handle, convert, is_branch=bool(source_slot.is_branch)))
                builder.link(source, index)
            shape.append((key, handle, token))
            if convert is not None or source_slot.is_stream:
                is_direct_call = False
        if slot.multi or slot.is_stream:
            is_direct_call = False
        joins.append((key, into[0].key))
        is_direct = slot.multi and all(f.convert is None and f.reader < 0 and not f.collects for f in into)
        node.inputs.append(Input(key, slot, tuple(into), _columns(into) if is_direct else None))
    slots = node.kind.inputs if node.kind is not None else builder.inputs.get(index, {})
    for key, slot in slots.items():
        if key not in arriving and (slot.multi or slot.is_stream or (slot.required and key not in written)):
            node.inputs.append(Input(key, slot, ()))
            is_direct_call = False
    level.waiting_for[index] += len(builder.links.get(index, ()))
    own = builder.tokens.get(index, b"")
    if node.kind is not None:
        own = joined(own, node.kind.token)
    level.tokens[index] = joined(own, token_of(shape)) if shape else own
    if is_direct_call:
        level.invocations[index] = _invocation(node, tuple(joins))
    level.sources[index] = [edge.source for item in node.inputs for edge in item.edges]


def _columns(into: list[InEdge]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return tuple([edge.source for edge in into]), tuple([edge.key for edge in into])


def _stream_edge(
    level: Level,
    name: str,
    source: int,
    handle: str,
    convert: Converter | None,
    reads: bool,
    index: int,
    builder: LevelBuilder,
    early: dict[int, set[int]],
) -> InEdge:
    """Return the edge of a stream; number it among the readers of that stream."""
    known = level.streams.setdefault(source, {}).setdefault(handle, [])
    if not reads:
        builder.link(source, index)
        return InEdge(name, source, handle, convert, -1, True)
    known.append((index, False))
    early.setdefault(source, set()).add(index)
    return InEdge(name, source, handle, convert, len(known) - 1)


def _sort(builder: LevelBuilder, index: int, key: str, entries: list[Arriving]) -> None:
    """Sort the edges of a `multi` input."""
    node = builder.documents[index]
    if index in builder.originals:
        node, key = builder.originals[index]
    if node is None:
        return
    order = edge_order(node, key)
    entries.sort(key=lambda e: order((e[1], e[0][0] if e[0] else None, e[0][1] if e[0] else 0)))


def _shorten_streams(builder: LevelBuilder) -> None:
    """Replace the source of edges out of relays of streams by the source of the stream, which has all of its
    readers."""

    def origin(source: int, depth: int) -> Arriving | None:
        node = builder.made[source]
        if node is None or node.role is not Role.RELAY or depth > len(builder.made):
            return None
        entries = builder.edges.get(source, {}).get(VALUE, [])
        if len(entries) != 1 or not entries[0][5].is_stream:
            return None
        return origin(entries[0][3], depth + 1) or entries[0]

    for arriving in builder.edges.values():
        for entries in arriving.values():
            for place, entry in enumerate(entries):
                if not entry[5].is_stream:
                    continue
                first = origin(entry[3], 0)
                if first is not None:
                    convert = composed(first[7], entry[7])
                    token = f"{first[8]},{entry[8]}"
                    entries[place] = (*entry[:3], first[3], first[4], first[5], entry[6], convert, token)
    for index, node in enumerate(builder.made):
        if (
            node is not None
            and node.role is Role.RELAY
            and node.outputs[VALUE].is_stream
            and origin(index, 0) is not None
        ):
            del builder.edges[index]  # its edges begin at the source now


def _order(level: Level) -> list[int]:
    """Return all nodes in topological order. Raises `InvalidInput` where there is no such order."""
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
