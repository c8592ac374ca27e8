"""Decides, before anything runs, which nodes of a level have to: looks up from its ends what is known already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from tavern_engine.plan import Level

Known = Callable[[int], dict[str, Any] | None]
"""Returns the outputs that a node need not run for, or None."""

Likely = Callable[[], Sequence[int]]
"""Returns, by node, whether there may be such outputs: for all nodes at once, which is quicker where few have some."""

_NOT = bytes([1, 0, *[0] * 254])
"""Exchanges 0 and 1."""


@dataclass(slots=True)
class Selection:
    """Which nodes run: `waiting_for[i]` of those counts the ones before it that do; `ready` wait for none.

    `known` are the outputs that are used without running their nodes; `unasked` nodes are before those only, `unwanted`
    ones before no target.
    """

    waiting_for: list[int]
    ready: list[int]
    count: int
    known: dict[int, dict[str, Any]]
    unasked: list[int]
    unwanted: list[int]
    runs: bytearray | None = None
    """By node, whether it runs; None where all do."""


def everything(level: Level) -> Selection:
    """Return the selection of all nodes."""
    waiting_for = list(level.waiting_for)
    ready = [index for index, count in enumerate(waiting_for) if not count]
    return Selection(waiting_for, ready, len(waiting_for), {}, [], [])


def needed(level: Level, known: Known | None, targets: Collection[int] = (), likely: Likely | None = None) -> Selection:
    """Return the selection of what the `targets` need (all ends, where there is none) and nobody knows yet."""
    followers, early, parents = level.followers, level.early, level.parents
    count = len(followers)
    seen = bytearray(count)
    found: dict[int, dict[str, Any]] = {}
    may_be: Sequence[int] | None = None
    for index in targets or level.ends:
        seen[index] = 1
    for index in reversed(level.order):
        if not seen[index]:
            continue
        if known is not None and (may_be is None or may_be[index]):
            outputs = known(index)
            if outputs is not None:
                found[index] = outputs
                continue
            if may_be is None and likely is not None:
                may_be = likely()
        for source in parents[index]:
            seen[source] = 1
    runs = seen.copy()
    for index in found:
        runs[index] = 0
    # Whatever a node that runs has edges from runs itself or is known. The others, at 0, never come to have their turn.
    running = list(compress(range(count), runs))
    left, waiting_for = [0] * count, level.waiting_for
    for index in running:
        left[index] = waiting_for[index]
    for index in found:
        for follower in followers[index]:
            left[follower] -= 1
        for follower in early.get(index, ()):
            left[follower] -= 1
    ready = [index for index in running if not left[index]]
    unseen = list(compress(range(count), seen.translate(_NOT)))
    if not targets:
        return Selection(left, ready, len(running), found, unseen, [], runs)
    wanted = _before(level, targets)
    unasked = [index for index in unseen if wanted[index]]
    unwanted = [index for index in unseen if not wanted[index]]
    return Selection(left, ready, len(running), found, unasked, unwanted, runs)


def _before(level: Level, targets: Collection[int]) -> bytearray:
    """Return, by node, whether it is one of the targets or comes before one."""
    parents = level.parents
    found = bytearray(len(parents))
    for index in targets:
        found[index] = 1
    for index in reversed(level.order):
        if found[index]:
            for source in parents[index]:
                found[source] = 1
    return found
