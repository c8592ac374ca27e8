"""Tells how far a loop is, and keeps of it what it needs to go on after an interruption; knows nothing of how it runs.

Both are done a while after the iteration that they are about, so that quick iterations cost next to nothing. Of the
values of each iteration only the new ones are written, not those that were written before.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.compile.plan import Level, PlanNode
from tavern_engine.run.feed import Feed

DELAY = 0.025
"""Seconds that an iteration waits for others, to be told of with them."""

SHARE = 10
"""Writing may take one second in so many."""


@dataclass
class LoopState:
    """What a loop has come to: `index` iterations, its carried values after them, and their values, by key."""

    index: int = 0
    carried: dict[str, Any] = field(default_factory=dict)
    each: dict[str, list[Any]] = field(default_factory=dict)

    def go_on(self, index: int, row: dict[str, Any]) -> None:
        """Take a row that a diary has written; one that does not follow on is left out, as those after it are."""
        begins = row.get("from")
        if begins == 0:
            self.index, self.carried, self.each = 0, {}, {}
        if begins != self.index or index <= self.index:
            return
        self.index, self.carried = index, dict(row.get("state") or {})
        for key, values in (row.get("each") or {}).items():
            self.each.setdefault(key, []).extend(values)


class Diary:
    """The diary of one run of a loop. Only one that `keeps` writes rows for going on; on the event loop."""

    def __init__(self, feed: Feed, node: PlanNode, signature: bytes | None, *, keeps: bool) -> None:
        self._feed = feed
        self._node = node
        self._signature = signature
        self._keeps = keeps and feed.journal is not None
        self._inner = list(_numbers(node.loop.body)) if node.loop is not None and self._keeps else []
        self._count: int | None = None
        self._index = self._written = 0
        self._carried: dict[str, Any] = {}
        self._each: dict[str, list[Any]] = {}
        self._next = 0.0
        self._inner_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, index: int, count: int | None) -> None:
        """The loop begins, after `index` iterations that it has already; it will have `count`, if that is known."""
        self._index = self._written = index
        self._count = count
        self._inner_since = time.perf_counter()
        self._feed.account.iterations[self._node.number] = index

    def iterated(self, index: int, carried: dict[str, Any], new: dict[str, Any]) -> None:
        """An iteration has ended: the loop has so many now, these carried values, and these values of the last one."""
        self._index = index
        self._feed.account.iterations[self._node.number] = index
        if self._keeps:
            # A node of the next iteration might change a list in place before this is written.
            self._carried = {key: _shallow(value) for key, value in carried.items()}
            for key, value in new.items():
                self._each.setdefault(key, []).append(value)
        if self._timer is not None:
            return
        left = self._next - time.perf_counter()
        if left <= 0:
            self._write()
        else:
            self._timer = asyncio.get_running_loop().call_later(left, self._write)

    def close(self, *, is_complete: bool) -> None:
        """The loop has ended. Where it is complete its own outputs are kept, and nothing is needed to go on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._index > self._written:
            self._feed.progress(self._node.number, self._index, self._count)
            if self._keeps and not is_complete:
                self._write_state()
        self._feed.keep_inner(self._inner, self._inner_since)

    def _write(self) -> None:
        self._timer = None
        began = time.perf_counter()
        self._feed.progress(self._node.number, self._index, self._count)
        if self._keeps:
            self._write_state()
        self._written = self._index
        ended = time.perf_counter()
        self._next = ended + max(DELAY, SHARE * (ended - began))

    def _write_state(self) -> None:
        # Copies, since they are encoded later, and a node might change what it was given.
        row = {"from": self._written, "state": _copied(self._carried), "each": _copied(self._each)}
        self._each = {}
        since, self._inner_since = self._inner_since, time.perf_counter()
        self._feed.keep_iteration(self._node.number, self._signature, self._index, row, self._inner, since)


def _numbers(level: Level) -> Iterable[int]:
    for node in level.nodes:
        if node.number >= 0:
            yield node.number
        if node.loop is not None:
            yield from _numbers(node.loop.body)


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    try:
        return copy.deepcopy(values)
    except Exception:  # a foreign object's own copying may fail in any way
        return {key: _shallow(value) for key, value in values.items()}


def _shallow(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict) else value
