"""What a call reports to the task that makes it: that it begins, and its progress, a few times a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

from tavern_host.contracts.errors import TavernError
from tavern_tools.api.tasks import TaskRow, TaskStore
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.catalog.failures import ToolFailure

PROGRESS_EVERY = 0.3
"""How many seconds pass at least between two reports of a task's progress."""

_MAX_TEXT = 500
_TRY_AGAIN = 1.0
"""Seconds after which a beginning is tried to be stored again."""


class Progress:
    """Stores that the call of one task begins, and of what it reports the latest of what comes within a short while.

    `has_begun` says whether the tool may have done anything.
    """

    def __init__(self, store: TaskStore, task_id: str, tell: Callable[[TaskRow], None], log: logging.Logger) -> None:
        self._store = store
        self._task_id = task_id
        self._tell = tell
        self._log = log
        self.has_begun = False
        self._value: float | None = None
        self._text: str | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_new = self._is_closed = False

    async def begin(self) -> None:
        """Store that the call begins; the tool is called after that. Raises `ToolFailure` where it is not to begin."""
        while True:
            try:
                row = await self._store.begin(self._task_id)
                break
            except TavernError as error:
                self._log.error("the task %s cannot begin yet: %s", self._task_id, error.message)
                await asyncio.sleep(_TRY_AGAIN)
        if row is None:
            raise ToolFailure(ToolErrorType.CANCELLED, "the task was cancelled before it began")
        self.has_begun = True
        self._tell(row)

    def report(self, progress: float | None, text: str | None) -> None:
        """Take how far the call is, from 0 to 1, and the latest line about it; None leaves what was said before.

        For the host's thread.
        """
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
