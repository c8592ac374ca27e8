"""Which tools an agent, or a workflow, may call: patterns and what they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from tavern_host.contracts.agents import AgentProfile
from tavern_host.contracts.code_mode import CODE_TOOL, signatures
from tavern_host.contracts.observations import documented_tools
from tavern_host.contracts.toolcalls import ToolRule
from tavern_host.contracts.tools import ToolFilter, ToolManager

REMEMBER = "UpdatePrivateStateTool"
"""Changes what an agent remembers, which belongs to a branch."""


_FUNCTIONS = (
    f"Python code that {CODE_TOOL} runs has these functions in its module tools, with arguments by name. One piece of "
    "code can chain and loop over many calls, and prints what is worth knowing:"
)


async def tool_ids(manager: ToolManager, patterns: Iterable[str]) -> list[str]:
    """Return the ids that patterns stand for, in order; an id that is no pattern stays, whether it is a tool or not."""
    found: dict[str, None] = {}
    for pattern in patterns:
        if "*" in pattern or "?" in pattern:
            found |= dict.fromkeys(tool.id for tool in await manager.list_tools(ToolFilter(ids=[pattern])))
        else:
            found[pattern] = None
    return list(found)


async def consent(manager: ToolManager, ids: list[str]) -> list[ToolRule]:
    """Return rules that name those of the tools whose effects are not undone by going back in a conversation."""
    if not ids:
        return []
    harmless = {REMEMBER} | {tool.id for tool in await manager.list_tools(ToolFilter(ids=ids)) if tool.read_only}
    return [ToolRule(tool=id) for id in ids if id not in harmless]


async def offered_tools(manager: ToolManager, profile: AgentProfile) -> tuple[list[str], str]:
    """Return the ids of the tools that an agent's model is shown, and what it reads beside them: in code mode the tool
    that runs code, and the signatures of all that code may call."""
    ids = await tool_ids(manager, profile.inventory)
    if profile.custom_metadata.get("code_mode") is not True or CODE_TOOL not in ids:
        return ids, ""
    others = [tool_id for tool_id in ids if tool_id != CODE_TOOL]
    tools = [tool for tool in await manager.list_tools(ToolFilter(ids=others)) if tool.unavailable is None]
    return [CODE_TOOL], f"{_FUNCTIONS}\n\n{signatures(tools)}" if tools else ""


async def chosen_tools(manager: ToolManager, chosen: list[str], allowed: list[str] | None) -> list[str]:
    """Return the ids of the `chosen` tools that are `allowed`; where none is chosen all that are."""
    if allowed is None:
        return await tool_ids(manager, chosen or ["*"])
    return [id for id in await tool_ids(manager, chosen or allowed) if fits(id, allowed)]


def fits(tool_id: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns stands for a tool."""
    return any(fnmatchcase(tool_id, pattern) for pattern in patterns)


async def tools_text(manager: ToolManager, ids: list[str]) -> str:
    """Return the documentation of tools for a model that asks for them in text; empty for none."""
    if not ids:
        return ""
    return documented_tools(await manager.describe(ids), await manager.instructions())
