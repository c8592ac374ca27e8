"""A plugin for tests: a tool manager that has tasks and streams of its own, and hands everything else on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from helpers.forwarding import forwarding

from tavern_host import hookimpl
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.services import ServiceInfo, service_info
from tavern_tools.api.toolcalls import StreamItems, TaskStatus, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER

BEGUN = datetime(2026, 5, 1, 12, tzinfo=UTC)
ERROR = {"type": "ExecutionError", "message": "the ink is out", "tool_id": "acme:draw"}
KEPT: dict[str, dict[str, Any]] = {
    "done": {"result": {"tool_id": "acme:draw", "status": "done", "structured": {"lines": 3}}},
    "error": {"result": {"tool_id": "acme:draw", "status": "error", "error": ERROR}},
    "awaiting_approval": {
        "approval": {"reason": "every drawing is looked at", "requested_at": BEGUN, "expires_at": BEGUN}
    },
}


@hookimpl
def tavern_override_services() -> list[ServiceInfo]:
    return [service_info(TOOL_MANAGER, Desk)]


class Desk(forwarding(TOOL_MANAGER)):  # type: ignore[misc]
    """Has one task for each status, `task_STATUS`, which are `agent:lin`'s; the rest of what is asked for is shown in
    the tasks and items themselves."""

    async def task(self, task_id: str, *, wait: float = 0.0, call: CallContext | None = None) -> ToolTask:
        assert call is not None
        status = task_id.removeprefix("task_")
        if str(call.principal) != "agent:lin" or status not in list(TaskStatus):
            raise NotFound(f"there is no task {task_id}")
        about = {"id": task_id, "tool_id": "acme:draw", "principal": call.principal, "created_at": BEGUN}
        text = f"waited {wait:g}"
        return ToolTask.model_validate({**about, "status": status, "progress_text": text, **KEPT.get(status, {})})

    async def cancel_task(self, task_id: str, *, call: CallContext | None = None) -> ToolTask:
        await self.task(task_id, call=call)
        return await self.task("task_cancelled", call=call)

    async def read_stream(
        self, handle: str, *, max: int = 100, wait: float = 10.0, call: CallContext | None = None
    ) -> StreamItems:
        assert call is not None
        return StreamItems(items=[handle, max, wait, str(call.principal)], finished=True)
