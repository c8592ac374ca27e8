"""Where tasks are kept: which host may do what to which task.

A host is one running program that carries out tasks, under a name that no other has. What it adds is its own, and it
takes up what no living host has. A store decides each step in one transaction, so that several hosts can share one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.wire import Model
from tavern_tools.api.toolcalls import (
    TaskCallback,
    TaskFilter,
    TaskStatus,
    ToolApproval,
    ToolCallRequest,
    ToolResult,
    ToolScope,
)

Outcome = Literal["decided", "expired", "late"]
"""The outcome of a decision: it holds, its time was just over, or another was made before."""


class TaskEntry(Model):
    """What was asked for. `hidden` names the arguments that the tool marks as secret, `callback` is the address that
    is notified of the end."""

    request: ToolCallRequest
    call: CallContext
    scope: ToolScope | None = None
    hidden: list[str] = Field(default_factory=list)
    callback: str | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task that is to be kept. One with an approval waits for that."""

    id: str
    tool_id: str
    entry: TaskEntry
    is_idempotent: bool
    approval: ToolApproval | None = None
    callback: TaskCallback | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task as it is kept. Times are in microseconds since 1970.

    `due` is when the time for a decision is over, `callback_due` when its end is to be reported; `writer` is the host
    that changed it last, and `changed` grows with every change of any task.
    """

    id: str
    tool_id: str
    status: TaskStatus
    is_final: bool
    owner: str | None
    attempt: int
    is_idempotent: bool
    cancelled_by: str | None
    created: int
    started: int | None
    finished: int | None
    due: int | None
    callback_due: int | None
    changed: int
    writer: str
    is_audited: bool
    progress: float | None
    progress_text: str | None
    approval: ToolApproval | None
    callback: TaskCallback | None
    entry: TaskEntry
    result: ToolResult | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a host finds when it looks at the store: tasks that it took up or that others changed, and those with a
    decision that is to be put into the audit log: the time of some was over, of others the host died that decided.
    `tells`: callbacks are due now. `pending` are its own that wait to begin."""

    rows: list[TaskRow]
    unaudited: list[TaskRow]
    tells: bool = False
    pending: Sequence[str] = ()


class TaskStore(ABC):
    """The tasks of a project, as the host `host` sees them. What a method wrote has survived the end of the process
    when it returns. Secrets among the arguments of a task that ended are masked.

    Methods raise `TavernError` where the store cannot be read or written.
    """

    host: str

    @abstractmethod
    async def add(self, task: NewTask, limit: int) -> TaskRow | None:
        """Keep a new task, this host's; None where `limit` tasks have not ended already."""

    @abstractmethod
    async def begin(self, task_id: str) -> TaskRow | None:
        """Let a task of this host that waits begin; None where it may not (any more). The call is made after that."""

    @abstractmethod
    async def put_back(self, task_id: str) -> TaskRow | None:
        """Undo `begin`: the call was not made."""

    @abstractmethod
    async def progress(self, task_id: str, progress: float | None, text: str | None) -> TaskRow | None:
        """Keep how far a running task of this host is."""

    @abstractmethod
    async def end(
        self,
        task_id: str,
        status: TaskStatus,
        result: ToolResult,
        progress: tuple[float | None, str | None] = (None, None),
    ) -> TaskRow | None:
        """Keep how a task of this host ended, begun or not; None where it is this host's no more, or has ended."""

    @abstractmethod
    async def cancel(self, task_id: str, principal: Principal) -> TaskRow | None:
        """Cancel a task that has not begun; ask for it of one that runs. Returns how it stands."""

    @abstractmethod
    async def decide(
        self, task_id: str, approval: ToolApproval, arguments: dict[str, JsonValue] | None
    ) -> tuple[TaskRow | None, Outcome]:
        """Keep a decision about a task that waits for one, with other arguments where they are given; return how the
        task stands, and what came of it. Where its time was over, the approval's default decides instead."""

    @abstractmethod
    async def audited(self, task_id: str) -> None:
        """Keep that a decision is in the audit log."""

    @abstractmethod
    async def told(self, task_id: str, callback: TaskCallback, due: int | None) -> TaskRow | None:
        """Keep the outcome of a delivery, and when it is retried."""

    @abstractmethod
    async def get(self, task_id: str) -> TaskRow | None:
        """Return a task."""

    @abstractmethod
    async def find(self, filter: TaskFilter, only: Principal | None, since: int) -> list[TaskRow]:
        """Return tasks, newest first, without large results: those of the principal `only`, where given, and not those
        that ended before `since`."""

    @abstractmethod
    async def look(self, *, takes_up: bool) -> Seen:
        """Return the changes of others since the last time; expire approvals whose time is over; with `takes_up` claim
        what no living host has: what had not begun, or may be repeated, waits; of the rest the outcome is unknown."""

    @abstractmethod
    async def callbacks(self) -> list[TaskRow]:
        """Return this host's ended tasks whose callbacks are due."""

    @abstractmethod
    async def release(self) -> None:
        """Leave what this host has, apart from what runs, to other hosts."""

    @abstractmethod
    async def prune(self, before: int, max_bytes: int) -> int:
        """Delete tasks that ended before a moment, and the oldest while all together are too large; return how many."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what was begun, leave what has not begun to other hosts, and release the store."""
