"""What is wrong with agents: their files, what they name, and fields that do nothing yet."""

from __future__ import annotations

from tavern_agents.deliberation import Deliberation
from tavern_agents.profiles import Profiles
from tavern_host.context import PluginContext
from tavern_host.contracts.agents import AgentProblem, AgentProfile
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.tools import TOOL_MANAGER, ToolFilter
from tavern_host.contracts.workflows import WORKFLOW_MANAGER

WITHOUT_EFFECT = {
    "initial_private_state_schema": "private state comes with a later version",
    "initial_private_state_values": "private state comes with a later version",
    "knowledge_base_references": "knowledge bases come with a later version",
    "subscribed_event_types": "events come with a later version",
    "initial_goals_reference": "goals come with a later version",
}
"""Fields of the published format that do nothing yet, and why."""


async def check_profiles(context: PluginContext, profiles: Profiles, profile_id: str | None) -> list[AgentProblem]:
    """Return every problem of the profiles, or of one. Raises `NotFound` for one that is not there."""
    found: list[AgentProblem] = []
    for broken in profiles.broken:
        if profile_id is None or profile_id in broken.names:
            found += [_broken(broken.file, text) for text in broken.problems]
    chosen = list(profiles.by_id.values()) if profile_id is None else [] if found else [profiles.get(profile_id)]
    for profile in chosen:
        found += await _problems(context, profiles.files.get(profile.id, ""), profile)
    return found


def without_effect(profile: AgentProfile) -> list[str]:
    """Return the fields that a profile sets and that do nothing yet."""
    given = {**(profile.model_extra or {}), "initial_private_state_values": profile.initial_private_state_values}
    return [name for name in WITHOUT_EFFECT if given.get(name)]


def _broken(file: str, text: str) -> AgentProblem:
    place = text.removeprefix(f"{file}: ")
    path, _, message = place.partition(": ")
    if not path.startswith("$"):
        path, message = "$", place
    return AgentProblem(file=file, level="error", path=path, message=message)


async def _problems(context: PluginContext, file: str, profile: AgentProfile) -> list[AgentProblem]:
    found: list[AgentProblem] = []

    def add(level: str, path: str, message: str) -> None:
        found.append(
            AgentProblem.model_validate(
                {"file": file, "profile_id": profile.id, "level": level, "path": path, "message": message}
            )
        )

    try:
        Deliberation.of(await context.services.get(WORKFLOW_MANAGER).get(profile.core_deliberation_workflow_id))
    except TavernError as error:
        add("error", "$.core_deliberation_workflow_id", error.message)
    tools = context.services.get(TOOL_MANAGER)
    known = {tool.id for tool in await tools.list_tools()}
    skills = len(profile.tool_ids_inventory)
    for number, pattern in enumerate(profile.inventory):
        field = "tool_ids_inventory" if number < skills else "skill_workflow_ids_inventory"
        path = f"$.{field}[{number if number < skills else number - skills}]"
        tool = next(iter(await tools.list_tools(ToolFilter(ids=[pattern]))), None)
        if tool is None:
            add("warning", path, f"there is no tool {pattern!r}{did_you_mean(pattern, known)}")
        elif tool.unavailable is not None:
            add("warning", path, f"the tool {pattern!r} cannot be called now: {tool.unavailable}")
    for name in without_effect(profile):
        add("warning", f"$.{name}", f"has no effect: {WITHOUT_EFFECT[name]}")
    return found
