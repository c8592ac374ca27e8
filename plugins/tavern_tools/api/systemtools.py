"""The service behind the tools `system:*`: the time, which tools there are, running tasks, and streams."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.tools import ToolKind
from tavern_host.contracts.wire import Model
from tavern_tools.api.toolcalls import QuestionKind, StreamItems, TaskStatus, ToolErrorType


class CurrentTime(Model):
    """A moment: as ISO 8601 text in the time zone, as seconds since 1970 in UTC, and the day of the week in English.

    `utc_offset` is `+02:00`; `timezone` is None where it is the host's own and has no name.
    """

    iso: str
    unix: int
    weekday: str
    utc_offset: str
    timezone: str | None = None


class ToolSummary(Model):
    """A tool in a list. `unavailable` is why it cannot be called now."""

    id: str
    kind: ToolKind
    description: str = ""
    tags: list[str] = Field(default_factory=list)
    unavailable: str | None = None


class ToolList(Model):
    """Tools by id: the first of the `total` that were asked for."""

    tools: list[ToolSummary] = Field(default_factory=list)
    total: int = 0


class TaskState(Model):
    """The state of a call that runs as a task. `progress` goes from 0 to 1; `waits_for` says what an approval is
    asked for, until `approval_expires_at`."""

    task_id: str
    tool_id: str
    status: TaskStatus
    is_finished: bool
    progress: float | None = None
    progress_text: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    waits_for: str | None = None
    approval_expires_at: datetime | None = None


class TaskOutcome(Model):
    """What a call gave: nothing while `is_finished` is false. `text` is what an LLM reads of the result, where that is
    not the result itself."""

    task_id: str
    tool_id: str
    status: TaskStatus
    is_finished: bool
    result: JsonValue = None
    text: str | None = None
    error_type: ToolErrorType | None = None
    error: str | None = None


class UserAnswer(Model):
    """What a person answered."""

    answer: JsonValue


_TASKS = "See tasks with their results, and cancel them."


class SystemTools(ServiceInterface, name="systemTools"):
    """What the tools `system:*` do. Tasks and streams are seen as the call's principal may see them."""

    @reads
    async def get_current_time(self, timezone: str | None = None) -> CurrentTime:
        """Return the time now, in the host's time zone or another: an IANA name (`Asia/Shanghai`), `UTC`, or an offset
        (`+08:00`). Raises `InvalidInput` with near names."""

    @acts("systemTools:tools", "See which tools a caller may call.", level="add")
    async def list_tools(
        self,
        *,
        text: str | None = None,
        tag: str | None = None,
        namespace: str | None = None,
        kind: ToolKind | None = None,
        limit: int = 100,
        call: CallContext | None = None,
    ) -> ToolList:
        """Return the tools for which all that is given holds; see `ToolFilter`."""

    @acts("systemTools:tools", "See which tools a caller may call.", level="add")
    async def describe_tool(self, tool_id: str, *, call: CallContext | None = None) -> str:
        """Return the documentation of a tool for an LLM. Raises `NotFound` with near names."""

    @acts("toolManager:tasks", _TASKS)
    async def task_status(self, task_id: str, *, call: CallContext | None = None) -> TaskState:
        """Return how a task stands. Raises `NotFound`."""

    @acts("toolManager:tasks", _TASKS)
    async def task_result(self, task_id: str, *, wait: float = 10.0, call: CallContext | None = None) -> TaskOutcome:
        """Return the outcome of a task; waits for its end for up to `wait` seconds (at most 60). Raises `NotFound`."""

    @acts("toolManager:tasks", _TASKS)
    async def task_cancel(self, task_id: str, *, call: CallContext | None = None) -> TaskState:
        """Cancel a task and return how it stands then. Raises `NotFound`."""

    @acts("systemTools:tools", "See which tools a caller may call.", level="add")
    async def request_user_interaction(
        self,
        question: str,
        *,
        kind: QuestionKind | None = None,
        choices: list[str] | None = None,
        multiple: bool = False,
        schema: dict[str, JsonValue] | None = None,
        seconds: float | None = None,
        answer: JsonValue = None,
        call: CallContext | None = None,
    ) -> UserAnswer:
        """Return the `answer` of a person to a question. The call of the tool waited for it, as for an approval, and
        it was checked; without one `InvalidInput` is raised."""

    @acts("toolManager:execute", "Call tools.")
    async def stream_read(
        self, handle: str, *, max: int = 100, wait: float = 10.0, call: CallContext | None = None
    ) -> StreamItems:
        """Return the next items of a stream that a call of the same principal gave, at most `max` (at most 1,000);
        waits up to `wait` seconds (at most 60) for the first one. Raises `NotFound`."""


SYSTEM_TOOLS = ServiceKey(SystemTools)
