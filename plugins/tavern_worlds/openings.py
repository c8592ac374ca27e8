"""How an agent begins in a scene: what it learns of it and remembers, and what a character says first."""

from __future__ import annotations

from tavern_agents.api.agents import AGENT_RUNTIME, AgentProfile
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_agents.api.memory import GoalChange, MemoryChange
from tavern_characters.api.characters import CHARACTERS
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound
from tavern_llm.api.llm import ChatMessage
from tavern_worlds.api.scenes import SceneAgent, SceneMember, SceneRun
from tavern_worlds.turns import opening


async def introduce(
    context: PluginContext,
    run: SceneRun,
    member: SceneMember,
    agent: SceneAgent,
    profile: AgentProfile,
    call: CallContext | None,
) -> None:
    """Begin an agent's own conversation with what it learns of the scene, and what it remembers there; the greeting of
    a character is said to all. Raises `TavernError`."""
    histories, told = context.services.get(CHAT_HISTORY), ChatMessage(role="user", content=opening(run, member))
    said = await _greeting(context, run, member, profile, call)
    await histories.add(member.conversation_id, [told, *said])
    if said:
        await histories.add(run.id, said, call=call)
    goals = {goal.caiu_id: goal for goal in agent.initial_goals_override_reference}
    dropped = [g.caiu_id for g in profile.initial_goals_reference if goals and g.caiu_id not in goals]
    change = MemoryChange(
        state=agent.initial_private_state_override,
        goals=[
            *(GoalChange(id=id, status="dropped") for id in dropped),
            *(
                GoalChange(id=id, base=goal.kb_alias_or_id or "", priority=goal.activation_priority)
                for id, goal in goals.items()
            ),
        ],
    )
    if change != MemoryChange():
        await context.services.get(AGENT_RUNTIME).change_memory(member.profile_id, member.conversation_id, change)


async def _greeting(
    context: PluginContext, run: SceneRun, member: SceneMember, profile: AgentProfile, call: CallContext | None
) -> list[ChatMessage]:
    """Return an agent's first words: none, where it is no character or its card has no greeting."""
    character = profile.custom_metadata.get("character")
    if not isinstance(character, str) or not context.services.has(CHARACTERS):
        return []
    try:
        text = await context.services.get(CHARACTERS).greeting(character, conversation_id=run.id, call=call)
    except NotFound:  # its card is gone; the agent is there
        return []
    return [ChatMessage(role="assistant", name=member.name, content=text)] if text else []
