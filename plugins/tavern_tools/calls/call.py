"""A call of a tool on its way, and what is decided about it and comes of it, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.api.toolcalls import ContentPart, ToolCallRequest, ToolScope
from tavern_tools.catalog.catalog import Tool
from tavern_tools.tasks.progress import Progress


class Verdict(NamedTuple):
    """Whether a call may be made, and for `deny` and `approve` the reason. A call to `approve` waits `expires_in`
    seconds; then the `default` is what was decided."""

    kind: Literal["allow", "deny", "approve"]
    reason: str = ""
    expires_in: float = 0.0
    default: Literal["approve", "refuse"] = "refuse"


ALLOW = Verdict("allow")


class Output(NamedTuple):
    """What a tool returned: the whole as JSON, and the parts that an LLM reads, where they are more than that."""

    structured: JsonValue
    parts: tuple[ContentPart, ...] = ()
    warnings: tuple[str, ...] = ()


UNKNOWN = Tool(ToolDefinition(id="unknown", implementation=ToolImplementation(kind="service")))
"""Stands for the tool of a call for which none is found."""


@dataclass(eq=False, slots=True)
class Call:
    """A call on its way. Its stages find the tool, and put the arguments as the tool gets them into the request; see
    `Caller.make`.

    `began` is a reading of `time.perf_counter`, `milliseconds` how long the call has taken at the end of its last
    stage; `progress` is what a call of a task reports to, and is None for any other. It may be made only within its
    `scope` and within the `inventory` of the agent that it is made for. `stopped` says by whom it was stopped.
    """

    id: str
    request: ToolCallRequest
    context: CallContext
    scope: ToolScope | None
    began: float
    progress: Progress | None = None
    inventory: ToolScope | None = None
    tool: Tool = UNKNOWN
    coercions: Sequence[str] = ()
    milliseconds: float = 0.0
    stopped: str | None = None
