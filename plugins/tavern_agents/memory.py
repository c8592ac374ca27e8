"""What agents remember: private state, goals and notes, kept with the message of a conversation at which they held.

A message has the memory of its parent until it is changed there, so going back in a conversation, or to another branch,
is going back in memory. All agents of a conversation are in one row of `states`, which is never changed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tavern_agents.api.agents import AGENT_RUNTIME, AgentProfile
from tavern_agents.api.memory import AgentGoal, AgentMemory, AgentNote, KeptMemory, MemoryChange
from tavern_agents.histories import changed
from tavern_agents.history_tree import find_end, id_of, read_states, write_states
from tavern_agents.store import AgentStore, stand_of
from tavern_agents.tracing import agent_of
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.documents import json_path, merged
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, NotFound, TavernError
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tavern_tools.api.macros import MacroRequest

if TYPE_CHECKING:
    import sqlite3

MAX_MEMORY = 256 << 10
"""The largest memory of an agent, in bytes of JSON."""

MAX_NOTES = 200
"""How many notes are kept, as long as they have no more than `MAX_LOG` characters together."""

MAX_LOG = 50_000

MAX_DESCRIPTION = 4_000
"""How many characters of a goal's entry in a knowledge base are read."""

_NOTES_SHOWN = 20
"""How many notes a prompt has."""


def initial_memory(profile: AgentProfile) -> KeptMemory:
    """Return the first memory of an agent. Raises `Misconfigured` with the field of the profile that is wrong."""
    problem = memory_problem(profile)
    if problem is not None:
        raise Misconfigured(f"the agent {profile.id!r} cannot be used: {problem[0]}: {problem[1]}")
    goals = [
        AgentGoal(id=goal.caiu_id, base=goal.kb_alias_or_id, priority=goal.activation_priority)
        for goal in profile.initial_goals_reference
    ]
    return KeptMemory(state=_initial_state(profile), goals=goals)


def memory_problem(profile: AgentProfile) -> tuple[str, str] | None:
    """Return the field of a profile by which an agent cannot remember, and why."""
    try:
        problem = state_problem(profile.initial_private_state_schema, _initial_state(profile))
    except ValueError as error:
        return "initial_private_state_schema", f"is no usable JSON Schema: {str(error).splitlines()[0]}"
    return None if problem is None else ("initial_private_state_values", problem)


def _initial_state(profile: AgentProfile) -> dict[str, JsonValue]:
    properties = profile.initial_private_state_schema.get("properties")
    parts = properties.items() if isinstance(properties, dict) else ()
    defaults = {key: part["default"] for key, part in parts if isinstance(part, dict) and "default" in part}
    return {**defaults, **profile.initial_private_state_values}


def state_problem(schema: dict[str, JsonValue], state: dict[str, JsonValue]) -> str | None:
    """Return the first mistake of a state with its place, or None. Raises `ValueError` for an unusable schema."""
    if not schema:
        return None
    if _refers(schema):  # references can multiply what is compared
        raise ValueError("it has references ($ref), which are not supported here")
    from jsonschema_rs import RegexOptions, validator_for

    validator = validator_for(schema, offline=True, pattern_options=RegexOptions())
    error = next(validator.iter_errors(state), None)
    return None if error is None else f"{json_path(*error.instance_path)}: {error.message[:300]}"


def _refers(part: JsonValue) -> bool:
    if isinstance(part, dict):
        return "$ref" in part or "$dynamicRef" in part or any(_refers(inner) for inner in part.values())
    return isinstance(part, list) and any(_refers(inner) for inner in part)


