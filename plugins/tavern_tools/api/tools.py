"""The `toolManager` service, and what is asked of it. Calls and their results are in `toolcalls.py`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads, reads_content
from tavern_host.contracts.tools import ToolDefinition, ToolKind
from tavern_host.contracts.wire import Model
from tavern_tools.api.protocols import ActionProtocolInfo, ParseEvent
from tavern_tools.api.toolcalls import (
    ParsedText,
    StreamItems,
    TaskFilter,
    TextResult,
    ToolCallRequest,
    ToolFeedback,
    ToolResult,
    ToolScope,
    ToolTask,
)

ACTIONS = "__actions__"
"""Under which key `ToolManager.call_outputs` puts the results of calls."""


class ToolQuery(Model):
    """Which tools; all that is given must hold. `namespace` is what stands before the first `:` or `.` of an id, `text`
    is looked for in id, name and description without regard to case."""

    tag: str | None = None
    namespace: str | None = None
    kind: ToolKind | None = None
    text: str | None = None
    plugin: str | None = None


class ToolFilter(ToolQuery):
    """Which tools are asked for: what a query says, and patterns of their `ids`."""

    ids: list[str] | None = None


class ToolStatistics(Model):
    """How the calls of a tool ended: how many did and how many of them well, why others failed (a text and how
    often, the most frequent first), and arguments of calls that were fine. With more than 200 calls, older ones count
    for less. What is quoted in errors is left out, and so are secrets in examples."""

    calls: int = 0
    done: int = 0
    errors: dict[str, int] = Field(default_factory=dict)
    examples: list[dict[str, JsonValue]] = Field(default_factory=list)

    @property
    def text(self) -> str:
        """The statistics in a line for people and language models."""
        parts = [f"{100 * self.done // max(1, self.calls)} % of {self.calls} calls succeeded"]
        parts += [f"often: {'; '.join(list(self.errors)[:2])}"] if self.errors else []
        parts += [f"e.g. {json.dumps(self.examples[0], ensure_ascii=False)}"] if self.examples else []
        return "; ".join(parts)


class ExpandedPrompt(Model):
    """A value in whose texts the prompt macros were filled in, and what was left as it was. `latest` are the texts of
    volatile macros, which a model is to read last."""

    value: JsonValue
    latest: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class ToolManager(ServiceInterface, name="toolManager", version=5):
    """Registers, finds, describes, validates and calls tools. A failed call is a result, never a raise.

    A tool is named by its id, or as `id@RANGE` (`kb:Query@^1.2`), which picks the newest version within the range.
    """

    @reads
    async def list_tools(self, filter: ToolFilter | None = None) -> list[ToolDefinition]:
        """Return tools, by id; one that cannot be called now says why in `unavailable`."""

    @reads
    async def get(self, tool_id: str) -> ToolDefinition:
        """Return one tool. Raises `NotFound` with near names."""

    @reads
    async def describe(self, tool_ids: list[str]) -> str:
        """Return the documentation of these tools for an LLM; unknown ids are named."""

    @reads_content("toolManager:statistics", "Read how calls of tools ended, with arguments of some.", since=4)
    async def statistics(self, tool_ids: list[str] | None = None) -> dict[str, ToolStatistics]:
        """Return how calls of these tools ended, or of all, by id; those never called are left out."""

    @reads
    async def schemas(self, tool_ids: list[str]) -> list[dict[str, JsonValue]]:
        """Return `{name, description, parameters}` of these tools."""

    @reads
    async def native_schemas(self, tool_ids: list[str]) -> list[dict[str, JsonValue]]:
        """Return these tools as an LLM's native function calling has them: `{type: function, function: {name,
        description, parameters}}`, where `name` is an alias that `native_calls` turns back."""

    @reads
    async def native_calls(self, tool_calls: list[JsonValue], *, tool_ids: list[str]) -> ParsedText:
        """Return the calls that an LLM's answer holds in its field `tool_calls`; `tool_ids` are those that
        `native_schemas` was asked for. Never raises on bad calls: its warnings say what is wrong."""

    @reads
    async def protocols(self) -> list[ActionProtocolInfo]:
        """Return the action protocols, in the order in which text goes through them."""

    @reads
    async def instructions(self, *, protocols: list[str] | None = None) -> str:
        """Return the instructions for an LLM on asking for calls, by these protocols: by default a text protocol."""

    @reads
    async def parse_text(
        self, text: str, *, protocols: list[str] | None = None, tool_ids: list[str] | None = None
    ) -> ParsedText:
        """Return the calls in `text`, by all protocols for text or the given ones. Never raises on bad text. A tool may
        be called by its id, or by the name that `native_schemas` gives it: of the tools `tool_ids`, else of all."""

    @reads
    def parse_stream(
        self, chunks: AsyncIterator[str], *, protocols: list[str] | None = None, tool_ids: list[str] | None = None
    ) -> AsyncIterator[ParseEvent]:
        """Yield what is found in a text while it comes; see `parse_text`. `offset` is the place in the whole text."""

    @reads
    async def feedback(
        self, calls: list[ToolCallRequest], results: list[ToolResult], *, limit: int = 16_000
    ) -> list[ToolFeedback]:
        """Return the feedback on these calls for a language model, also on those that were not made since
        an earlier step had failed; each at most about `limit` characters long."""

    @reads(since=2)
    async def masked(self, calls: list[ToolCallRequest]) -> list[dict[str, JsonValue]]:
        """Return the arguments of each call as people and logs see them: secrets are replaced by `MASK`."""

    @acts("toolManager:expand", "Have prompt macros filled in.", level="add")
    async def expand(
        self, value: JsonValue, *, tool_ids: list[str] | None = None, call: CallContext | None = None
    ) -> ExpandedPrompt:
        """Fill in the macros `{{{…}}}` in all texts of a value; `tool_ids` are the tools that the
        prompt's reader may call. Raises `Misconfigured` where they grow without measure."""

    @acts("toolManager:execute", "Call tools.")
    async def call(
        self, request: ToolCallRequest, *, scope: ToolScope | None = None, call: CallContext | None = None
    ) -> ToolResult:
        """Validate, authorise and carry out one call."""

    @acts("toolManager:execute", "Call tools.", since=3)
    async def callable_tools(self, *, call: CallContext | None = None) -> list[ToolDefinition]:
        """Return the tools that may be called with this context now, by id: by the caller's rights, and by the scope
        of the call of a tool that it is made in. Which arguments may be given, each call finds out."""

    @acts("toolManager:execute", "Call tools.")
    async def call_all(
        self, requests: list[ToolCallRequest], *, scope: ToolScope | None = None, call: CallContext | None = None
    ) -> list[ToolResult]:
        """Carry out calls in order, one result for each that was begun; a chain stops at a failed step unless the step
        says `continue`."""

    @acts("toolManager:execute", "Call tools.")
    async def call_text(
        self,
        text: str,
        *,
        protocols: list[str] | None = None,
        scope: ToolScope | None = None,
        call: CallContext | None = None,
    ) -> TextResult:
        """Parse `text` and carry out its calls, as `parse_text` and `call_all` do."""

    @acts("toolManager:execute", "Call tools.")
    async def call_outputs(
        self,
        outputs: dict[str, JsonValue],
        *,
        protocols: list[str] | None = None,
        call: CallContext | None = None,
    ) -> dict[str, JsonValue]:
        """Carry out what the texts among a run's outputs ask for, and return the outputs without those calls.

        The new output `__actions__` (`ACTIONS`) lists the results in order, each a `ToolResult` as JSON with the key
        of the `output` that asked for it. As many calls are made as the setting `maxActions` allows for one run.
        For a run that was submitted with `actions`; the engine that finishes it calls this.
        """

    @acts("toolManager:execute", "Call tools.")
    async def read_stream(
        self, handle: str, *, max: int = 100, wait: float = 10.0, call: CallContext | None = None
    ) -> StreamItems:
        """Return the next items of a stream that a call of the same principal gave, at most `max`; waits up to `wait`
        seconds for the first one. Raises `NotFound`."""

    @acts("toolManager:execute", "Call tools.", since=5)
    async def leave_stream(self, handle: str, *, call: CallContext | None = None) -> None:
        """Close a stream that a call of the same principal gave, and end what it comes from; nothing where it is read
        to its end or closed already."""

    @acts("toolManager:tasks", "See tasks with their results, and cancel them.")
    async def tasks(self, filter: TaskFilter | None = None, *, call: CallContext | None = None) -> list[ToolTask]:
        """Return tasks: a user's or the host's see all, others their own."""

    @acts("toolManager:tasks", "See tasks with their results, and cancel them.")
    async def task(self, task_id: str, *, wait: float = 0.0, call: CallContext | None = None) -> ToolTask:
        """Return a task as it stands, or as soon as it has ended within `wait` seconds. Raises `NotFound`."""

    @acts("toolManager:tasks", "See tasks with their results, and cancel them.")
    async def cancel_task(self, task_id: str, *, call: CallContext | None = None) -> ToolTask:
        """Cancel a task and return how it stands then; one that has ended stays as it is. Raises `NotFound`."""

    @acts("toolManager:approve", "Approve or refuse calls that wait for a person.")
    async def decide(
        self,
        task_id: str,
        decision: Literal["approve", "refuse"],
        *,
        arguments: dict[str, JsonValue] | None = None,
        comment: str = "",
        call: CallContext | None = None,
    ) -> ToolTask:
        """Approve a call, with other `arguments` if they are given, or refuse it; an approved one is carried out.

        Raises `NotFound`, `Conflict` where it was decided already, `InvalidInput` for arguments that the tool does not
        allow, `PermissionDenied` for a principal that may not decide.
        """


TOOL_MANAGER = ServiceKey(ToolManager)
