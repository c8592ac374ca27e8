"""What the nodes of a run say of their progress: the latest of each is published, now and then, while the node runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from tavern_engine.run.node_table import NodeTable, State
from tavern_engine.run.stream_messages import Publish
from tavern_host.contracts.nodes import NodeProgress, Report

INTERVAL = 0.05
"""Seconds between two messages about the progress of a node."""


class NodeReports:
    """The reports of one run, made on the event loop; `ids` are those of its nodes, by number."""

    def __init__(self, run_id: str, ids: Sequence[str], table: NodeTable, publish: Publish) -> None:
        self._run_id = run_id
        self._ids = ids
        self._table = table
        self._publish = publish
        self._latest: dict[int, NodeProgress] = {}
        self._loop = asyncio.get_running_loop()
        self._is_due = self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0

    def of(self, number: int) -> Report:
        """Return the function that takes the reports of a node, on any thread."""

        def report(progress: NodeProgress) -> None:
            self._latest[number] = progress
            if not (self._is_due or self._is_closed):
                self._is_due = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                    self._loop.call_soon_threadsafe(self._schedule)

        return report

    def publish(self, number: int, value: float, maximum: float | None, message: str | None = None) -> None:
        """Publish the progress of a node."""
        payload: dict[str, Any] = {"promptId": self._run_id, "nodeId": self._ids[number], "value": value}
        if maximum is not None:
            payload["max"] = maximum
        if message is not None:
            payload["message"] = message
        self._publish([("NODE_PROGRESS", payload)])

    def close(self) -> None:
        """Publish nothing any more."""
        self._is_closed = True
        self._latest.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if not self._is_closed:
            self._timer = self._loop.call_at(max(self._next, self._loop.time()), self._publish_latest)

    def _publish_latest(self) -> None:
        self._is_due = False  # from here on, a report asks for the next time
        self._next = self._loop.time() + INTERVAL
        early: dict[int, NodeProgress] = {}
        for number in list(self._latest):
            progress, state = self._latest.pop(number), self._table.states[number]
            if state == State.RUNNING:
                self.publish(number, progress.value, progress.maximum, progress.message)
            elif state == State.WAITING:  # that it runs is not published yet
                early[number] = progress
        for number, progress in early.items():
            self._latest.setdefault(number, progress)
        if early and not self._is_due:
            self._is_due = True
            self._schedule()