class Memories:
    """The memories of the project's agents."""

    def __init__(
        self, context: PluginContext, store: AgentStore, profile: Callable[[str], Awaitable[AgentProfile]]
    ) -> None:
        self._context = context
        self._store = store
        self._profile = profile

    async def read(
        self, profile: AgentProfile, history: str, branch: str | None = None, leaf: str | None = None
    ) -> AgentMemory:
        """Return an agent's memory at the head of a branch, or at a message. Raises `NotFound`, `Misconfigured`."""
        return await self._at(profile, history, lambda connection: find_end(connection, history, branch, leaf))

    async def _at(self, profile: AgentProfile, history: str, place: Callable[[sqlite3.Connection], int]) -> AgentMemory:
        initial = initial_memory(profile)

        def work(connection: sqlite3.Connection) -> AgentMemory:
            return _memory(connection, profile, history, place(connection), initial)

        found = await self._store.database.read(work, None)
        if found is None:
            raise NotFound(f"there is no conversation {history!r}")
        return found

    async def change(
        self,
        profile: AgentProfile,
        history: str,
        change: MemoryChange,
        by: str,
        branch: str | None = None,
        revision: int | None = None,
    ) -> AgentMemory:
        """Change an agent's memory at the head of a branch. Raises `Conflict` where the `revision` is another,
        `NotFound`, `InvalidInput` for a state that does not fit the profile's schema."""
        return await self._change(
            profile, history, change, by, lambda connection: find_end(connection, history, branch), revision
        )

    async def _own(self, call: CallContext) -> tuple[AgentProfile, str, str]:
        """Return the profile, conversation and run of the agent that makes a call. Raises `InvalidInput` where none
        does."""
        working = agent_of(self._context, call)
        if working is None:
            raise InvalidInput("only an agent at work has a memory of its own to read and change")
        run = (await self._store.run(working.agent_run_id)).run
        return await self._profile(run.profile_id), run.conversation_id, run.id

    async def recall(self, call: CallContext) -> AgentMemory:
        """Return the memory of the agent that makes a call. Raises `InvalidInput`."""
        profile, history, run_id = await self._own(call)
        memory = await self._at(profile, history, lambda connection: stand_of(connection, run_id)[1])
        bases = [reference.source_id for reference in profile.knowledge_base_references]
        goals = [await self._described(goal, bases, call) for goal in memory.goals]
        return memory.model_copy(update={"goals": goals})

    async def _described(self, goal: AgentGoal, bases: list[str], call: CallContext) -> AgentGoal:
        """Return a goal with what its entry of a knowledge base says, if it says nothing itself."""
        for base in [goal.base] if goal.base else bases:
            if goal.description or goal.status != "active":
                break
            with contextlib.suppress(TavernError):
                found = await self._context.services.get(KNOWLEDGE_BASE).get(base, goal.id, call=call)
                goal = goal.model_copy(update={"description": found.entry.content.value[:MAX_DESCRIPTION]})
        return goal

    async def remember(self, change: MemoryChange, call: CallContext) -> AgentMemory:
        """Change the memory of the agent that makes a call. Raises `InvalidInput`."""
        profile, history, run_id = await self._own(call)
        by = str(call.principal)
        return await self._change(profile, history, change, by, lambda c: stand_of(c, run_id)[1], None)

    async def _change(
        self,
        profile: AgentProfile,
        history: str,
        change: MemoryChange,
        by: str,
        place: Callable[[sqlite3.Connection], int],
        revision: int | None,
    ) -> AgentMemory:
        initial = initial_memory(profile)

        def work(connection: sqlite3.Connection) -> AgentMemory:
            message = place(connection)
            memory = _memory(connection, profile, history, message, initial)
            if revision is not None and revision != memory.revision:
                raise Conflict(
                    f"the memory of {profile.id!r} in {history!r} has the revision {memory.revision}, not {revision}; "
                    "read it again",
                    revision=memory.revision,
                )
            new = _changed(profile, memory, change, by)
            _, agents = read_states(connection, message)
            write_states(connection, message, {**agents, profile.id: new.model_dump(mode="json", by_alias=True)})
            return _memory(connection, profile, history, message, initial)

        done = await self._store.database.write(work)
        changed(self._context, history, "memory")
        return done


async def memory_text(request: MacroRequest, context: PluginContext) -> str:
    """Return the memory of the agent that reads the prompt; nothing where none does."""
    if agent_of(context, request.call) is None:
        return ""
    memory = await context.services.get(AGENT_RUNTIME).recall(call=request.call)
    goals = [goal.model_dump(mode="json", exclude_defaults=True) for goal in memory.goals if goal.status == "active"]
    notes = [note.text for note in memory.notes[-_NOTES_SHOWN:]]
    shown = {"state": memory.state, "goals": goals, "notes": notes}
    return json.dumps({key: part for key, part in shown.items() if part}, ensure_ascii=False)


def _memory(
    connection: sqlite3.Connection, profile: AgentProfile, history: str, message: int, initial: KeptMemory
) -> AgentMemory:
    revision, agents = read_states(connection, message)
    kept = initial if profile.id not in agents else KeptMemory.model_validate(agents[profile.id])
    return AgentMemory(
        **dict(kept),
        profile_id=profile.id,
        conversation_id=history,
        message_id=id_of(connection, message),
        revision=revision,
        state_schema=profile.initial_private_state_schema,
    )


def _changed(profile: AgentProfile, memory: KeptMemory, change: MemoryChange, by: str) -> KeptMemory:
    state = merged(memory.state, change.state)
    assert isinstance(state, dict)
    problem = state_problem(profile.initial_private_state_schema, state)
    if problem is not None:
        raise InvalidInput(f"the private state of {profile.id!r} would not fit its schema: {problem}")
    goals = {goal.id: goal for goal in memory.goals}
    for one in change.goals:
        fields = one.model_dump(exclude_none=True)
        if one.base == "":
            fields["base"] = None
        goals[one.id] = goals.get(one.id, AgentGoal(id=one.id)).model_copy(update=fields)
    notes = list(memory.notes)
    if change.note is not None:
        notes.append(AgentNote(at=clock.now(), by=by, text=change.note))
    while len(notes) > MAX_NOTES or sum(len(note.text) for note in notes) > MAX_LOG:
        del notes[0]
    new = KeptMemory(state=state, goals=list(goals.values()), notes=notes)
    size = len(new.model_dump_json().encode())
    if size > MAX_MEMORY:
        raise InvalidInput(f"the memory of {profile.id!r} would have {size:,} bytes; at most {MAX_MEMORY:,}")
    return new
