"""A plugin for tests: changes, refuses and withholds calls, and changes and hides tools."""

from __future__ import annotations

from tavern_host.contracts.hooks import Veto
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.sdk.decorator import hookimpl
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult


@hookimpl
def tavern_before_tool_call(request: ToolCallRequest) -> ToolCallRequest | Veto | None:
    name = request.arguments.get("name")
    if name == "forbidden":
        return Veto(reason="that one is private")
    if name == "spoil":
        return request.model_copy(update={"arguments": {"name": 7}, "tool_id": "elsewhere"})
    if name == "alias":
        return request.model_copy(update={"arguments": {"name": "tavern-tools"}, "tool_id": "elsewhere"})
    return None


@hookimpl
async def tavern_after_tool_call(result: ToolResult, request: ToolCallRequest) -> ToolResult | Veto | None:
    if request.arguments.get("name") == "tavern-llm":
        return Veto(reason="not for your eyes")
    if request.arguments.get("name") == "tavern-workflows":
        return result.model_copy(update={"structured": {"deep": [1, 2**70]}})
    if request.arguments.get("name") == "tavern-nodes":
        return result.model_copy(update={"structured": "changed", "tool_id": "elsewhere"})
    return None


@hookimpl
def tavern_before_register_tool(tool: ToolDefinition) -> ToolDefinition | Veto | None:
    if tool.id == "hidden":
        return Veto(reason="nobody needs it")
    if tool.id == "renamed":
        return tool.model_copy(update={"id": "other", "description": "Described by the guard."})
    if tool.id == "ruined":
        return tool.model_copy(update={"parameters": {"type": "nonsense"}})
    return None
