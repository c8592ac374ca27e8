"""What an agent remembers at a point of a conversation: its private state, its goals, and its notes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.wire import Model


class AgentGoal(Model):
    """What an agent is after. `id` may name an entry of the knowledge base `base`, which says more; a larger `priority`
    matters more."""

    id: str = Field(min_length=1, max_length=200)
    description: str = Field(default="", max_length=4000)
    base: str | None = None
    priority: float = Field(default=0.5, ge=0, le=1)
    status: Literal["active", "done", "dropped"] = "active"


class AgentNote(Model):
    """An entry of an agent's working log; `by` wrote it."""

    at: datetime
    by: str
    text: str


class KeptMemory(Model):
    """What is kept of an agent's memory: `state` fits the profile's `initial_private_state_schema`; `notes` are the
    latest of its working log, oldest first."""

    state: dict[str, JsonValue] = Field(default_factory=dict)
    goals: list[AgentGoal] = Field(default_factory=list)
    notes: list[AgentNote] = Field(default_factory=list)


class AgentMemory(KeptMemory):
    """The memory of an agent at the message `message_id`. `revision` differs whenever the memories of the agents of
    the conversation do; `state_schema` is what the state must fit."""

    profile_id: str
    conversation_id: str
    message_id: str
    revision: int = 0
    state_schema: dict[str, JsonValue] = Field(default_factory=dict)


class GoalChange(Model):
    """A goal to add, or what changes of the one with this id. An empty `base` is none."""

    id: str = Field(min_length=1, max_length=200)
    description: str | None = Field(default=None, max_length=4000)
    base: str | None = Field(default=None, max_length=200)
    priority: float | None = Field(default=None, ge=0, le=1)
    status: Literal["active", "done", "dropped"] | None = None


class MemoryChange(Model):
    """What changes of a memory. `state` is a JSON merge patch (RFC 7396): given keys are replaced, those given as null
    removed, objects merged. `note` is added to the working log."""

    state: dict[str, JsonValue] = Field(default_factory=dict)
    goals: list[GoalChange] = Field(default_factory=list)
    note: str | None = Field(default=None, min_length=1, max_length=4000)
