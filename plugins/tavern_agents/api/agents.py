"""Agents: profiles, the trace of what one does, and the `agentRuntime` service."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from tavern_agents.api.memory import AgentMemory, GoalChange, MemoryChange
from tavern_agents.api.recordings import AgentRecording, AgentReplay, ReplayOptions
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads, reads_content
from tavern_host.contracts.wire import Model, OpenModel
from tavern_llm.api.llm import ChatImage, ChatMessage
from tavern_tools.api.toolcalls import ToolResult
from tavern_workflows.api.workflows import workflow_id_of


class AgentLimits(Model):
    """How much one run of an agent may use; None is no limit. `seconds` are wall time, without the time in which the
    run waits for a person; `tokens` and `cost` (in the currency of the models' prices) count prompts and answers;
    `repeats` is how often the same call may follow on itself."""

    steps: int = Field(default=25, ge=1, le=1000)
    seconds: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, ge=1)
    cost: float | None = Field(default=None, gt=0)
    calls: int | None = Field(default=None, ge=0)
    repeats: int = Field(default=3, ge=1, le=100)


Filled = Annotated[str, Field(pattern=r"\S")]
"""A text that is not blank."""


class KnowledgeReference(OpenModel):
    """A knowledge base that an agent reads, by the base's id; the agent may call it by the `alias`. With `write_caiu`
    among the permissions it writes there, with `write_suggestions` it adds what a person has to enable."""

    model_config = ConfigDict(alias_generator=None)

    source_id: str
    alias: str | None = None
    access_permissions: list[str] = Field(default_factory=lambda: ["read"])


class GoalReference(OpenModel):
    """A goal that an agent has at first: the entry of a knowledge base that describes it."""

    model_config = ConfigDict(alias_generator=None)

    caiu_id: str = Field(min_length=1, max_length=200)
    kb_alias_or_id: str | None = None
    activation_priority: float = Field(default=0.5, ge=0, le=1)


class AgentProfile(OpenModel):
    """An `agent_profile.json`; its keys are `snake_case`, as published."""

    model_config = ConfigDict(alias_generator=None)

    id: str = Field(
        pattern=r"^[^\s/@*?]{1,200}$",
        description="The agent's id, by which it is run, and called as the tool agent:ID.",
    )
    name: Filled = Field(description="Its name, for people and in its prompts.")
    version: Filled = Field(description="The version of this profile, such as 1.0.0.")
    schema_version: Filled = Field(description="The version of the format: 1.0.")
    core_deliberation_workflow_id: Filled = Field(
        description="The workflow that it thinks with: its id, or the path of its file in the project."
    )
    description: str = Field(default="", description="What it does; other agents read it.")
    observation_workflow_id: str | None = Field(
        default=None,
        description="The workflow that shortens long results: its input observation to its output summary or text; not "
        "in the platform's own format.",
    )
    tool_ids_inventory: list[str] = Field(
        default_factory=list,
        description="The whole of what it may call: ids of tools, and patterns of them with * and ?.",
    )
    skill_workflow_ids_inventory: list[str] = Field(
        default_factory=list, description="Workflows that it may call, each as the tool workflow:ID."
    )
    initial_private_state_schema: dict[str, JsonValue] = Field(
        default_factory=dict, description="The JSON Schema of its private state."
    )
    initial_private_state_values: dict[str, JsonValue] = Field(
        default_factory=dict, description="Its private state at the beginning of a conversation."
    )
    initial_goals_reference: list[GoalReference] = Field(
        default_factory=list, description="What it is after at the beginning of a conversation."
    )
    knowledge_base_references: list[KnowledgeReference] = Field(default_factory=list)
    subscribed_event_types: list[str] = Field(
        default_factory=list,
        description="The events that wake it in a scene: types and patterns of them.",
    )
    limits: AgentLimits = Field(
        default_factory=AgentLimits, description="How much one run may use; not in the platform's own format."
    )
    custom_metadata: dict[str, JsonValue] = Field(default_factory=dict, description="Anything.")

    @property
    def inventory(self) -> list[str]:
        """The ids, and patterns of ids, of the tools that the agent may call."""
        skills = [f"workflow:{workflow_id_of(name)}" for name in self.skill_workflow_ids_inventory]
        return list(dict.fromkeys([*self.tool_ids_inventory, *skills]))


class AgentRequest(Model):
    """A message to an agent. `conversation_id` is the conversation that it continues, a new one by default, in the
    branch `branch`, by default the active one; `history` is what was said before in a new one. `limits` replace those
    of the profile.

    `parent_id` is a message of the conversation behind which this one is kept, by default the branch's head. With an
    empty `message` the agent answers again: what it answered in the turn of `parent_id`, with all calls, stays beside
    the new answer (a swipe). A branch that moves away from its head needs `head`, the one that the caller knows.

    `images` are pictures that belong to the message: Blobs of PNG, JPEG, WebP or GIF, or addresses that the model's
    server fetches itself.

    `world_state` is what the agent perceives besides: the input `world_state` of its deliberation workflow.
    """

    profile_id: str
    message: str
    images: list[ChatImage] = Field(default_factory=list, max_length=16)
    conversation_id: str | None = Field(default=None, min_length=1, max_length=200)
    branch: str | None = Field(default=None, min_length=1, max_length=200)
    parent_id: str | None = None
    head: str | None = None
    history: list[ChatMessage] = Field(default_factory=list)
    limits: AgentLimits | None = None
    world_state: dict[str, JsonValue] = Field(default_factory=dict)


class AgentStatus(enum.StrEnum):
    """How a run of an agent stands."""

    RUNNING = "running"
    WAITING = "waiting"
    """Calls wait for a person's decision."""
    PAUSED = "paused"
    REPLY = "reply"
    LIMIT = "limit"
    ERROR = "error"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen, unless the run is resumed."""
        return self not in (AgentStatus.RUNNING, AgentStatus.WAITING, AgentStatus.PAUSED)


class AgentUsage(Model):
    """What a run used so far. `cost` is None where a model without a price was asked."""

    steps: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    cost: float | None = 0.0


class AgentRun(Model):
    """A run of an agent: its work on one message.

    `branch` is that of the conversation on which it works. `text` is the reply, or what it said last. `approvals` are
    the tasks that wait for a person, those of sub-agents among them; `asked_by` names the agents through which each of
    them is asked, the run's own first. `parent_run_id` is the run whose agent called this
    one as a tool. `reason` says why it ended without a reply.
    """

    id: str
    profile_id: str
    conversation_id: str
    branch: str = "main"
    status: AgentStatus
    text: str = ""
    usage: AgentUsage = Field(default_factory=AgentUsage)
    approvals: list[str] = Field(default_factory=list)
    asked_by: dict[str, list[str]] = Field(default_factory=dict)
    started_at: datetime
    finished_at: datetime | None = None
    parent_run_id: str | None = None
    trace_id: str | None = None
    reason: str | None = None


class AgentRunFilter(Model):
    """Which runs are asked for; newest first, `limit` of them after `offset` others."""

    profile_id: str | None = None
    conversation_id: str | None = None
    statuses: list[AgentStatus] = Field(default_factory=list)
    limit: int = Field(default=50, ge=1, le=1000)
    offset: int = Field(default=0, ge=0)


TraceKind = Literal[
    "started",
    "thinking",
    "fragment",
    "thought",
    "tool_call",
    "tool_running",
    "tool_output",
    "observation",
    "awaiting_approval",
    "compacted",
    "warning",
    "paused",
    "resumed",
    "reply",
    "limit",
    "error",
    "interrupted",
]


class AgentTrace(Model):
    """One step of an agent's work, published as `AGENT_TRACE` while it happens and kept, but for fragments.

    `text` is what a person reads; `data` the same for a program, with the ids of what belongs to it: `runId` of the
    deliberation, `taskId` and `toolId` of a call, `responseId` of the model's answer, `traceId`. `seq` counts the
    kept steps of a run from 1; `at` are seconds since the run began.
    """

    agent_run_id: str
    profile_id: str
    conversation_id: str = ""
    step: int
    seq: int = 0
    at: float = 0.0
    kind: TraceKind
    text: str
    data: dict[str, JsonValue] = Field(default_factory=dict)


class AgentReply(Model):
    """How an agent's work ended. `history` is what the run added to the
    conversation, the message that it worked on first."""

    agent_run_id: str
    profile_id: str
    conversation_id: str = ""
    outcome: Literal["reply", "limit", "error", "interrupted"]
    text: str = ""
    steps: int = 0
    tool_results: list[ToolResult] = Field(default_factory=list)
    history: list[ChatMessage] = Field(default_factory=list)
    usage: AgentUsage = Field(default_factory=AgentUsage)
    error: str | None = None


class ResultPart(Model):
    """A part of the text of a result: `total` characters in all, from `offset` on. `next` is where the next part
    begins, None behind the last one."""

    text: str
    offset: int
    total: int
    next: int | None = None


class AgentSummary(Model):
    """What a list of agents shows; `plugin` brought it, where it is not the project's own."""

    id: str
    name: str
    description: str = ""
    tools: list[str] = Field(default_factory=list)
    plugin: str = ""


class AgentProblem(Model):
    """What is wrong with a profile: `error` keeps the agent from working, `warning` does not."""

    file: str
    profile_id: str | None = None
    level: Literal["error", "warning"]
    path: str = "$"
    line: int | None = None
    message: str


_READ = "Read what agents hear, say, do and remember."


class AgentRuntime(ServiceInterface, name="agentRuntime", version=4):
    """Runs agents: deliberate, act, observe, until a reply without calls or a limit."""

    @reads
    async def list_agents(self) -> list[AgentSummary]:
        """Return the project's agents, by id, then those of plugins."""

    @reads
    async def get(self, profile_id: str) -> AgentProfile:
        """Return a profile. Raises `NotFound` with near names."""

    @reads(since=2)
    async def check(self, profile_id: str | None = None) -> list[AgentProblem]:
        """Return the problems of the project's profiles, or of one: files, fields, tools, workflows."""

    @acts("agentRuntime:run", "Give agents messages to work on.")
    async def run(self, request: AgentRequest, *, call: CallContext | None = None) -> AgentReply:
        """Give an agent a message and return when it is done; cancelling stops it and its runs."""

    @acts("agentRuntime:run", "Give agents messages to work on.", since=2)
    async def ask(self, profile_id: str, message: str, *, call: CallContext | None = None) -> str:
        """Return an agent's reply to a message, in a conversation of its own: how agents call each other as tools.

        Raises `PluginFailure` where it ends without a reply, `LimitReached` where agents call agents too deeply.
        """

    @acts("agentRuntime:run", "Give agents messages to work on.", since=2)
    async def start(self, request: AgentRequest, *, call: CallContext | None = None) -> AgentRun:
        """Give an agent a message and return at once; the work is kept, and resumed where the host ends in the middle
        of it."""

    @reads_content("agentRuntime:read", _READ, since=2)
    async def runs(self, filter: AgentRunFilter | None = None) -> list[AgentRun]:
        """Return runs, newest first."""

    @reads_content("agentRuntime:read", _READ, since=2)
    async def get_run(self, run_id: str) -> AgentRun:
        """Return a run as it stands. Raises `NotFound`."""

    @reads_content("agentRuntime:read", _READ, since=2)
    async def wait(self, run_id: str) -> AgentReply:
        """Return how a run ended, when it has. Raises `NotFound`."""

    @reads_content("agentRuntime:read", _READ, since=2)
    async def trace(self, run_id: str, *, after: int = 0) -> list[AgentTrace]:
        """Return the kept steps of a run whose `seq` is above `after`, oldest first. Raises `NotFound`."""

    @acts("agentRuntime:run", "Give agents messages to work on.", since=2)
    async def send(self, run_id: str, message: str, *, call: CallContext | None = None) -> AgentRun:
        """Say something to an agent at work; it hears it before its next deliberation. Raises `NotFound`, `Conflict`
        for a run that has ended."""

    @acts("agentRuntime:run", "Give agents messages to work on.", since=2)
    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> AgentRun:
        """Stop a run, in the middle of what it does if need be. Raises `NotFound`."""

    @acts("agentRuntime:run", "Give agents messages to work on.", since=2)
    async def pause(self, run_id: str, *, call: CallContext | None = None) -> AgentRun:
        """Let a run stop before its next deliberation. Raises `NotFound`, `Conflict` for one that has ended."""

    @acts("agentRuntime:run", "Give agents messages to work on.", since=2)
    async def resume(self, run_id: str, *, call: CallContext | None = None) -> AgentRun:
        """Let a run resume that was paused, interrupted, or ended with an error or at a limit. Raises `NotFound`,
        `Conflict` for one that replied."""

    @reads_content("agentRuntime:read", _READ, since=3)
    async def memory(
        self, profile_id: str, conversation_id: str, *, branch: str | None = None, leaf: str | None = None
    ) -> AgentMemory:
        """Return the memory of an agent at the head of a branch, by default the active one, or at the message `leaf`.
        Raises `NotFound`, `Misconfigured`."""

    @acts("agentRuntime:run", "Give agents messages to work on.", since=3)
    async def change_memory(
        self,
        profile_id: str,
        conversation_id: str,
        change: MemoryChange,
        *,
        branch: str | None = None,
        revision: int | None = None,
        call: CallContext | None = None,
    ) -> AgentMemory:
        """Change what an agent remembers at the head of a branch, in one transaction. Raises `Conflict` where
        `revision` is given and is another by now, `NotFound`, `InvalidInput` for a state that does not fit the
        profile's schema."""

    @acts(
        "agentRuntime:recall", "Read what the agent remembers for which the plugin makes a call.", level="add", since=3
    )
    async def recall(self, *, call: CallContext | None = None) -> AgentMemory:
        """Return the memory of the agent that makes the call. Raises `InvalidInput` where the caller is no agent."""

    @acts(
        "agentRuntime:recall", "Read what the agent remembers for which the plugin makes a call.", level="add", since=3
    )
    async def read_result(
        self,
        handle: str,
        *,
        offset: int = 0,
        length: int = 8000,
        find: str | None = None,
        call: CallContext | None = None,
    ) -> ResultPart:
        """Return a part of a result that was too long to be shown whole, for the agent in whose conversation it is.

        With `find` the part begins where that text next stands. Raises `NotFound`, `InvalidInput`, also where no agent
        makes the call.
        """

    @acts("agentRuntime:run", "Give agents messages to work on.", since=3)
    async def remember(
        self,
        *,
        state: dict[str, JsonValue] | None = None,
        goals: list[GoalChange] | None = None,
        note: str | None = None,
        call: CallContext | None = None,
    ) -> AgentMemory:
        """Change what the agent remembers that makes the call; see `MemoryChange`. Raises `InvalidInput`."""

    @reads_content("agentRuntime:read", _READ, since=4)
    async def recording(self, run_id: str) -> AgentRecording:
        """Return a run that has ended as it can be played again. Raises `NotFound`, also for a run that was not
        recorded, `Conflict` for one that has not ended, `Misconfigured`."""

    @acts("agentRuntime:run", "Give agents messages to work on.", since=4)
    async def replay(
        self, recording: AgentRecording, options: ReplayOptions | None = None, *, call: CallContext | None = None
    ) -> AgentReplay:
        """Play a recording until its end or the first difference, in a conversation that is forgotten afterwards.
        Raises what keeps the run from beginning: `NotFound`, `Misconfigured`, `InvalidInput`."""


AGENT_RUNTIME = ServiceKey(AgentRuntime)
