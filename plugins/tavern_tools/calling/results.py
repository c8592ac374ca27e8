"""What a call gave, as the result that its caller gets. Decides nothing about calls."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host.contracts.toolcalls import (
    ContentPart,
    TaskStatus,
    ToolCallRequest,
    ToolError,
    ToolErrorType,
    ToolResult,
    ToolTask,
)
from tavern_tools.defining.failures import ToolFailure


class Given(NamedTuple):
    """What a tool gave: the whole as JSON, and the parts that an LLM reads, where they are more than that."""

    structured: JsonValue
    parts: tuple[ContentPart, ...] = ()


_text_part = ContentPart.maker("type", "text")
_data_part = ContentPart.maker("type", "data")
_result = ToolResult.maker(
    *("tool_id", "index", "block", "request_id", "status", "content", "structured", "coercions", "duration_ms")
)
_FEW, _SHORT = 16, 1000


def done(
    request: ToolCallRequest,
    structured: JsonValue,
    parts: tuple[ContentPart, ...],
    coercions: list[str],
    max_bytes: int,
    duration_ms: float,
) -> ToolResult:
    """Return the result of a call that did what it does, see `Given`. Raises `ToolFailure` for one that is too
    large."""
    if not _is_small(structured) and (size := len(to_json(structured))) > max_bytes:
        what = f"the result of {request.tool_id} is too large"
        message = f"{what}: {size / 1e6:.1f} MB, {max_bytes / 1e6:g} MB are allowed"
        raise ToolFailure(ToolErrorType.OUTPUT, message, bytes=size)
    if parts:
        content = list(parts)
    else:
        is_text = isinstance(structured, str)
        content = [_text_part("text", structured) if is_text else _data_part("data", structured)]
    about = request.__dict__  # its fields, without four look-ups in the class
    return _result(
        *(about["tool_id"], about["index"], about["block"], about["request_id"]),
        *("done", content, structured, coercions, duration_ms),
    )


def waiting(request: ToolCallRequest, task: ToolTask, *, coercions: list[str]) -> ToolResult:
    """Return the result of a call that goes on as a task, or waits for a person to decide."""
    if task.status is TaskStatus.AWAITING_APPROVAL:
        reason = f" ({task.approval.reason})" if task.approval is not None else ""
        text = f"The call waits for a person to approve it{reason}; its task is {task.id}."
    else:
        text = f"The call goes on as the task {task.id}."
    return ToolResult(
        tool_id=request.tool_id,
        index=request.index,
        block=request.block,
        request_id=request.request_id,
        status="awaiting_approval" if task.status is TaskStatus.AWAITING_APPROVAL else "pending",
        content=[ContentPart(type="text", text=text)],
        task_id=task.id,
        coercions=coercions,
    )


def failed(
    request: ToolCallRequest, failure: ToolFailure, coercions: list[str] | None = None, *, duration_ms: float = 0.0
) -> ToolResult:
    """Return the result of a call that failed."""
    error = ToolError(
        type=failure.type,
        message=failure.message,
        tool_id=request.tool_id,
        index=request.index,
        details=failure.details,
    )
    return ToolResult(
        tool_id=request.tool_id,
        index=request.index,
        block=request.block,
        request_id=request.request_id,
        status="error",
        content=[ContentPart(type="text", text=f"{error.type}: {error.message}")],
        error=error,
        coercions=coercions or [],
        duration_ms=duration_ms,
    )


def _is_small(value: JsonValue) -> bool:
    """Return whether a value is so small that its size need not be measured."""
    if isinstance(value, str):
        return len(value) <= _SHORT
    if not isinstance(value, dict | list):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return len(value) <= _FEW and all(
        not isinstance(part, dict | list) and (not isinstance(part, str) or len(part) <= _SHORT) for part in parts
    )
