"""Recordings of runs of agents, and what comes of playing one again."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from tavern_agents.api.histories import HistoryExport
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import ChatImage, ChatMessage, LlmResponse
from tavern_tools.api.toolcalls import ToolResult

DifferenceKind = Literal["prompt", "tools", "message", "time", "call", "order", "result", "reply"]


class RecordedCall(Model):
    """A call that an agent made, and its result; None where it has none that is known. `protocol` is that of the text
    that asked for it."""

    tool_id: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    protocol: str | None = None
    result: ToolResult | None = None


class RecordedDeliberation(Model):
    """A recorded deliberation: the agent's situation, the `calls` that its workflow made itself, and the answer.

    `messages` follow on the first `kept` ones of the deliberation before; the last of them may hold the texts of
    `latest`, which are those of volatile macros such as the time. `prompts` are the values of the workflow's nodes with
    the macros filled in, `tools` and `tools_text` the tools in both forms; each is None where it is as it was in the
    deliberation before.
    """

    kept: int = Field(default=0, ge=0)
    messages: list[ChatMessage] = Field(default_factory=list)
    latest: list[str] = Field(default_factory=list)
    prompts: list[JsonValue] | None = None
    tools: list[JsonValue] | None = None
    tools_text: str | None = None
    calls: list[RecordedCall] = Field(default_factory=list)
    answer: LlmResponse


class AgentRecording(Model):
    """A run of an agent as it can be played again, on any host that has the profile.

    `history` is the conversation up to the message, with what the agent remembered; None where the run began it.
    `limits` and `world_state` are those of the request, where it had any.
    `status` and `text` are how the run ended.
    """

    format: Literal["tavern-agent-recording"] = "tavern-agent-recording"
    version: Literal[1] = 1
    run_id: str
    profile_id: str
    message: str
    images: list[ChatImage] = Field(default_factory=list)
    history: HistoryExport | None = None
    limits: dict[str, JsonValue] | None = None
    world_state: dict[str, JsonValue] = Field(default_factory=dict)
    deliberations: list[RecordedDeliberation]
    calls: list[RecordedCall] = Field(default_factory=list)
    status: str
    text: str = ""


class ReplayOptions(Model):
    """How a recording is played. Without a `model` the recorded answers are played; with one, that model answers, and
    all calls get the recorded results. `profile_id` stands in for the recorded profile.

    `tools` says which calls are really made: those of tools that only read, none, or all. The others get the recorded
    results.
    """

    model: str | None = None
    profile_id: str | None = None
    tools: Literal["read-only", "none", "all"] = "read-only"


class ReplayDifference(Model):
    """The first difference: in which deliberation, from 1, at which place, what was recorded there and what came."""

    deliberation: int
    kind: DifferenceKind
    path: str
    expected: JsonValue = None
    found: JsonValue = None


class AgentReplay(Model):
    """What came of playing a recording: the first difference, None where there is none, and how the run ended."""

    run_id: str
    profile_id: str
    difference: ReplayDifference | None = None
    deliberations: int = 0
    calls: int = 0
    status: str = ""
    text: str = ""
