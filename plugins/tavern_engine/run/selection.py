"""Selects, before anything runs, the nodes of a level that have to: looks up known outputs from its ends backwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from tavern_engine.compile.plan import Cone, InEdge, Level

Known = Callable[[int], dict[str, Any] | None]
"""Returns the known outputs of a node, which then need not run, or None."""

_NOT = bytes([1, 0, *[0] * 254])
"""A translation table that swaps 0 and 1."""


@dataclass(slots=True)
class Selection:
    """Which nodes run: `waiting_for[i]` is the in-degree of node `i` among those; `ready` have none.

    `known` are the outputs that are reused without running their nodes; `unasked` nodes come before those only. Those
    `left_out` lead to no target, or are on a branch that was not taken. `unasked` are in the level's order.
    """

    waiting_for: list[int]
    ready: Sequence[int]
    count: int
    known: dict[int, dict[str, Any]]
    unasked: list[int]
    left_out: list[int]
    runs: bytearray | None = None
    """By node, whether it runs; None where all do."""


def everything(level: Level) -> Selection:
    """Return the selection of all nodes."""
    return Selection(level.waiting_for.copy(), level.starts, len(level.waiting_for), {}, [], [])


def changed(cone: Cone, known: Known) -> Selection | None:
    """Return the selection where nothing in a cone is known: all of it runs, since what comes after a node that runs is
    in the cone too. None where something else that is needed is not known either."""
    found = {}
    for index in cone.border:
        outputs = known(index)
        if outputs is None:
            return None
        found[index] = outputs
    return Selection(cone.waiting_for.copy(), cone.ready, len(cone.order), found, cone.rest, [], cone.runs)


def needed(
    level: Level, known: Known | None, targets: Collection[int] = (), given: Mapping[int, dict[str, Any]] | None = None
) -> Selection:
    """Return the selection of what the `targets` need (all ends, where there is none) and is not known. `given` are
    known and say nothing of what comes before them."""
    sources, count = level.sources, len(level.sources)
    seen = bytearray(count)
    found: dict[int, dict[str, Any]] = {}
    for index in targets or level.ends:
        seen[index] = 1
    wanted = _before(level, targets) if targets else None
    dead: list[int] = []
    if level.branching and known is not None:
        asked, dead = _branches_taken(level, known)
        for index in asked:
            if wanted is None or wanted[index]:
                seen[index] = 1
    for index in reversed(level.order):
        if not seen[index]:
            continue
        if known is not None and (outputs := known(index)) is not None:
            found[index] = outputs
            continue
        for source in sources[index]:
            seen[source] = 1
    for index in given or ():  # also those that nobody reads
        seen[index] = 1
        found[index] = (given or {})[index]
    runs = seen.copy()
    for index in found:
        runs[index] = 0
    running = list(compress(range(count), runs))
    left = level.waiting(runs, found)
    ready = [index for index in running if not left[index]]
    left_out = [index for index in dead if not seen[index]]
    for index in left_out:
        seen[index] = 1
    unasked = list(compress(range(count), seen.translate(_NOT)))
    if not isinstance(level.order, range):
        unasked.sort(key=level.ranks.__getitem__)
    if wanted is not None:
        left_out += [index for index in unasked if not wanted[index]]
        unasked = [index for index in unasked if wanted[index]]
    if given:
        reused = _before(level, [index for index in found if index not in given], given)
        left_out += [index for index in unasked if not reused[index]]
        unasked = [index for index in unasked if reused[index]]
    return Selection(left, ready, len(running), found, unasked, left_out, runs)


def after_known(level: Level, selection: Selection) -> set[int]:
    """Return the nodes of `unasked` that come after known ones."""
    known, runs = selection.known, selection.runs

    def following(index: int) -> Iterator[int]:
        for follower in (*level.followers[index], *level.early.get(index, ())):
            if follower not in known and runs is not None and not runs[follower]:
                yield follower

    waiting = [follower for index in known for follower in following(index)]
    unasked = set(selection.unasked) if waiting else set()
    found: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index in unasked and index not in found:
            found.add(index)
            waiting += following(index)
    return found


def _branches_taken(level: Level, known: Known) -> tuple[list[int], list[int]]:
    """Return the nodes that must be selected since they decide which branches are taken, or since it is unclear whether
    theirs is; and those on branches that were not taken."""
    known_outputs: dict[int, dict[str, Any]] = {}
    unclear: set[int] = set()
    dead: set[int] = set()

    def is_alive(edge: InEdge) -> bool:
        return edge.source not in dead and (not edge.is_branch or edge.key in known_outputs[edge.source])

    for index in level.branches:
        outputs = known(index) if index in level.branching else None
        inputs = [item for item in level.nodes[index].inputs if item.edges]
        if outputs is not None:
            known_outputs[index] = outputs
        elif any(edge.source in unclear for item in inputs for edge in item.edges):
            unclear.add(index)
        else:  # by the rules of `InputResolver.inputs`
            living = [any(map(is_alive, item.edges)) for item in inputs]
            lacks = any(item.slot.required and not alive for item, alive in zip(inputs, living, strict=True))
            if inputs and (lacks or not any(living)):
                dead.add(index)
            elif index in level.branching:
                unclear.add(index)
    return [*known_outputs, *unclear], sorted(dead)


def _before(level: Level, targets: Collection[int], ends: Collection[int] = ()) -> bytearray:
    """Return, by node, whether it is a target or an ancestor of one, looking no further up than `ends`."""
    sources = level.sources
    found = bytearray(len(sources))
    for index in targets:
        found[index] = 1
    for index in reversed(level.order):
        if found[index] and index not in ends:
            for source in sources[index]:
                found[source] = 1
    return found
