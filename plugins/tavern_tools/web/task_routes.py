"""The routes of tasks and approvals, under `/api/tasks` and `/api/approvals`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tavern_host.context import PluginContext
from tavern_host.contracts.documents import json_type
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.http import HttpRequest, HttpResponse, RouteInfo
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.queries import read_filter, statuses
from tavern_host.contracts.toolcalls import TaskFilter, TaskStatus
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_tools.catalog.names import quoted

_KEYS = ("decision", "arguments", "comment")


def task_routes() -> list[RouteInfo]:
    """Return the routes of tasks and approvals."""
    web = "tavern_tools.web.task_routes"
    return [
        RouteInfo(method="GET", path="/api/tasks", handler=f"{web}:index", summary="Tasks of tools, newest first."),
        RouteInfo(
            method="GET",
            path="/api/tasks/{id}",
            handler=f"{web}:show",
            summary="One task; with `?wait=SECONDS` as soon as it has ended within them.",
        ),
        RouteInfo(method="POST", path="/api/tasks/{id}/cancel", handler=f"{web}:cancel", summary="Cancel a task."),
        RouteInfo(
            method="GET", path="/api/approvals", handler=f"{web}:approvals", summary="Calls that wait for a decision."
        ),
        RouteInfo(
            method="POST",
            path="/api/approvals/{id}",
            handler=f"{web}:decide",
            summary='Decide about a call: `{"decision": "approve" | "refuse", "arguments", "comment"}`.',
        ),
    ]


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tasks`: a page of tasks, without large results. The last page has fewer tasks than its limit."""
    asked = task_filter(request.query)
    tasks = await context.services.get(TOOL_MANAGER).tasks(asked, call=request.call)
    return HttpResponse(
        data={"tasks": [task.to_json() for task in tasks], "limit": asked.limit, "offset": asked.offset}
    )


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tasks/{id}`: a task with its whole result."""
    wait = _seconds(request.query.get("wait", "0"))
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
    decision, arguments, comment = read_decision(request.json_body())
    task = await context.services.get(TOOL_MANAGER).decide(
        request.parameters["id"], decision, arguments=arguments, comment=comment, call=request.call
    )
    return HttpResponse(data=task.to_json())


_FILTERS = ("status", "tool", "principal", "limit", "offset")


def task_filter(query: Mapping[str, str]) -> TaskFilter:
    """Return what a query asks for: `status` (several with commas), `tool`, `principal`, `limit`, `offset`.

    Raises `InvalidInput` for a key that is none and a value that cannot be; empty ones are no values.
    """
    for key in query:
        if key not in _FILTERS:
            raise InvalidInput(f"unknown filter {quoted(key)}{did_you_mean(key, _FILTERS)}")
    found: dict[str, Any] = {
        key: query[key].strip() for key in ("tool", "principal", "limit", "offset") if query.get(key, "").strip()
    }
    found["statuses"] = statuses(TaskStatus, query.get("status", ""))
    return read_filter(TaskFilter, found)


def read_decision(body: Any) -> tuple[Literal["approve", "refuse"], dict[str, Any] | None, str]:
    """Return the decision, the arguments and the comment that a body holds. Raises `InvalidInput`."""
    if not isinstance(body, dict):
        raise InvalidInput(f'expected an object with "decision", got {json_type(body)}')
    for key in body:
        if key not in _KEYS:
            raise InvalidInput(f"unknown key {quoted(key)}{did_you_mean(key, _KEYS)}")
    decision, arguments, comment = (body.get(key) for key in _KEYS)
    if decision != "approve" and decision != "refuse":
        raise InvalidInput(f'"decision" must be "approve" or "refuse", got {decision!r:.60}')
    if arguments is not None and not isinstance(arguments, dict):
        raise InvalidInput(f'"arguments" must be an object, got {json_type(arguments)}')
    if comment is not None and not isinstance(comment, str):
        raise InvalidInput(f'"comment" must be text, got {json_type(comment)}')
    return decision, arguments, comment or ""


def _seconds(text: str) -> float:
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 300:
        raise InvalidInput(f"wait: expected a number of seconds from 0 to 300, got {text!r:.60}")
    return seconds
