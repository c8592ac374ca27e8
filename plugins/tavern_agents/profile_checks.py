"""What is wrong with agents: their files, what they name, and fields that nobody reads."""

from __future__ import annotations

from typing import Any

from tavern_agents.api.agents import AgentProblem, AgentProfile
from tavern_agents.deliberation import Deliberation
from tavern_agents.memory import memory_problem
from tavern_agents.profiles import Profiles, Source
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

FIELDS = {"$schema", *AgentProfile.model_fields}
"""What a profile may say."""


async def check_profiles(context: PluginContext, profiles: Profiles, profile_id: str | None) -> list[AgentProblem]:
    """Return every problem of the profiles, or of one. Raises `NotFound` for one that is not there."""
    wanted = [broken for broken in profiles.broken if profile_id is None or profile_id in broken.names]
    found = [problem for broken in wanted for problem in broken.problems]
    chosen = list(profiles.by_id.values()) if profile_id is None else [] if found else [profiles.get(profile_id)]
    for profile in chosen:
        found += await _problems(context, profiles.sources[profile.id], profile)
    return found


def profile_schema() -> dict[str, Any]:
    """Return the JSON Schema of profiles, for editors."""
    schema = AgentProfile.model_json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Agent profile"}
    return {**head, "properties": {"$schema": {"type": "string"}, **schema["properties"]}}


async def _problems(context: PluginContext, source: Source, profile: AgentProfile) -> list[AgentProblem]:
    found: list[AgentProblem] = []

    def add(message: str, *place: str | int, level: str = "warning") -> None:
        found.append(source.problem(place, message, level=level, profile_id=profile.id))

    try:
        Deliberation.of(await context.services.get(WORKFLOW_MANAGER).get(profile.core_deliberation_workflow_id))
    except TavernError as error:
        add(error.message, "core_deliberation_workflow_id", level="error")
    if profile.observation_workflow_id is not None:
        try:
            await context.services.get(WORKFLOW_MANAGER).get(profile.observation_workflow_id)
        except TavernError as error:
            add(error.message, "observation_workflow_id")
    for number, reference in enumerate(profile.knowledge_base_references):
        try:
            await context.services.get(KNOWLEDGE_BASE).header(reference.source_id)
        except TavernError as error:
            add(error.message, "knowledge_base_references", number, "source_id")
    tools = context.services.get(TOOL_MANAGER)
    known = {tool.id for tool in await tools.list_tools()}
    skills = len(profile.tool_ids_inventory)
    for number, pattern in enumerate(profile.inventory):
        field = "tool_ids_inventory" if number < skills else "skill_workflow_ids_inventory"
        place = (field, number if number < skills else number - skills)
        tool = next(iter(await tools.list_tools(ToolFilter(ids=[pattern]))), None)
        if tool is None:
            add(f"there is no tool {pattern!r}{did_you_mean(pattern, known)}", *place)
        elif tool.unavailable is not None:
            add(f"the tool {pattern!r} cannot be called now: {tool.unavailable}", *place)
    if wrong := memory_problem(profile):
        add(wrong[1], wrong[0], level="error")
    for name in profile.model_extra or {}:
        if hint := did_you_mean(name, FIELDS) if name not in FIELDS else "":
            add(f"is not a field of a profile and is left unread{hint}", name)
    return found
