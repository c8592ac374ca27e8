"""A plugin for tests: a tool manager that has tasks and streams of its own, and hands everything else on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.services import ServiceInfo, interface_methods, service_info
from tavern_host.contracts.toolcalls import (
    StreamItems,
    TaskStatus,
    ToolApproval,
    ToolError,
    ToolErrorType,
    ToolResult,
    ToolTask,
)
from tavern_host.contracts.tools import TOOL_MANAGER, ToolManager
from tavern_host.sdk.decorator import hookimpl

BEGUN = datetime(2026, 5, 1, 12, tzinfo=UTC)


@hookimpl
def tavern_override_services() -> list[ServiceInfo]:
    return [service_info(TOOL_MANAGER, Desk)]


def _handed_on(name: str) -> Callable[..., Any]:
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        return await getattr(self._original, name)(*arguments, **named)

    def stream(self: Any, *arguments: Any, **named: Any) -> Any:
        return getattr(self._original, name)(*arguments, **named)

    return call if inspect.iscoroutinefunction(getattr(ToolManager, name)) else stream


HandingOn: Any = type(ToolManager)(
    "HandingOn", (ToolManager,), {name: _handed_on(name) for name in interface_methods(ToolManager)}
)


class Desk(HandingOn):
    """Has one task for each status, `task_STATUS`, which are `agent:lin`'s; the rest of what is asked for is shown in
    the tasks and items themselves."""

    def __init__(self, original: ToolManager) -> None:
        self._original = original

    async def task(self, task_id: str, *, wait: float = 0.0, call: CallContext | None = None) -> ToolTask:
        status = task_id.removeprefix("task_")
        if str(call.principal) != "agent:lin" or status not in list(TaskStatus):
            raise NotFound(f"there is no task {task_id}")
        return _task(TaskStatus(status), call, f"waited {wait:g}")

    async def cancel_task(self, task_id: str, *, call: CallContext | None = None) -> ToolTask:
        assert call is not None
        await self.task(task_id, call=call)
        return _task(TaskStatus.CANCELLED, call, "cancelled")

    async def read_stream(
        self, handle: str, *, max: int = 100, wait: float = 10.0, call: CallContext | None = None
    ) -> StreamItems:
        return StreamItems(items=[handle, max, wait, str(call.principal)], finished=True)


def _task(status: TaskStatus, call: CallContext, text: str) -> ToolTask:
    error = ToolError(type=ToolErrorType.EXECUTION, message="the ink is out", tool_id="acme:draw")
    results = {
        TaskStatus.DONE: ToolResult(tool_id="acme:draw", status="done", structured={"lines": 3}),
        TaskStatus.ERROR: ToolResult(tool_id="acme:draw", status="error", error=error),
    }
    approval = ToolApproval(reason="every drawing is looked at", requested_at=BEGUN, expires_at=BEGUN)
    return ToolTask(
        id=f"task_{status}",
        tool_id="acme:draw",
        status=status,
        principal=call.principal,
        created_at=BEGUN,
        progress_text=text,
        result=results.get(status),
        approval=approval if status is TaskStatus.AWAITING_APPROVAL else None,
    )
