"""Notifications about tasks: the event of a change, and the callbacks of ends."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.common.redaction import masked
from tavern_host.contracts.errors import TavernError
from tavern_tools.api.tasks import TaskRow, TaskStore
from tavern_tools.tasks.callbacks import Callbacks
from tavern_tools.tasks.rows import shown

AT_ONCE = 8
"""How many callbacks are delivered at once."""

PAUSE = 30.0
"""Seconds without deliveries after the outcome of one could not be stored: it would be repeated again and again."""


def update_payload(row: TaskRow) -> dict[str, JsonValue]:
    """Return the payload of `TOOL_CALL_UPDATE` about a task; results and arguments are requested by its id."""
    request, call, result, approval = row.entry.request, row.entry.call, row.result, row.approval
    known: dict[str, JsonValue] = {
        "requestId": request.request_id,
        "runId": call.run_id,
        "progress": row.progress,
        "progressText": row.progress_text,
        "durationMs": None if row.started is None or row.finished is None else (row.finished - row.started) / 1000,
        "error": None if result is None or result.error is None else result.error.to_json(),
        "approval": None if approval is None else approval.to_json(),
    }
    return {
        "callId": row.id,
        "taskId": row.id,
        "toolId": row.tool_id,
        "index": request.index,
        "caller": str(call.principal),
        "status": row.status.value,
        "attempt": row.attempt,
        "traceId": call.trace_id,
        **{key: value for key, value in known.items() if value is not None},
    }


def approval_payload(row: TaskRow) -> dict[str, JsonValue]:
    """Return the payload of the event `APPROVAL_REQUEST` about a call that waits for a person, secrets masked."""
    entry, approval = row.entry, row.approval
    call = entry.call
    about: dict[str, JsonValue] = {"taskId": row.id, "toolId": row.tool_id, "caller": str(call.principal)}
    about |= {key: value for key, value in (("traceId", call.trace_id), ("runId", call.run_id)) if value is not None}
    about["arguments"] = masked(entry.request.arguments, entry.hidden)
    if approval is not None:
        about |= {"reason": approval.reason, "expiresAt": approval.expires_at.isoformat(), "default": approval.default}
        about |= {} if approval.question is None else {"question": approval.question.to_json()}
    return about


class Notifier:
    """Delivers the callbacks of one host's tasks, and stores the outcome."""

    def __init__(self, store: TaskStore, callbacks: Callbacks, log: logging.Logger) -> None:
        self._store = store
        self._callbacks = callbacks
        self._log = log
        self._rests_until = 0.0

    async def tell(self, keep: timedelta) -> None:
        """Deliver the callbacks that are due now; tasks are kept for `keep` after their end."""
        if clock.monotonic() < self._rests_until:
            return
        try:
            while rows := await self._store.callbacks():
                await asyncio.gather(*(self._deliver(row, keep) for row in rows[:AT_ONCE]))
        except TavernError as error:
            self._rests_until = clock.monotonic() + PAUSE
            self._log.error("callbacks of tasks could not be delivered: %s", error.message)

    async def _deliver(self, row: TaskRow, keep: timedelta) -> None:
        told = await self._callbacks.tell(row.entry.callback or "", shown(row, keep))
        due = None if told.pause is None else clock.microseconds() + int(told.pause * 1e6)
        await self._store.told(row.id, told.callback, due)
        if told.callback.status == "failed":
            self._log.warning("the callback of the task %s failed: %s", row.id, told.callback.error)
