"""The progress of running calls, stored and published a few times a second."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from tavern_host.contracts.errors import TavernError
from tavern_tools.tasks.rows import TaskRow
from tavern_tools.tasks.store import TaskStore

Report = Callable[[float | None, str | None], None]
"""Takes how far a call is, from 0 to 1 where that is known, and the latest line about it. For the host's thread."""

PROGRESS_EVERY = 0.3
"""How many seconds pass at least between two reports of a task's progress."""

_MAX_TEXT = 500


class Progress:
    """Keeps what a call reports of itself, the latest of what comes within a short while."""

    def __init__(self, store: TaskStore, task_id: str, tell: Callable[[TaskRow], None]) -> None:
        self._store = store
        self._task_id = task_id
        self._tell = tell
        self._value: float | None = None
        self._text: str | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_new = self._is_closed = False

    def report(self, progress: float | None, text: str | None) -> None:
        """Take a report; of two values None leaves the one before."""
        if self._is_closed:
            return
        if progress is not None and math.isfinite(progress):
            self._value = min(1.0, max(0.0, float(progress)))
        if text is not None:
            self._text = text[:_MAX_TEXT]
        self._is_new = True
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name=f"progress of {self._task_id}")

    @property
    def latest(self) -> tuple[float | None, str | None]:
        """The latest values."""
        return self._value, self._text

    async def close(self) -> None:
        """Write nothing any more: the end is what is published next."""
        self._is_closed = True
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        while self._is_new:
            self._is_new = False
            with contextlib.suppress(TavernError):  # the next report may go well
                row = await self._store.progress(self._task_id, self._value, self._text)
                if row is not None and not self._is_closed:
                    self._tell(row)
            await asyncio.sleep(PROGRESS_EVERY)
