"""Decides, before anything runs, which nodes of a level have to: looks up from its ends what is known already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
    count = len(level.nodes)
    wanted = _before(level, targets) if targets else None
    runs = bytearray(count)
    seen = bytearray(count)
    found: dict[int, dict[str, Any]] = {}
    waiting = list(targets) or [i for i, after in enumerate(level.followers) if not after and i not in level.early]
    while waiting:
        index = waiting.pop()
        if seen[index]:
            continue
        seen[index] = 1
        outputs = known(index) if known is not None else None
        if outputs is not None:
            found[index] = outputs
            continue
        runs[index] = 1
        waiting.extend(sources(level, index))
    left = [0] * count
    total = 0
    for index in range(count):
        if runs[index]:
            total += 1
            for follower in level.followers[index]:
                left[follower] += runs[follower]
            for follower in level.early.get(index, ()):
                left[follower] += runs[follower]
    ready = [index for index in range(count) if runs[index] and not left[index]]
    unseen = [index for index in range(count) if not seen[index]]
    unasked = [i for i in unseen if wanted is None or wanted[i]]
    unwanted = [i for i in unseen if wanted is not None and not wanted[i]]
    return Selection(left, ready, total, found, unasked, unwanted, runs)


def _before(level: Level, targets: Collection[int]) -> bytearray:
    found = bytearray(len(level.nodes))
    waiting = list(targets)
    while waiting:
        index = waiting.pop()
        if not found[index]:
            found[index] = 1
            waiting.extend(sources(level, index))
    return found


def sources(level: Level, index: int) -> Sequence[int]:
    """Return the nodes whose outputs go into a node."""
    edges = level.simple[index]
    if edges is not None:
        return [source for _, source, _ in edges]
    return [feed.source for item in level.nodes[index].inputs for feed in item.feeds]
