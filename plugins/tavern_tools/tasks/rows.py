"""Tasks as they are kept: what is written into the columns of the database, and read from them."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from tavern_host.common.redaction import masked
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.wire import Model
from tavern_tools.api.tasks import TaskEntry, TaskRow
from tavern_tools.api.toolcalls import (
    TaskCallback,
    TaskStatus,
    ToolApproval,
    ToolCallRequest,
    ToolError,
    ToolErrorType,
    ToolResult,
    ToolTask,
)

SMALL_RESULT = 64 * 1024
"""Up to how many bytes a result has that lists show."""

_LARGE = f"CASE WHEN length(result) <= {SMALL_RESULT} THEN result END"
_COLUMNS = (
    "id, tool, status, is_final, owner, attempt, idempotent, cancelled_by, created, started, finished, due,"
    " callback_due, changed, writer, is_audited, progress, progress_text, approval, callback, entry"
)
WHOLE = f"SELECT {_COLUMNS}, result FROM tasks"
"""Selects what `read_row` reads."""
LISTED = f"SELECT {_COLUMNS}, {_LARGE} FROM tasks"
"""As `WHOLE`, without large results."""


def shown(row: TaskRow, keep: timedelta) -> ToolTask:
    """Return the task as others see it; it is kept for `keep` after its end."""
    call = row.entry.call
    finished = moment(row.finished)
    return ToolTask(
        id=row.id,
        tool_id=row.tool_id,
        status=row.status,
        arguments=masked(row.entry.request.arguments, row.entry.hidden),
        principal=call.principal,
        created_at=datetime.fromtimestamp(row.created / 1e6, UTC),
        started_at=moment(row.started),
        finished_at=finished,
        expires_at=None if finished is None else finished + keep,
        progress=row.progress,
        progress_text=row.progress_text,
        result=row.result,
        approval=row.approval,
        attempt=row.attempt,
        run_id=call.run_id,
        agent_run_id=call.agent_run_id,
        trace_id=call.trace_id,
        callback=row.callback,
    )


_NAMES = [field.name for field in fields(TaskRow)][:-4]


def read_row(row: tuple[Any, ...]) -> TaskRow:
    """Return a row of `WHOLE` or `LISTED`. Raises `TavernError` for one that is damaged."""
    *plain, approval, callback, entry, result = row
    kept = dict(zip(_NAMES, plain, strict=True))
    try:
        kept |= {
            "status": TaskStatus(kept["status"]),
            "is_final": bool(kept["is_final"]),
            "is_idempotent": bool(kept["is_idempotent"]),
            "is_audited": bool(kept["is_audited"]),
            "approval": None if approval is None else ToolApproval.model_validate(json.loads(approval)),
            "callback": None if callback is None else TaskCallback.model_validate(json.loads(callback)),
            "entry": TaskEntry.model_validate(json.loads(entry)),
            "result": None if result is None else ToolResult.model_validate(json.loads(result)),
        }
        return TaskRow(**kept)
    except (ValidationError, ValueError, TypeError) as error:
        raise TavernError(f"the task {row[0]!r:.80} cannot be read: {str(error).splitlines()[0]}") from None


def blob(model: Model) -> bytes:
    """Return a model as it is kept."""
    return json.dumps(model.to_json(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def without_secrets(entry: TaskEntry) -> TaskEntry:
    """Return a task's request as it may be stored when nothing will be done with it any more."""
    arguments = masked(entry.request.arguments, entry.hidden)
    return entry.model_copy(update={"request": entry.request.model_copy(update={"arguments": arguments})})


def failed(task_id: str, request: ToolCallRequest, type: ToolErrorType, message: str, **details: Any) -> ToolResult:
    """Return the result of a task that gave none."""
    error = ToolError(type=type, message=message, tool_id=request.tool_id, index=request.index, details=details)
    return ToolResult(
        **request.about,
        status="error",
        error=error,
        task_id=task_id,
    )


def moment(micros: int | None) -> datetime | None:
    """Return a kept time as a time."""
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def micros(when: datetime) -> int:
    """Return a time as it is kept."""
    return int(when.timestamp() * 1e6)
