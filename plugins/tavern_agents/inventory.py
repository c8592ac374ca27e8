"""Which tools an agent, or a workflow, may call: patterns and what they stand for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from fnmatch import fnmatchcase

from tavern_agents import State
from tavern_agents.api.agents import AgentProfile
from tavern_agents.tracing import Tracer
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tavern_scripts.api.code_mode import CODE_TOOL, signatures
from tavern_tools.api.observations import documented_tools, observation
from tavern_tools.api.toolcalls import ToolRule
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter, ToolManager, ToolStatistics

MOST_TOKENS = 10_000
"""How many tokens the schemas of the tools that a model is shown take at most, where the profile does not say."""
FEW_CALLS = 3
"""After so many calls of a tool, what became of them says something."""
MOSTEXPERIENCE = 1_500
"""How many characters a model reads about earlier calls."""
MOST_CONVERSATIONS = 1_000
"""For how many conversations a host knows what was read about earlier calls when they began."""

REMEMBER = "UpdatePrivateStateTool"
"""Changes what an agent remembers, which belongs to a branch."""


_FUNCTIONS = (
    f"Python code that {CODE_TOOL} runs has these functions in its module tools, with arguments by name. One piece of "
    "code can chain and loop over many calls, and prints what is worth knowing:"
)
_FINDERS = frozenset({"system:list_tools", "system:describe_tool", "kb:Query", "QueryKnowledgeBaseTool"})
_LEFT_OUT = (
    "{} more tools may be called that are not shown here for lack of room. system:list_tools and kb:Query (with the "
    "base host:tools) find them, if you have those; call one that you found in text, by its exact id."
)
EXPERIENCE = "What became of earlier calls of your tools:"


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


async def offered_tools(
    context: PluginContext,
    profile: AgentProfile,
    task: str,
    trace: Tracer,
    call: CallContext,
    experience: list[str] | None = None,
) -> tuple[list[str], list[str]]:
    """Return the ids of the tools that an agent's model is shown, and what it reads of them before the conversation.

    Of an inventory that is too long for a prompt those are shown that fit the `task`. In code mode it is the tool that
    runs code, and the signatures of all that code may call. Besides it reads what became of earlier calls, as the
    `experience` says where that is given.
    """
    manager = context.services.get(TOOL_MANAGER)
    ids = await tool_ids(manager, profile.inventory)
    others = [tool_id for tool_id in ids if tool_id != CODE_TOOL]
    is_code = profile.custom_metadata.get("code_mode") is True and len(others) < len(ids)
    shown = await _selected(context, others if is_code else ids, task, _most_tokens(profile), call)
    notes = []
    if is_code:
        tools = [tool for tool in await manager.list_tools(ToolFilter(ids=shown)) if tool.unavailable is None]
        notes += [f"{_FUNCTIONS}\n\n{signatures(tools)}"] if tools else []
    left_out = len(others if is_code else ids) - len(shown)
    if left_out:
        notes.append(_LEFT_OUT.format(left_out))
        trace.say("warning", f"{left_out} tools of the inventory are not shown: they do not fit into the prompt")
    known = context.own(State).experience
    place = (trace.conversation_id, profile.id)
    if place not in known:  # the same for the whole conversation: servers cache prefixes
        known[place] = _experience(await manager.statistics(shown)) if experience is None else experience
        while len(known) > MOST_CONVERSATIONS:
            del known[next(iter(known))]
    trace.shown = [CODE_TOOL] if is_code else shown
    return trace.shown, [observation("\n\n".join(notes))] if (notes := notes + known[place]) else []


def _most_tokens(profile: AgentProfile) -> int:
    limit = profile.custom_metadata.get("tool_tokens")
    return limit if isinstance(limit, int) and limit > 0 else MOST_TOKENS


async def _selected(context: PluginContext, ids: list[str], task: str, most: int, call: CallContext) -> list[str]:
    """Return those of the tools whose schemas take at most `most` tokens together, in the order of the inventory:
    first those by which others are found, then those that fit the task best."""
    schemas = await context.services.get(TOOL_MANAGER).schemas(ids)
    sizes = {str(schema["name"]): len(str(schema)) // 4 for schema in schemas}
    if sum(sizes.values()) <= most:
        return ids
    ranked = ids
    with contextlib.suppress(TavernError):  # nobody provides knowledge
        ranked = await context.services.get(KNOWLEDGE_BASE).select_tools(task, ids, limit=len(ids), call=call)
    chosen = set[str]()
    for tool_id in dict.fromkeys([*(id for id in ids if id in _FINDERS), *ranked]):
        most -= sizes.get(tool_id, 0)
        if most >= 0:
            chosen.add(tool_id)
    return [tool_id for tool_id in ids if tool_id in chosen]


def _experience(known: dict[str, ToolStatistics]) -> list[str]:
    """Return a note for the model on those of its tools that sometimes fail, most often first; empty without any."""
    failing = [one for one in known.items() if one[1].calls >= FEW_CALLS and one[1].done < one[1].calls]
    failing.sort(key=lambda one: one[1].done / one[1].calls)
    lines = [f"- {tool_id}: {one.text}" for tool_id, one in failing]
    while sum(map(len, lines)) > MOSTEXPERIENCE:
        lines.pop()
    return ["\n".join([EXPERIENCE, *lines])] if lines else []


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
