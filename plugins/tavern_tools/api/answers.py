"""What routes for tools take and answer with, beside the models of the service."""

from __future__ import annotations

from pydantic import Field

from tavern_host.contracts.host_api import PageQuery
from tavern_host.contracts.wire import Model
from tavern_tools.api.toolcalls import ParsedText, ToolResult, ToolTask


class TaskQuery(PageQuery):
    """Which tasks: `status` is one or several with commas between them."""

    status: str | None = None
    tool: str | None = None
    principal: str | None = None


class WaitQuery(Model):
    """How many seconds the answer may wait for the end of the task."""

    wait: float = Field(default=0, ge=0, le=300)


class TaskPage(Model):
    """A page of tasks; the last has fewer than its limit."""

    tasks: list[ToolTask]
    limit: int
    offset: int


class ApprovalPage(Model):
    """A page of calls that wait for a decision."""

    approvals: list[ToolTask]
    limit: int
    offset: int


class ToolResults(Model):
    """What came of calls; of action text, the parsed text too."""

    results: list[ToolResult]
    parsed: ParsedText | None = None
