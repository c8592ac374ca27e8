"""Publishes the progress of a loop and journals the state from which it resumes; knows nothing of how it runs.

Both are done some milliseconds after the iteration, for several at once, so that quick iterations cost next to
nothing. Of the values of each iteration only the new ones are written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tavern_engine.cache.cache import copied
from tavern_engine.compile.plan import Level, PlanNode
from tavern_engine.run.event_batch import EventBatch
from tavern_host import clock

DELAY = 0.025
"""Seconds that the progress of an iteration waits for others, to be published with them."""

SHARE = 10
"""Writing may take one second in so many."""


@dataclass
class LoopState:
    """The state of a loop after `index` iterations: its carried values, and the values of each iteration, by key."""

    index: int = 0
    carried: dict[str, Any] = field(default_factory=dict)
    each: dict[str, list[Any]] = field(default_factory=dict)

    def apply(self, index: int, row: dict[str, Any]) -> None:
        """Apply a row that a `LoopLog` wrote; one with a gap before it is ignored, as those after it are."""
        begins = row.get("from")
        if begins == 0:
            self.index, self.carried, self.each = 0, {}, {}
        if begins != self.index or index <= self.index:
            return
        self.index, self.carried = index, dict(row.get("state") or {})
        for key, values in (row.get("each") or {}).items():
            self.each.setdefault(key, []).extend(values)


class LoopLog:
    """The log of one run of a loop. Only one that `is_resumable` writes its state; on the event loop."""

    def __init__(self, events: EventBatch, node: PlanNode, signature: bytes | None, *, is_resumable: bool) -> None:
        self._events = events
        self._node = node
        self._signature = signature
        self._writes_state = is_resumable and events.journal is not None
        self._inner = list(_numbers(node.loop.body)) if node.loop is not None and self._writes_state else []
        self._count: int | None = None
        self._index = self._written = 0
        self._carried: dict[str, Any] = {}
        self._each: dict[str, list[Any]] = {}
        self._next = 0.0
        self._inner_since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, index: int, count: int | None) -> None:
        """Begin after `index` earlier iterations; the loop will have `count`, if that is known."""
        self._index = self._written = index
        self._count = count
        self._inner_since = time.perf_counter()
        self._events.table.set_iterations(self._node.number, index)

    def iterated(self, index: int, carried: dict[str, Any], new: dict[str, Any]) -> None:
        """Add an iteration: the loop has `index` now, with these carried values, and `new` values of this one."""
        self._index = index
        self._events.table.set_iterations(self._node.number, index)
        if self._writes_state:
            # A node of the next iteration might change a list in place before this is written.
            self._carried = {key: v.copy() if type(v) in (list, dict) else v for key, v in carried.items()}
            for key, value in new.items():
                self._each.setdefault(key, []).append(value)
        if self._timer is not None:
            return
        left = self._next - clock.monotonic()
        if left <= 0:
            self._write()
        else:
            self._timer = asyncio.get_running_loop().call_later(left, self._write)

    def close(self, *, is_complete: bool) -> None:
        """End the log. The outputs of a complete loop are journaled as such, so that its state is not needed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._index > self._written:
            self._events.reports.publish(self._node.number, self._index, self._count)
            if self._writes_state and not is_complete:
                self._write_state()
        self._events.journal_inner(self._inner, self._inner_since)

    def _write(self) -> None:
        self._timer = None
        began = time.perf_counter()
        self._events.reports.publish(self._node.number, self._index, self._count)
        if self._writes_state:
            self._write_state()
        self._written = self._index
        self._next = clock.monotonic() + max(DELAY, SHARE * (time.perf_counter() - began))

    def _write_state(self) -> None:
        # Copies, since they are encoded later, and a node might change what it was given.
        row = {"from": self._written, "state": copied(self._carried), "each": copied(self._each)}
        self._each = {}
        since, self._inner_since = self._inner_since, time.perf_counter()
        self._events.journal_iteration(self._node.number, self._signature, self._index, row, self._inner, since)


def _numbers(level: Level) -> Iterable[int]:
    for node in level.nodes:
        if node.number >= 0:
            yield node.number
        if node.loop is not None:
            yield from _numbers(node.loop.body)
