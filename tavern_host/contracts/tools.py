"""Tools as data, the calls that text asks for, and the `toolManager` service (DESIGN §5)."""

from __future__ import annotations

import enum
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model, OpenModel

ToolKind = Literal["workflow", "node", "service", "script"]


class ToolImplementation(OpenModel):
    """How a tool is carried out; which fields are used depends on `kind`.

    workflow: `workflow_id`; node: `node_type`; service: `service` and `method`; script: `command` or
    `script_path` with `language`. `timeout` is in milliseconds, as published.
    """

    kind: ToolKind
    workflow_id: str | None = None
    node_type: str | None = None
    service: str | None = None
    method: str | None = None
    command: str | None = None
    script_path: str | None = None
    language: str | None = None
    timeout: float | None = None


class ToolDefinition(Model):
    """One tool, from either published form of `*.tool.json` or made from a node or a workflow.

    `parameters` and `output` are JSON Schemas. `source` says where it came from (a file, `node:TYPE`,
    `workflow:ID`), `plugin` who owns it (None for the project's own). `unavailable` is why it cannot be
    called now, e.g. `needs service scriptExecution`.
    """

    id: str
    display_name: str = ""
    description: str = ""
    version: str = "0"
    implementation: ToolImplementation
    parameters: dict[str, JsonValue] = Field(default_factory=lambda: dict[str, JsonValue](type="object", properties={}))
    output: dict[str, JsonValue] | None = None
    config_schema: list[dict[str, JsonValue]] = Field(default_factory=list)
    security_context: dict[str, JsonValue] | None = None
    examples: list[dict[str, JsonValue]] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)
    plugin: str | None = None
    source: str = ""
    unavailable: str | None = None

    @property
    def kind(self) -> ToolKind:
        """How the tool is carried out."""
        return self.implementation.kind


class ToolErrorType(enum.StrEnum):
    """Why a call failed."""

    TOOL_NOT_FOUND = "ToolNotFound"
    PARAMETER_VALIDATION = "ParameterValidationError"
    PERMISSION_DENIED = "PermissionDenied"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    EXECUTION = "ExecutionError"
    OUTPUT = "OutputError"
    TIMEOUT = "TimeoutError"
    VETOED = "Vetoed"
    INTERRUPTED = "Interrupted"


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
    the text itself calls the request. `protocol` is None for a structured call.
    """

    tool_id: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    index: int = 1
    block: int = 0
    request_id: str | None = None
    on_error: Literal["stop", "continue"] = "stop"
    protocol: str | None = None


class ContentPart(Model):
    """A part of a tool's answer."""

    type: Literal["text", "data"]
    text: str | None = None
    data: JsonValue = None


class ToolResult(Model):
    """What a call gave. `structured` is the whole result as JSON; `content` is what an LLM reads; `block` and
    `index` are those of the call."""

    tool_id: str
    index: int = 1
    block: int = 0
    status: Literal["done", "error"]
    content: list[ContentPart] = Field(default_factory=list)
    structured: JsonValue = None
    error: ToolError | None = None
    duration_ms: float = 0.0
    coercions: list[str] = Field(default_factory=list)


class ParsedText(Model):
    """Action text taken apart: the calls, the text around them, and what was repaired or not understood."""

    text: str
    calls: list[ToolCallRequest] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class TextResult(Model):
    """Action text carried out: the parsed text and one result per call that was begun, in order."""

    parsed: ParsedText
    results: list[ToolResult] = Field(default_factory=list)


ACTIONS = "__actions__"
"""Under which key `ToolManager.call_outputs` puts the results of calls."""


class ToolManager(ServiceInterface, name="toolManager"):
    """Registers, finds, describes, validates and calls tools. A failed call is a result, never a raise."""

    @reads
    async def list_tools(self) -> list[ToolDefinition]:
        """Return all tools, by id; one that cannot be called now says why in `unavailable`."""

    @reads
    async def get(self, tool_id: str) -> ToolDefinition:
        """Return one tool. Raises `NotFound` with near names."""

    @reads
    async def describe(self, tool_ids: list[str]) -> str:
        """Return the documentation of these tools for an LLM (`spec/000` §11.2); unknown ids are named."""

    @reads
    async def schemas(self, tool_ids: list[str]) -> list[dict[str, JsonValue]]:
        """Return `{name, description, parameters}` of these tools (`spec/002` §2.3)."""

    @reads
    async def parse_text(self, text: str, *, protocols: list[str] | None = None) -> ParsedText:
        """Return the calls in `text`, by all registered protocols or the given ones. Never raises on bad text."""

    @acts("toolManager:execute", "Call tools.")
    async def call(self, request: ToolCallRequest, *, call: CallContext | None = None) -> ToolResult:
        """Validate and carry out one call."""

    @acts("toolManager:execute", "Call tools.")
    async def call_text(
        self, text: str, *, allowed: list[str] | None = None, call: CallContext | None = None
    ) -> TextResult:
        """Parse `text` and carry out its calls in order; a chain stops at a failed step unless the step
        says `continue`. With `allowed`, a call to any other tool is a `PermissionDenied` result."""

    @acts("toolManager:execute", "Call tools.")
    async def call_outputs(
        self, outputs: dict[str, JsonValue], *, call: CallContext | None = None
    ) -> dict[str, JsonValue]:
        """Carry out what the texts among a run's outputs ask for, and return the outputs without those calls.

        The new output `__actions__` (`ACTIONS`) lists the results in order, each a `ToolResult` as JSON with the key
        of the `output` that asked for it. As many calls are made as the setting `maxActions` allows for one run.
        For a run that was submitted with `actions`; whoever finishes it calls this.
        """


TOOL_MANAGER = ServiceKey(ToolManager)
