"""Calls of tools: what is asked for, what it gave, and what becomes of the calls that take long."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.wire import Model


class ToolErrorType(enum.StrEnum):
    """Why a call failed."""

    TOOL_NOT_FOUND = "ToolNotFound"
    PARAMETER_VALIDATION = "ParameterValidationError"
    PERMISSION_DENIED = "PermissionDenied"
    APPROVAL_REFUSED = "ApprovalRefused"
    RATE_LIMITED = "RateLimited"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    EXECUTION = "ExecutionError"
    SCRIPT = "ScriptError"
    DEPENDENCY = "DependencyError"
    SECURITY = "SecurityError"
    RESOURCE = "ResourceError"
    OUTPUT = "OutputError"
    TIMEOUT = "TimeoutError"
    VETOED = "Vetoed"
    INTERRUPTED = "Interrupted"
    CANCELLED = "Cancelled"
    NOT_UNDERSTOOD = "NotUnderstood"
    """The text that asks for the call leaves open what is meant."""
    UNKNOWN_OUTCOME = "UnknownOutcome"
    """The call had begun when the host ended, and nobody knows what it did."""


class ToolError(Model):
    """A failed call as data; `index` is the step of the chain that failed, from 1."""

    type: ToolErrorType
    message: str
    tool_id: str
    index: int = 1
    details: dict[str, JsonValue] = Field(default_factory=dict)


class ToolCallRequest(Model):
    """A call that is asked for. Arguments from a text protocol are strings until they are coerced.

    `index` is the step within its chain, from 1; `block` counts the blocks of a text: a chain is the calls
    of one block, and in a protocol without chains each call has a block of its own. `request_id` is what
    the text itself calls the request. `retry` is how often the call is retried if it fails. `variables` are
    the block's own names for `@{name}` in arguments. `protocol` is None for a structured call. `repairs` is what was
    repaired in the text, where its meaning is certain; the result says so too. A `refused` call is one whose text
    leaves open what is meant: it is never made, and its result is an error with this text.
    """

    tool_id: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    index: int = 1
    block: int = 0
    request_id: str | None = None
    on_error: Literal["stop", "continue"] = "stop"
    retry: int = Field(default=0, ge=0, le=10)
    variables: dict[str, JsonValue] = Field(default_factory=dict)
    protocol: str | None = None
    repairs: list[str] = Field(default_factory=list)
    refused: str | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What its result says of it."""
        return {"tool_id": self.tool_id, "index": self.index, "block": self.block, "request_id": self.request_id}


def take_call(calls: list[ToolCallRequest], call: ToolCallRequest) -> None:
    """Add a call that was found in a text. One that is refused after all takes the place of what it was before."""
    for place, before in enumerate(calls if call.refused is not None else ()):
        if (before.protocol, before.block, before.index) == (call.protocol, call.block, call.index):
            calls[place] = call
            return
    calls.append(call)


class ContentPart(Model):
    """A part of a tool's answer.

    `text`: `text`. `data`: any JSON in `data`. `image` and `file`: a file of the project's files folder by its
    path there (`uri`), with `mime_type`, `size` in bytes and `name` where they are known. `stream`: `uri` is a
    handle that `ToolManager.read_stream` reads.
    """

    type: Literal["text", "data", "image", "file", "stream"]
    text: str | None = None
    data: JsonValue = None
    uri: str | None = None
    name: str | None = None
    mime_type: str | None = None
    size: int | None = None


class ToolOutput(Model):
    """What a service's method returns for a tool that it carries out under a name of its own (`values` of
    `ToolImplementation`): the whole as JSON, and what a language model reads, where that is more."""

    structured: JsonValue = None
    content: list[ContentPart] = Field(default_factory=list)


class ToolResult(Model):
    """What a call gave. `structured` is the whole result as JSON; `content` is what an LLM reads; `block`, `index`
    and `request_id` are those of the call.

    `pending`: it continues as the task `task_id`. `awaiting_approval`: the task waits until a person decides. `cached`:
    the result is that of an earlier call with these arguments. `attempts` counts the tries. `warnings` are about
    references in the arguments and the like.
    """

    tool_id: str
    index: int = 1
    block: int = 0
    request_id: str | None = None
    status: Literal["done", "error", "pending", "awaiting_approval"]
    content: list[ContentPart] = Field(default_factory=list)
    structured: JsonValue = None
    error: ToolError | None = None
    task_id: str | None = None
    duration_ms: float = 0.0
    coercions: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    cached: bool = False
    attempts: int = 1


class ParsedText(Model):
    """Action text taken apart: the calls in the order of the text, the text around them, and what was repaired or
    not understood."""

    text: str
    calls: list[ToolCallRequest] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class TextResult(Model):
    """Action text carried out: the parsed text and one result per call that was begun, in order."""

    parsed: ParsedText
    results: list[ToolResult] = Field(default_factory=list)


class ToolRule(Model):
    """Names calls: of the tools whose id fits the pattern `tool` (`*` and `?`), with arguments that the JSON Schema
    `arguments` allows, where there is one. In JSON a text alone is a pattern."""

    tool: str
    arguments: dict[str, JsonValue] | None = None


