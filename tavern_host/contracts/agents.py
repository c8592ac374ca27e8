"""Agents: profiles, the trace of what one does, and the `agentRuntime` service."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.toolcalls import ToolResult
from tavern_host.contracts.wire import Model, OpenModel


class AgentProfile(OpenModel):
    """An `agent_profile.json`; its keys are `snake_case`, as published.

    `core_deliberation_workflow_id` is a workflow's id or the path of its file in the project.
    `tool_ids_inventory` is the whole of what the agent may call.
    """

    model_config = ConfigDict(alias_generator=None)

    id: str
    name: str
    version: str
    schema_version: str
    core_deliberation_workflow_id: str
    description: str = ""
    tool_ids_inventory: list[str] = Field(default_factory=list)
    skill_workflow_ids_inventory: list[str] = Field(default_factory=list)
    initial_private_state_values: dict[str, JsonValue] = Field(default_factory=dict)
    custom_metadata: dict[str, JsonValue] = Field(default_factory=dict)


class AgentRequest(Model):
    """A message to an agent, with what was said before. `max_steps` bounds the deliberations."""

    profile_id: str
    message: str
    history: list[ChatMessage] = Field(default_factory=list)
    max_steps: int = Field(default=8, ge=1, le=100)


class AgentTrace(Model):
    """One step of an agent's work, published as `AGENT_TRACE` while it happens.

    `text` is what a person reads; `data` the same for a program.
    """

    agent_run_id: str
    profile_id: str
    step: int
    kind: Literal["started", "deliberating", "thought", "tool_call", "observation", "reply", "stopped", "error"]
    text: str
    data: dict[str, JsonValue] = Field(default_factory=dict)


class AgentReply(Model):
    """How an agent's work ended: `reply` with a text, `limit` after `max_steps`, or `error`."""

    agent_run_id: str
    profile_id: str
    outcome: Literal["reply", "limit", "error"]
    text: str = ""
    steps: int = 0
    tool_results: list[ToolResult] = Field(default_factory=list)
    history: list[ChatMessage] = Field(default_factory=list)
    error: str | None = None


class AgentSummary(Model):
    """What a list of agents shows."""

    id: str
    name: str
    description: str = ""
    tools: list[str] = Field(default_factory=list)


class AgentRuntime(ServiceInterface, name="agentRuntime"):
    """Runs agents: deliberate, act, observe, until a reply without calls or a limit."""

    @reads
    async def list_agents(self) -> list[AgentSummary]:
        """Return the project's agents, by id."""

    @reads
    async def get(self, profile_id: str) -> AgentProfile:
        """Return a profile. Raises `NotFound` with near names."""

    @acts("agentRuntime:run", "Give agents messages to work on.")
    async def run(self, request: AgentRequest, *, call: CallContext | None = None) -> AgentReply:
        """Give an agent a message and return when it is done; cancelling stops it and its runs."""


AGENT_RUNTIME = ServiceKey(AgentRuntime)
