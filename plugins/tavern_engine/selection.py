"""Decides, before anything runs, which nodes of a level have to: looks up from its ends what is known already."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from tavern_engine.plan import Level

Known = Callable[[int], dict[str, Any] | None]
"""Returns the outputs that a node need not run for, or None."""


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


def needed(level: Level, known: Known | None, targets: Collection[int] = ()) -> Selection:
    """Return the selection of what the `targets` need (all ends, where there is none) and nobody knows yet."""
    followers, early, parents = level.followers, level.early, level.parents
    runs = bytearray(len(followers))
    seen = bytearray(len(followers))
    found: dict[int, dict[str, Any]] = {}
    running: list[int] = []
    waiting = list(targets) or list(level.ends)
    while waiting:
        index = waiting.pop()
        if seen[index]:
            continue
        seen[index] = 1
        outputs = known(index) if known is not None else None
        if outputs is not None:
            found[index] = outputs
        else:
            runs[index] = 1
            running.append(index)
            waiting += parents[index]
    # Whatever a node that runs has edges from runs itself or is known. The others, at 0, never come to have their turn.
    waiting_for, left = level.waiting_for, [0] * len(followers)
    for index in running:
        left[index] = waiting_for[index]
    for index in found:
        for follower in followers[index]:
            left[follower] -= 1
        for follower in early.get(index, ()):
            left[follower] -= 1
    ready = [index for index in running if not left[index]]
    wanted = _before(level, targets) if targets else None
    unseen = [index for index, was_seen in enumerate(seen) if not was_seen]
    unasked = [i for i in unseen if wanted[i]] if wanted is not None else unseen
    unwanted = [i for i in unseen if not wanted[i]] if wanted is not None else []
    return Selection(left, ready, len(running), found, unasked, unwanted, runs)


def _before(level: Level, targets: Collection[int]) -> bytearray:
    """Return, by node, whether it is one of the targets or comes before one."""
    parents = level.parents
    found = bytearray(len(parents))
    waiting = list(targets)
    while waiting:
        index = waiting.pop()
        if not found[index]:
            found[index] = 1
            waiting += parents[index]
    return found
