"""The routes of tasks and approvals, under `/api/tasks` and `/api/approvals`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue

from tavern_host.common.queries import read_filter, statuses
from tavern_host.context import PluginContext
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.http import HttpRequest, HttpResponse, SocketMessage, SocketReply
from tavern_host.contracts.wire import Model
from tavern_tools.api.answers import TaskQuery, WaitQuery
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.requests import require_known


class Decision(Model):
    """What is decided about a call, with which arguments it is made then, and why. A question is approved with its
    `answer` among the arguments."""

    decision: Literal["approve", "refuse"]
    arguments: dict[str, JsonValue] | None = None
    comment: str | None = None


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tasks`: a page of tasks, without large results. The last page has fewer tasks than its limit."""
    asked = task_filter(request.query)
    tasks = await context.services.get(TOOL_MANAGER).tasks(asked, call=request.call)
    return HttpResponse(
        data={"tasks": [task.to_json() for task in tasks], "limit": asked.limit, "offset": asked.offset}
    )


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tasks/{id}`: a task with its whole result."""
    wait = request.read_query(WaitQuery).wait
    task = await context.services.get(TOOL_MANAGER).task(request.parameters["id"], wait=wait, call=request.call)
    return HttpResponse(data=task.to_json())


async def cancel(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/tasks/{id}/cancel`: how the task stands then."""
    task = await context.services.get(TOOL_MANAGER).cancel_task(request.parameters["id"], call=request.call)
    return HttpResponse(data=task.to_json())


async def approvals(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/approvals`: the tasks that wait for a decision, newest first."""
    asked = task_filter(request.query).model_copy(update={"statuses": [TaskStatus.AWAITING_APPROVAL]})
    tasks = await context.services.get(TOOL_MANAGER).tasks(asked, call=request.call)
    return HttpResponse(
        data={"approvals": [task.to_json() for task in tasks], "limit": asked.limit, "offset": asked.offset}
    )


async def decide(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/approvals/{id}`: the task after the decision; 409 where it was decided already."""
    body = await request.body_as(Decision)
    task = await context.services.get(TOOL_MANAGER).decide(
        request.parameters["id"],
        body.decision,
        arguments=body.arguments,
        comment=body.comment or "",
        call=request.call,
    )
    return HttpResponse(data=task.to_json())


class SocketDecision(Decision):
    """The payload of `APPROVAL_DECISION`."""

    task_id: str


async def on_decision(message: SocketMessage, context: PluginContext) -> list[SocketReply]:
    """`APPROVAL_DECISION`: the sender receives how the task stands after the decision."""
    asked = read_model(SocketDecision, message.payload, "this is no APPROVAL_DECISION")
    task = await context.services.get(TOOL_MANAGER).decide(
        asked.task_id, asked.decision, arguments=asked.arguments, comment=asked.comment or "", call=message.call
    )
    return [SocketReply(type="APPROVAL_DECIDED", payload={"taskId": task.id, "status": task.status.value})]


def task_filter(query: Mapping[str, str]) -> TaskFilter:
    """Return the filter of a query: `status` (several with commas), `tool`, `principal`, `limit`, `offset`.

    Raises `InvalidInput` for a key that is none and a value that cannot be; empty ones are no values.
    """
    require_known(query, TaskQuery)
    found: dict[str, Any] = {
        key: query[key].strip() for key in ("tool", "principal", "limit", "offset") if query.get(key, "").strip()
    }
    found["statuses"] = statuses(TaskStatus, query.get("status", ""))
    return read_filter(TaskFilter, found)
