"""Makes the call of a task, stops it when it is asked to end, and stores how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from pydantic import JsonValue

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput, TavernError, describe
from tavern_host.storage.retried_writes import until_written
from tavern_tools.api.tasks import TaskRow, TaskStore
from tavern_tools.api.toolcalls import TaskStatus, ToolCallRequest, ToolErrorType, ToolResult, ToolScope
from tavern_tools.tasks.progress import Progress
from tavern_tools.tasks.rows import blob, failed


class Calls(Protocol):
    """What makes the calls of tasks, and knows their tools."""

    async def make_of_task(
        self, request: ToolCallRequest, context: CallContext, scope: ToolScope | None, progress: Progress
    ) -> ToolResult:
        """Make a call that was authorised already, and say when it begins."""

    async def may_decide(self, principal: Principal, tool_id: str, arguments: dict[str, JsonValue] | None) -> bool:
        """Return whether a principal may approve calls of a tool, with these arguments where they are given."""

    async def bind(self, tool_id: str, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return arguments as a tool gets them. Raises `InvalidInput` for those that it does not allow."""


GRACE = 0.8
"""Seconds that a call has to end when it is asked to; unloading a plugin does not wait much longer."""


@dataclass(eq=False)
class TaskRun:
    """A task that runs here. `stop` is set when it is to end, `why` says for what."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    why: Literal["cancelled", "stopped"] | None = None
    by: str = ""

    def end(self, why: Literal["cancelled", "stopped"], by: str = "") -> None:
        """Ask the call to end."""
        if self.why is None:
            self.why, self.by = why, by
        self.stop.set()


class TaskExecution:
    """The calls of one host's tasks. `notice` takes a task that has changed, `result_bytes` says how large a result
    may be, `is_stopping` whether the host stops."""

    def __init__(
        self,
        store: TaskStore,
        calls: Calls,
        notice: Callable[[TaskRow], None],
        log: logging.Logger,
        *,
        result_bytes: Callable[[], int],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._calls = calls
        self._notice = notice
        self._log = log
        self._result_bytes = result_bytes
        self._is_stopping = is_stopping
        self._strays: set[asyncio.Task[ToolResult]] = set()

    async def call(self, row: TaskRow, run: TaskRun) -> None:
        """Make the call of a task, and keep how it ended; it is queued still if the host stopped before it began."""
        entry = row.entry
        progress = Progress(self._store, row.id, self._notice, self._log)
        calling = asyncio.ensure_future(self._calls.make_of_task(entry.request, entry.call, entry.scope, progress))
        stopping = asyncio.create_task(run.stop.wait())
        try:
            await asyncio.wait([calling, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                calling.cancel()
                await asyncio.wait([calling], timeout=GRACE)
        finally:
            stopping.cancel()
            await progress.close()
        if not calling.done():
            self._log.warning("the task %s was asked to stop and did not within %g s", row.id, GRACE)
            stray = asyncio.ensure_future(calling)
            self._strays.add(stray)
            stray.add_done_callback(self._forget_stray)
        if run.why == "stopped" and not progress.has_begun:
            if (queued := await self._store.put_back(row.id)) is not None:
                self._notice(queued)
            return
        status, result = self._outcome(row, calling, run)
        await self._keep_end(row.id, status, result, progress)

    def _outcome(
        self, row: TaskRow, calling: asyncio.Future[ToolResult], run: TaskRun
    ) -> tuple[TaskStatus, ToolResult]:
        request, note = row.entry.request, "" if calling.done() else "; it did not end when asked to"
        if run.why is not None and (not calling.done() or calling.cancelled() or _broke_off(calling)):
            if run.why == "cancelled":
                message = f"it was cancelled by {run.by}{note}"
                return TaskStatus.CANCELLED, failed(row.id, request, ToolErrorType.CANCELLED, message)
            message = f"the host was stopped while it ran{note}"
            return TaskStatus.INTERRUPTED, failed(row.id, request, ToolErrorType.INTERRUPTED, message)
        if calling.cancelled():
            return TaskStatus.ERROR, failed(row.id, request, ToolErrorType.INTERRUPTED, "the call was cancelled")
        if (error := calling.exception()) is not None:
            self._log.error("the task %s failed: %s", row.id, describe(error), exc_info=error)
            return TaskStatus.ERROR, failed(row.id, request, ToolErrorType.EXECUTION, describe(error))
        result = calling.result()
        if result.status not in ("done", "error"):
            message = f"the call gave {result.status}, which a task cannot end with"
            return TaskStatus.ERROR, failed(row.id, request, ToolErrorType.EXECUTION, message)
        result = self._bounded(row, result.model_copy(update={"task_id": row.id}))
        return TaskStatus.DONE if result.status == "done" else TaskStatus.ERROR, result

    def _bounded(self, row: TaskRow, result: ToolResult) -> ToolResult:
        """Return a result as it is kept: an error in place of one that is too large."""
        limit = self._result_bytes()
        if (size := len(blob(result))) <= limit:
            return result
        message = f"it ended, but its result of {size:,} bytes is larger than the {limit:,} that are kept"
        return failed(row.id, row.entry.request, ToolErrorType.RESOURCE, message, outcome=result.status)

    async def _keep_end(self, task_id: str, status: TaskStatus, result: ToolResult, progress: Progress) -> None:
        """Write how a task ended, however often it takes: nothing is published before."""

        def tell(error: TavernError) -> None:
            self._log.error("the end of the task %s could not be written: %s", task_id, error.message)

        while True:
            write = partial(self._store.end, task_id, status, result, progress.latest)
            try:
                row = await until_written(write, tell, self._is_stopping)
            except Exception as error:
                if isinstance(error, TavernError) and not isinstance(error, InvalidInput):  # the host stops
                    raise
                status, result = TaskStatus.ERROR, self._unkept(task_id, result, error)  # it holds what cannot be kept
                continue
            if row is None and progress.has_begun:
                self._log.error("the task %s is another host's by now: its result is dropped", task_id)
            elif row is not None:
                self._notice(row)
            return

    def _unkept(self, task_id: str, result: ToolResult, error: Exception) -> ToolResult:
        """Return the result that is stored instead of one that cannot be stored."""
        self._log.error("the result of the task %s cannot be kept: %s", task_id, describe(error))
        message = f"it ended, but its result cannot be kept: {describe(error)}"
        request = ToolCallRequest(tool_id=result.tool_id, index=result.index, block=result.block)
        return failed(task_id, request, ToolErrorType.OUTPUT, message)

    def _forget_stray(self, stray: asyncio.Task[ToolResult]) -> None:
        self._strays.discard(stray)
        if not stray.cancelled():
            stray.exception()  # or asyncio logs it as never retrieved


def _broke_off(calling: asyncio.Future[ToolResult]) -> bool:
    """Return whether a call that was asked to end gave no result of its own: only that it was interrupted."""
    if calling.exception() is not None:
        return True
    result = calling.result()
    return result.error is not None and result.error.type in (ToolErrorType.INTERRUPTED, ToolErrorType.CANCELLED)
