"""What a call returned, as the result that its caller gets. Decides nothing about calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host.contracts.documents import json_path
from tavern_host.contracts.wire import WireError, wire_value
from tavern_tools.api.toolcalls import (
    ContentPart,
    TaskStatus,
    ToolCallRequest,
    ToolError,
    ToolErrorType,
    ToolResult,
    ToolTask,
)
from tavern_tools.calls.call import Call, Output
from tavern_tools.catalog.catalog import Tool
from tavern_tools.catalog.failures import ToolFailure, value_failure
from tavern_tools.catalog.schemas import Location, Schema, ValueProblem


def checked(call: Call, output: Output, max_bytes: int) -> ToolResult:
    """Return a tool's output as the result of its call.

    Raises `ToolFailure` for output that is not what the tool declares, is too large, or that no wire can carry.
    """
    tool, request, structured = call.tool, call.request, output.structured
    if tool.method is None:  # what a method returns can be carried
        structured = _wire_value(request.tool_id, structured)
    _check_size(request.tool_id, structured, max_bytes)
    if tool.output is not None and not tool.output.allows(structured):
        _mend(tool, tool.output, structured)
    kind, took = "text" if isinstance(structured, str) else "data", spent(call)
    content = [*output.parts] or [ContentPart.construct(**{"type": kind, kind: structured})]
    return ToolResult.construct(  # validating it would copy all of the output
        tool_id=request.tool_id,
        index=request.index,
        block=request.block,
        request_id=request.request_id,
        status="done",
        content=content,
        structured=structured,
        coercions=list(call.coercions),
        warnings=list(output.warnings),
        duration_ms=took,
    )


def spent(call: Call) -> float:
    """Return the milliseconds that a call has taken until now."""
    return round((time.perf_counter() - call.began) * 1000, 3)


def checked_again(result: ToolResult, max_bytes: int) -> ToolResult:
    """Return a result that a plugin made of another. Raises `ToolFailure` where it is too large, or no wire can carry
    it."""
    structured = _wire_value(result.tool_id, result.structured)
    _check_size(result.tool_id, structured, max_bytes)
    parts = (_wire_value(result.tool_id, {"text": part.text, "data": part.data}) for part in result.content)
    content = [part.model_copy(update=update) for part, update in zip(result.content, parts, strict=True)]
    return result.model_copy(update={"structured": structured, "content": content})


def waiting(request: ToolCallRequest, task: ToolTask, coercions: Sequence[str]) -> ToolResult:
    """Return the result of a call that runs as a task, or waits for a person to decide."""
    if task.status is TaskStatus.AWAITING_APPROVAL:
        approval = task.approval
        reason = f" ({approval.reason})" if approval is not None else ""
        text = f"The call waits for a person to approve it{reason}; its task is {task.id}."
        if approval is not None and approval.question is not None:
            text = f"The question waits for a person to answer it; its task is {task.id}."
    else:
        text = f"The call runs as the task {task.id}."
    return ToolResult(
        **request.about,
        status="awaiting_approval" if task.status is TaskStatus.AWAITING_APPROVAL else "pending",
        content=[ContentPart(type="text", text=text)],
        task_id=task.id,
        coercions=list(coercions),
    )


def failed(
    request: ToolCallRequest, failure: ToolFailure, coercions: Sequence[str] = (), *, duration_ms: float = 0.0
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
        **request.about,
        status="error",
        content=[ContentPart(type="text", text=f"{error.type}: {error.message}")],
        error=error,
        coercions=list(coercions),
        duration_ms=duration_ms,
    )


def _mend(tool: Tool, output: Schema, value: JsonValue) -> None:
    """Mend a service's output that is not what its tool declares, see `_leave_out_nulls`, or raise `ToolFailure`."""
    if tool.definition.kind == "service" and _leave_out_nulls(output, value):
        return
    what = f"the result of {tool.definition.id} is not what the tool declares"
    raise value_failure(ToolErrorType.OUTPUT, what, output.problems(value))


def _check_size(tool_id: str, structured: JsonValue, max_bytes: int) -> None:
    """Raise `ToolFailure` for output that is too large."""
    if (size := len(to_json(structured))) > max_bytes:
        message = f"the result of {tool_id} is too large: {size / 1e6:.1f} MB, {max_bytes / 1e6:g} MB are allowed"
        raise ToolFailure(ToolErrorType.OUTPUT, message, bytes=size)


def _wire_value(tool_id: str, structured: Any) -> Any:
    """Return a result as every wire can carry it. Raises `ToolFailure`."""
    try:
        return wire_value(structured)
    except WireError as error:
        problem = ValueProblem(path=json_path(*error.path), message=error.reason)
        raise value_failure(ToolErrorType.OUTPUT, f"the result of {tool_id} is no JSON", [problem]) from None


def _leave_out_nulls(output: Schema, value: JsonValue) -> bool:
    """Return whether a result that `output` forbids is right without fields that are null; then they are removed.

    A service writes every field of its result, with `null` for what is not there; a JSON Schema says of such a field
    that it is not required. A value that would be wrong without them, too, stays as it is.
    """
    taken: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for place, _ in output.mistakes(value):
        owner = _owner(value, place)
        if owner is not None and owner.get(place[-1], ...) is None:
            taken.append((owner, dict(owner)))
            del owner[place[-1]]
    if taken and output.allows(value):
        return True
    for owner, whole in reversed(taken):
        owner.update(whole)
    return False


def _owner(value: JsonValue, place: Location) -> dict[Any, Any] | None:
    """Return the object in `value` that a place is a field of, or None."""
    found: Any = value
    for part in place[:-1]:
        if not isinstance(found, dict | list):
            return None
        try:
            found = found[part]  # type: ignore[index]
        except (LookupError, TypeError):
            return None
    return found if place and isinstance(found, dict) else None
