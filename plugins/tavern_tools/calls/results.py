"""What a call gave, as the result that its caller gets. Decides nothing about calls."""

from __future__ import annotations

import math
from typing import NamedTuple

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host.contracts.documents import json_path
from tavern_host.contracts.toolcalls import (
    ContentPart,
    TaskStatus,
    ToolCallRequest,
    ToolError,
    ToolErrorType,
    ToolResult,
    ToolTask,
)
from tavern_tools.catalog.failures import ToolFailure, value_failure
from tavern_tools.catalog.schemas import Location, ValueProblem


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
_SIMPLE = frozenset((int, bool, type(None)))


def done(
    request: ToolCallRequest,
    structured: JsonValue,
    parts: tuple[ContentPart, ...],
    coercions: list[str],
    max_bytes: int,
    duration_ms: float,
) -> ToolResult:
    """Return the result of a call that did what it does, see `Given`. Raises `ToolFailure` for one that is too
    large, or that JSON cannot write."""
    if not _is_small(structured):
        _measure(request.tool_id, structured, max_bytes)
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


def _measure(tool_id: str, structured: JsonValue, max_bytes: int) -> None:
    """Raise `ToolFailure` for a result that is too large, or that JSON cannot write."""
    written = to_json(structured)
    if (size := len(written)) > max_bytes:
        message = f"the result of {tool_id} is too large: {size / 1e6:.1f} MB, {max_bytes / 1e6:g} MB are allowed"
        raise ToolFailure(ToolErrorType.OUTPUT, message, bytes=size)
    if (b"NaN" in written or b"Infinity" in written) and (found := _no_json_number(structured, ())) is not None:
        place, number = found
        problem = ValueProblem(path=json_path(*place), message=f"expected a number that JSON can write, got {number}")
        raise value_failure(ToolErrorType.OUTPUT, f"the result of {tool_id} is no JSON", [problem])


def _no_json_number(value: JsonValue, place: Location) -> tuple[Location, float] | None:
    """Return the first number in a value that is none in JSON, and where it is; or None."""
    if isinstance(value, float):
        return None if math.isfinite(value) else (place, value)
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            if (found := _no_json_number(part, (*place, key))) is not None:
                return found
    return None


def _is_small(value: JsonValue) -> bool:
    """Return whether a value is so small and simple that it need not be looked through."""
    kind = value.__class__
    if kind is str:
        return len(value) <= _SHORT  # type: ignore[arg-type]
    if kind is not dict and kind is not list:
        return kind in _SIMPLE
    parts = value.values() if kind is dict else value  # type: ignore[union-attr]
    if len(parts) > _FEW:  # type: ignore[arg-type]
        return False
    for part in parts:  # type: ignore[union-attr]
        kind = part.__class__
        if kind is str:
            if len(part) > _SHORT:  # type: ignore[arg-type]
                return False
        elif kind not in _SIMPLE:
            return False
    return True
