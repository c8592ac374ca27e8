"""Messages about the queue: which runs run, and which wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tavern_engine.run.record import RunRecord
from tavern_engine.run.stream_messages import Message
from tavern_host.contracts.executions import RunStatus

QUEUE_UPDATES = 0.05
"""Seconds between two messages, in which many short runs may come and go."""


class QueueMessages:
    """Publishes the running and the waiting runs, soon after they change."""

    def __init__(
        self, publish: Callable[[Iterable[Message]], None], records: Callable[[], Iterable[RunRecord]]
    ) -> None:
        self._publish = publish
        self._records = records
        self._update: asyncio.TimerHandle | None = None
        self._next = 0.0

    def changed(self) -> None:
        """Publish soon, with what changes until then."""
        if self._update is None:
            loop = asyncio.get_running_loop()
            self._update = loop.call_at(max(loop.time(), self._next), self._publish_now)

    def close(self) -> None:
        """Publish nothing more of what was announced."""
        if self._update is not None:
            self._update.cancel()

    def _publish_now(self) -> None:
        self._update = None
        self._next = asyncio.get_running_loop().time() + QUEUE_UPDATES
        records = list(self._records())
        update = {
            "runningExecutions": [r.summary() for r in records if r.status is RunStatus.RUNNING],
            "pendingExecutions": [r.summary() for r in records if r.status is RunStatus.QUEUED],
        }
        self._publish([("SYSTEM_QUEUE_UPDATE", update)])
