"""What became of calls in the middle of which a host, or a deliberation, ended."""

from __future__ import annotations

from tavern_agents.adoption import adopted
from tavern_agents.conversation import MAY_HAVE_RUN
from tavern_agents.store import AgentStore
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_tools.api.toolcalls import TaskFilter, ToolCallRequest, ToolError, ToolErrorType, ToolResult, ToolTask
from tavern_tools.api.tools import ToolManager


async def accepted(tools: ToolManager, request: ToolCallRequest, known: set[str], call: CallContext) -> str | None:
    """Return the task that a call became just before its host ended, which had no time to store that."""
    asked = TaskFilter(tool=request.tool_id, principal=str(call.principal))
    tasks = [task for task in await tools.tasks(asked, call=call) if task.id not in known]
    of_run = [task.id for task in reversed(tasks) if task.agent_run_id == call.agent_run_id]
    known.update(of_run[:1])
    return of_run[0] if of_run else None


async def may_repeat(tools: ToolManager, tool_id: str) -> bool:
    """Return whether a call of a tool that may have run may be repeated."""
    try:
        tool = await tools.get(tool_id)
    except TavernError:
        return False
    return (tool.read_only or tool.idempotent) and not tool.is_async


async def outcome(
    context: PluginContext, store: AgentStore, request: ToolCallRequest, message: int, call: CallContext
) -> ToolResult:
    """Return the result of a call that may have run, and that no task became: that of the agent that it asked, or that
    nobody knows."""
    found = await adopted(context, store, call.agent_run_id or "", request, message)
    return found or lost(request, MAY_HAVE_RUN, ToolErrorType.UNKNOWN_OUTCOME)


def result_of(request: ToolCallRequest, task: ToolTask) -> ToolResult:
    """Return the result of a call that became a task; an error where the task ended without one."""
    ended = f"the task {task.id} ended as {task.status.value}"
    result = task.result or lost(request, ended, ToolErrorType.INTERRUPTED)
    return result.model_copy(update=request.about)


def lost(request: ToolCallRequest, message: str, kind: ToolErrorType) -> ToolResult:
    """Return the result of a call that has none."""
    return ToolResult(
        **request.about,
        status="error",
        error=ToolError(type=kind, message=message, tool_id=request.tool_id, index=request.index),
    )
