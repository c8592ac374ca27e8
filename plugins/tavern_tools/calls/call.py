"""A call of a tool as data: one frozen value that each step takes and hands on, with what it found out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.toolcalls import ContentPart, ToolCallRequest, ToolResult, ToolScope
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


@dataclass(frozen=True, eq=False)
class Call:
    """A call on its way. What stands below `tool` is filled in by the steps; see `Caller`.

    `began` is a reading of `time.perf_counter`; `progress` is what a call of a task reports to, and is None for
    any other; `cache_key` is there where the result may be cached; `outcome` is what the audit log says of how it
    ended, where that is not the result's status.
    """

    id: str
    request: ToolCallRequest
    context: CallContext
    scope: ToolScope | None
    began: float
    progress: Progress | None = None
    found: Tool | None = None
    coercions: tuple[str, ...] = ()
    verdict: Verdict | None = None
    cache_key: bytes | None = None
    output: Output | None = None
    result: ToolResult | None = None
    outcome: str | None = None

    def having(self, **found: Any) -> Call:
        """Return the call with what a step found out, by field; `dataclasses.replace` would take five times as long."""
        call = object.__new__(Call)
        object.__setattr__(call, "__dict__", self.__dict__ | found)
        return call

    @property
    def tool(self) -> Tool:
        """The tool. For the steps after the first, which found it."""
        assert self.found is not None
        return self.found

    @property
    def milliseconds(self) -> float:
        """How long the call has taken until now."""
        return round((time.perf_counter() - self.began) * 1000, 3)