class ToolScope(Model):
    """What a caller says of its calls, beyond what the operator's rules say.

    `allowed` are patterns of tool ids; None means no limit. Calls that one of the `approval` rules names wait for a
    person. With `streams` the caller reads streams by their handles; else it gets what they gave in the end.
    `callback` is an HTTP address that is notified when a task has ended, on a host that the operator lists.
    """

    allowed: list[str] | None = None
    approval: list[ToolRule] = Field(default_factory=list)
    streams: bool = False
    callback: str | None = None


class ToolFeedback(Model):
    """The feedback on a call for a language model: one sentence, and the same in the frame of its protocol."""

    tool_id: str
    text: str
    framed: str


class StreamItems(Model):
    """Items of a stream, in order. `missed` ones were dropped before they were read; `finished`: no more will come;
    `error` is why the stream broke off."""

    items: list[JsonValue] = Field(default_factory=list)
    missed: int = 0
    finished: bool = False
    error: str | None = None


class TaskStatus(enum.StrEnum):
    """How a task stands."""

    AWAITING_APPROVAL = "awaiting_approval"
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The host was stopped while it ran."""
    UNKNOWN = "unknown"
    """The host died while it ran: it may have done what it does, or not."""

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (TaskStatus.AWAITING_APPROVAL, TaskStatus.PENDING, TaskStatus.RUNNING)


QuestionKind = Literal["text", "choice", "form", "file"]


class ToolQuestion(Model):
    """What a call asks a person: the `message` as it was asked, and the JSON Schema that the answer has to fit. A
    `file` is answered by the path of one of the project's files."""

    kind: QuestionKind
    message: str
    expects: dict[str, JsonValue]


class ToolApproval(Model):
    """A decision that a call waits for, or waited for.

    `reason` says which rule asks for it. After `expires_at` the `default` is what was decided. `edited`: the person who
    approved changed the arguments. `decided_via` is the third-party plugin that passed the decision on. With a
    `question`, who approves the call answers that, by its argument `answer`.
    """

    reason: str
    requested_at: datetime
    expires_at: datetime
    default: Literal["approve", "refuse"] = "refuse"
    decision: Literal["approved", "refused"] | None = None
    decided_by: Principal | None = None
    decided_via: str | None = None
    decided_at: datetime | None = None
    comment: str = ""
    edited: bool = False
    question: ToolQuestion | None = None


class TaskCallback(Model):
    """Where the end of a task is reported to, without the query of the address, and how that went.

    `waiting`: it was not told yet, or is to be tried again; `error` is why the latest attempt failed.
    """

    url: str
    status: Literal["waiting", "delivered", "failed"] = "waiting"
    attempts: int = 0
    delivered_at: datetime | None = None
    error: str | None = None


class ToolTask(Model):
    """A call that outlives the request for it. `arguments` are shown with secrets masked.

    `progress` goes from 0 to 1 where it is known, `progress_text` is the latest line about it. It is kept until
    `expires_at` once it has ended. `attempt` counts how often it was begun.
    """

    id: str
    tool_id: str
    status: TaskStatus
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    principal: Principal
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    progress: float | None = None
    progress_text: str | None = None
    result: ToolResult | None = None
    approval: ToolApproval | None = None
    attempt: int = 0
    run_id: str | None = None
    agent_run_id: str | None = None
    trace_id: str | None = None
    callback: TaskCallback | None = None


class TaskFilter(Model):
    """Which tasks are asked for; newest first, `limit` of them after `offset` others."""

    statuses: list[TaskStatus] = Field(default_factory=list)
    tool: str | None = None
    principal: str | None = None
    limit: int = Field(default=50, ge=1, le=1000)
    offset: int = Field(default=0, ge=0)


Report = Callable[[float | None, str | None], None]
"""Takes how far a call is, from 0 to 1, and a line about it; None leaves what was said before. It never waits."""

_report: ContextVar[Report | None] = ContextVar("to whom calls of tools report", default=None)


@contextlib.contextmanager
def reporting_to(report: Report | None) -> Iterator[None]:
    """Have the calls that are made in this block, in this process, report to `report`; None changes nothing."""
    if report is None:
        yield
        return
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def current_report() -> Report | None:
    """Return to whom the call of a tool reports that this code is run for, if to anybody."""
    return _report.get()


TakePiece = Callable[[JsonValue], None]
"""Takes a piece of what a streaming tool gives. It never waits."""

_take_piece: ContextVar[TakePiece | None] = ContextVar("who takes the pieces of what tools give", default=None)


@contextlib.contextmanager
def passing_pieces_to(take: TakePiece) -> Iterator[None]:
    """Have the streaming tools that are called in this block, in this process, pass on what they give piece by piece;
    their results have all of it too."""
    token = _take_piece.set(take)
    try:
        yield
    finally:
        _take_piece.reset(token)


def current_taker() -> TakePiece | None:
    """Return who takes the pieces of the tool that this code is run for, if anybody does."""
    return _take_piece.get()
