"""Agents as others see them: as tools, and by name in their own prompts."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from tavern_agents import State
from tavern_agents.api.agents import AGENT_RUNTIME, AgentProfile
from tavern_agents.long_results import reader_tool
from tavern_agents.loop import AgentLoop
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import LimitReached
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.api.macros import MacroRequest

MAX_NESTING = 4
"""How deeply agents may call agents."""

TIMEOUT = 3_600_000.0
"""How long a sub-agent may work, in milliseconds; its own limits end it earlier."""


def check_nesting(profile: AgentProfile, at: AgentLoop | None, loops: Mapping[str, AgentLoop]) -> None:
    """Raise `LimitReached` where an agent would begin too deep below others, the last of which is `at`."""
    depth = 0
    while at is not None:
        depth += 1
        at = loops.get(at.run.parent_run_id or "")
    if depth > MAX_NESTING:
        raise LimitReached(f"agents may call each other {MAX_NESTING} deep; {profile.id!r} would be one more")


async def agent_tools(context: PluginContext) -> list[ToolDefinition]:
    """Return a tool for each agent of the project, and the one that reads long results: they are listed only where they
    are asked for by id."""
    return [reader_tool(), *(_tool(profile) for profile in (await context.own(State).profiles.now()).by_id.values())]


def _tool(profile: AgentProfile) -> ToolDefinition:
    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "What the agent is to do; it knows nothing else."},
            # The method needs to know which agent is meant; the value is filled in.
            "profile_id": {"type": "string", "enum": [profile.id], "default": profile.id},
        },
        "required": ["message"],
    }
    return ToolDefinition(
        id=f"agent:{profile.id}",
        display_name=profile.name,
        description=f"Asks the agent {profile.name} and gives its reply. {profile.description}".strip(),
        version=profile.version,
        implementation=ToolImplementation(kind="service", service="agentRuntime", method="ask"),
        parameters=parameters,
        output={"type": "string"},
        timeout=TIMEOUT,
        listed=False,
    )


async def field(request: MacroRequest, context: PluginContext) -> str:
    """Return the name, id or description of the agent that reads the prompt; nothing where that is none."""
    principal = request.call.principal
    if principal.kind != "agent":
        return ""
    profile = await context.services.get(AGENT_RUNTIME).get(principal.id)
    return str(getattr(profile, request.name.removeprefix("agent:")))
