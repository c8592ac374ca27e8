"""What is decided about calls that wait for a person: by whom, with which arguments, or by the default.

Pure; the store sees to it that of two decisions one wins.
"""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.common.redaction import masked
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_tools.api.tasks import TaskRow
from tavern_tools.api.toolcalls import TaskStatus, ToolApproval, ToolCallRequest, ToolErrorType, ToolResult
from tavern_tools.calls.questions import ANSWER
from tavern_tools.tasks.rows import failed

Decision = Literal["approve", "refuse"]

MAX_COMMENT = 2000
"""How many characters of a comment are kept."""


def decided(
    approval: ToolApproval, decision: Decision, call: CallContext, comment: str, *, edited: bool
) -> ToolApproval:
    """Return an approval with a decision made now."""
    return approval.model_copy(
        update={
            "decision": "approved" if decision == "approve" else "refused",
            "decided_by": call.principal,
            "decided_via": call.via,
            "decided_at": clock.now(),
            "comment": comment[:MAX_COMMENT],
            "edited": edited,
        }
    )


def closed(approval: ToolApproval) -> ToolApproval:
    """Return an approval whose time is over, as its default decides it."""
    return approval.model_copy(
        update={
            "decision": "approved" if approval.default == "approve" else "refused",
            "decided_at": clock.now(),
            "comment": "nobody decided in time" if approval.question is None else "nobody answered in time",
        }
    )


def refusal(task_id: str, request: ToolCallRequest, approval: ToolApproval) -> ToolResult:
    """Return the result of a call that was refused, or of a question that nobody answered."""
    if approval.question is not None and approval.decided_by is None:
        message = f"nobody answered the question, which waited until {approval.expires_at:%Y-%m-%d %H:%M} UTC"
        return failed(task_id, request, ToolErrorType.TIMEOUT, message)
    who = f"by {approval.decided_by}" if approval.decided_by is not None else "since nobody decided in time"
    why = f": {approval.comment}" if approval.comment and approval.decided_by is not None else ""
    what = f"the call of {request.tool_id} was refused" if approval.question is None else "an answer was declined"
    message = f"{what} {who}{why}"
    return failed(task_id, request, ToolErrorType.APPROVAL_REFUSED, message)


def why_not(row: TaskRow) -> Conflict:
    """Return why a task cannot be decided about any more."""
    approval = row.approval
    if approval is None:
        return Conflict(f"the task {row.id} does not wait for a decision: it is {row.status}")
    if approval.decision is None:
        return Conflict(f"the task {row.id} does not wait for a decision any more: it is {row.status}")
    who = f"by {approval.decided_by}" if approval.decided_by is not None else "by its default, when its time was over"
    return Conflict(f"the task {row.id} was {approval.decision} already, {who}")


def check_decision(decision: str, arguments: dict[str, JsonValue] | None) -> Decision:
    """Return a decision. Raises `InvalidInput` for what is none."""
    if decision == "refuse":
        if arguments is not None:
            raise InvalidInput("arguments go with approving a call, not with refusing it")
        return "refuse"
    if decision == "approve":
        return "approve"
    raise InvalidInput(f'a decision is "approve" or "refuse", got {decision!r:.60}')


def answered(row: TaskRow, decision: Decision, arguments: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
    """Return the arguments of a question with its answer among them, of another call those that it is given. Raises
    `InvalidInput` where a question is approved without an answer, or to be another one."""
    if row.approval is None or row.approval.question is None or decision == "refuse":
        return arguments
    own = row.entry.request.arguments
    if arguments is None or ANSWER not in arguments:
        raise InvalidInput(f'the task {row.id} asks a question: give the argument "answer", or refuse it')
    if changed := [name for name in arguments if name != ANSWER and arguments[name] != own.get(name)]:
        raise InvalidInput(f"a question is answered as it was asked: {', '.join(changed)[:200]} cannot be changed")
    return {**own, ANSWER: arguments[ANSWER]}


def audit_details(row: TaskRow) -> dict[str, JsonValue]:
    """Return the details of a decision for the audit log."""
    approval = row.approval
    assert approval is not None
    details: dict[str, JsonValue] = {
        "caller": str(row.entry.call.principal),
        "reason": approval.reason,
        "edited": approval.edited,
        "comment": approval.comment,
    }
    if row.status is TaskStatus.PENDING:
        details["arguments"] = masked(row.entry.request.arguments, row.entry.hidden)
    return details
