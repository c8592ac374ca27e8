"""The provider of `systemTools`: gives the time, and asks the tool manager on behalf of the caller."""

from __future__ import annotations

import asyncio

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.tools import ToolDefinition, ToolKind
from tavern_tools.api.systemtools import (
    CurrentTime,
    SystemTools,
    TaskOutcome,
    TaskState,
    ToolList,
    ToolSummary,
    UserAnswer,
)
from tavern_tools.api.toolcalls import QuestionKind, StreamItems, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter, ToolManager
from tavern_tools.builtin.timezones import timezone_like, timezone_of

MOST_WAIT = 60.0
"""How many seconds a tool waits at most for the end of a task, or for an item of a stream."""

MOST_ITEMS = 1_000
"""How many items of a stream one reading gives at most."""

MOST_TOOLS = 1_000
"""How many tools one list gives at most."""

_LONGEST_SUMMARY = 200
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class System(SystemTools):
    """The system tools of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    async def get_current_time(self, timezone: str | None = None) -> CurrentTime:
        """Return the time now; see the interface."""
        now = clock.now()
        if timezone is None or not timezone.strip():
            local, name = now.astimezone(), None
        else:
            found = timezone_of(asked := timezone.strip())
            zone, name = found if found is not None else await asyncio.to_thread(timezone_like, asked)
            local = now.astimezone(zone)
        iso = local.isoformat(timespec="seconds")
        return CurrentTime(
            iso=iso,
            unix=int(now.timestamp()),
            weekday=_WEEKDAYS[local.weekday()],
            utc_offset=iso[19:],
            timezone=name,
        )

    async def list_tools(
        self,
        *,
        text: str | None = None,
        tag: str | None = None,
        namespace: str | None = None,
        kind: ToolKind | None = None,
        limit: int = 100,
        call: CallContext | None = None,
    ) -> ToolList:
        """Return tools; see the interface."""
        _require_within("limit", limit, 1, MOST_TOOLS)
        wanted = ToolFilter(text=text, tag=tag, namespace=namespace, kind=kind)
        found = [tool for tool in await self._tools().list_tools(wanted) if tool.listed]
        return ToolList(tools=[_summary(tool) for tool in found[:limit]], total=len(found))

    async def describe_tool(self, tool_id: str, *, call: CallContext | None = None) -> str:
        """Return a tool's documentation; see the interface."""
        tools = self._tools()
        id = (await tools.get(tool_id)).id  # `describe` only names an id that no tool has
        by_itself = call is not None and call.principal.kind == "plugin"  # which needs a permission for statistics
        known = () if by_itself else (await tools.statistics([id])).values()
        return "\n".join([await tools.describe([tool_id]), *(f"  - Experience: {one.text}" for one in known)])

    async def task_status(self, task_id: str, *, call: CallContext | None = None) -> TaskState:
        """Return how a task stands; see the interface."""
        return _state(await self._tools().task(task_id, call=call))

    async def task_result(self, task_id: str, *, wait: float = 10.0, call: CallContext | None = None) -> TaskOutcome:
        """Return the outcome of a task; see the interface."""
        _require_within("wait", wait, 0, MOST_WAIT)
        return _outcome(await self._tools().task(task_id, wait=wait, call=call))

    async def task_cancel(self, task_id: str, *, call: CallContext | None = None) -> TaskState:
        """Cancel a task; see the interface."""
        return _state(await self._tools().cancel_task(task_id, call=call))

    async def request_user_interaction(
        self,
        question: str,
        *,
        kind: QuestionKind | None = None,
        choices: list[str] | None = None,
        multiple: bool = False,
        schema: dict[str, JsonValue] | None = None,
        seconds: float | None = None,
        answer: JsonValue = None,
        call: CallContext | None = None,
    ) -> UserAnswer:
        """Return a person's answer; see the interface."""
        if answer is None:
            raise InvalidInput("nobody was asked: call the tool system:request_user_interaction, which waits")
        return UserAnswer(answer=answer)

    async def stream_read(
        self, handle: str, *, max: int = 100, wait: float = 10.0, call: CallContext | None = None
    ) -> StreamItems:
        """Return the next items of a stream; see the interface."""
        _require_within("max", max, 1, MOST_ITEMS)
        _require_within("wait", wait, 0, MOST_WAIT)
        return await self._tools().read_stream(handle, max=max, wait=wait, call=call)

    def _tools(self) -> ToolManager:
        return self._context.services.get(TOOL_MANAGER)


def _require_within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidInput(f"{name} must be {least:,} to {most:,.0f}, it is {value:,}")


def _summary(tool: ToolDefinition) -> ToolSummary:
    description = " ".join((tool.description or tool.display_name).split())
    if len(description) > _LONGEST_SUMMARY:
        description = f"{description[: _LONGEST_SUMMARY - 1]}…"
    return ToolSummary(
        id=tool.id, kind=tool.kind, description=description, tags=tool.tags, unavailable=tool.unavailable
    )


def _state(task: ToolTask) -> TaskState:
    approval = task.approval if task.approval is not None and task.approval.decision is None else None
    return TaskState(
        task_id=task.id,
        tool_id=task.tool_id,
        status=task.status,
        is_finished=task.status.is_final,
        progress=task.progress,
        progress_text=task.progress_text,
        created_at=task.created_at,
        started_at=task.started_at,
        finished_at=task.finished_at,
        waits_for=approval.reason if approval is not None else None,
        approval_expires_at=approval.expires_at if approval is not None else None,
    )


def _outcome(task: ToolTask) -> TaskOutcome:
    result = task.result
    error = result.error if result is not None else None
    texts = [part.text for part in result.content if part.text] if result is not None else []
    text = "\n".join(texts)
    is_said = not text or error is not None or (result is not None and result.structured is not None)
    return TaskOutcome(
        task_id=task.id,
        tool_id=task.tool_id,
        status=task.status,
        is_finished=task.status.is_final,
        result=result.structured if result is not None else None,
        text=None if is_said else text,
        error_type=error.type if error is not None else None,
        error=error.message if error is not None else None,
    )
