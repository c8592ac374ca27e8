"""Calls that wait for a decision: who decides, with which arguments, until when, and what the audit log says of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.waiting import until_idle
from task_bench import TaskBench, caller

from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied, TavernError
from tavern_host.contracts.settings import MASK
from tavern_tools.api.toolcalls import TaskStatus, ToolErrorType


async def test_a_call_waits_until_it_is_approved(tasks: TaskBench) -> None:
    task = await tasks.park(gives="yes")
    assert (task.status, tasks.noted()) == (TaskStatus.AWAITING_APPROVAL, [])
    approved = await tasks.decide(task, "approve", "user:ann", "go on")
    assert approved.status in (TaskStatus.PENDING, TaskStatus.RUNNING)
    ended: Any = await tasks.ended(task)
    assert (ended.status, ended.approval.decision, str(ended.approval.decided_by)) == ("done", "approved", "user:ann")
    assert (ended.approval.comment, ended.approval.edited) == ("go on", False)
    await until_idle()
    assert [each["status"] for each in tasks.told(task)] == ["awaiting_approval", "pending", "running", "done"]
    assert tasks.told(task)[0]["approval"]["reason"] == "a rule says so"
    (entry,) = tasks.audited(task)
    assert (entry["actor"], entry["action"]) == ("user:ann", "toolApproval.approved")
    assert entry["details"]["caller"] == "agent:writer"


async def test_a_call_that_is_refused_is_never_made(tasks: TaskBench) -> None:
    task = await tasks.park()
    refused = await tasks.decide(task, "refuse", comment="not today")
    assert (refused.status, refused.result.error.type) == (TaskStatus.REFUSED, ToolErrorType.APPROVAL_REFUSED)
    assert refused.result.error.message == "the call of acme:work was refused by user:operator: not today"
    assert ([entry["action"] for entry in tasks.audited(task)], tasks.noted()) == (["toolApproval.refused"], [])
    refused = await tasks.decide(await tasks.park(), "refuse", comment="no " * 100_000)
    assert refused.approval is not None and len(refused.approval.comment) == 2000


async def test_a_call_is_made_with_the_approved_arguments(tasks: TaskBench) -> None:
    task, same = await tasks.park(gives="old", apiKey="hunter2"), await tasks.park(apiKey="hunter2")
    assert task.arguments["apiKey"] == MASK
    await tasks.decide(task, "approve", arguments={**task.arguments, "gives": "new"})
    ended: Any = await tasks.ended(task)
    assert (ended.result.structured, ended.approval.edited) == ("new", True)
    assert tasks.noted()[0] == ["", "began", "hunter2"]
    [entry] = tasks.audited(task)
    assert entry["details"]["arguments"] == {"log": str(tasks.log), "gives": "new", "apiKey": MASK}
    await tasks.decide(same, "approve", arguments=same.arguments)
    unchanged: Any = await tasks.ended(same)
    assert unchanged.approval.edited is False


async def test_a_decision_that_cannot_be_changes_nothing(tasks: TaskBench) -> None:
    waiting, running = await tasks.park(), await tasks.submit(seconds=60)
    rows: Any = [
        # the task, the decision, its arguments, who decides, and why that cannot be
        (waiting, "approve", {"colour": "red"}, "user:a", InvalidInput, "acme:work has no parameter colour"),
        (waiting, "approve", {"gives": MASK}, "user:a", InvalidInput, r"gives is \*{8}, where no secret stands"),
        (waiting, "refuse", {}, "user:a", InvalidInput, "arguments go with approving a call"),
        (waiting, "perhaps", None, "user:a", InvalidInput, 'a decision is "approve" or "refuse"'),
        (
            waiting,
            "approve",
            None,
            "agent:writer",
            PermissionDenied,
            "agent:writer may not decide about calls of acme:w",
        ),
        (waiting, "approve", None, "agent:reader", NotFound, "there is no task"),
        ("task_nowhere", "approve", None, "user:a", NotFound, "there is no task"),
        (running, "approve", None, "user:a", Conflict, "does not wait for a decision"),
    ]
    with Failures() as failures:
        for task, decision, arguments, who, error, message in rows:
            with failures.row(message):
                with pytest.raises(error, match=message):
                    await tasks.decide(task, decision, who, arguments=arguments)
                assert (await tasks.get(waiting)).status is TaskStatus.AWAITING_APPROVAL
    assert tasks.audited(waiting) == []
    assert (await tasks.decide(waiting, "refuse", "agent:judge")).status is TaskStatus.REFUSED
    assert [entry["actor"] for entry in tasks.audited(waiting)] == ["agent:judge"]
    cancelled = await tasks.park(who="agent:writer")
    assert (await tasks.tasks.cancel(cancelled.id, caller("agent:writer"))).status is TaskStatus.CANCELLED
    with pytest.raises(Conflict):
        await tasks.decide(cancelled, "approve")
    await tasks.tasks.cancel(running.id, caller())


async def test_when_the_time_is_over_the_default_decides(tasks: TaskBench) -> None:
    for seconds, default, status in ((0.2, "refuse", "refused"), (0.2, "approve", "done"), (-1, "refuse", "refused")):
        task = await tasks.park(seconds=seconds, default=default)
        if seconds > 0:
            await tasks.ended(task)
        with pytest.raises(Conflict, match="already, by its default, when its time was over|its time is over"):
            await tasks.decide(task, "approve")
        ended = await tasks.ended(task)
        assert ended.approval is not None
        assert (ended.status, ended.approval.decided_by) == (status, None)
        assert [entry["actor"] for entry in tasks.audited(task)] == ["system:host"]
    assert tasks.count("began").total() == 1


async def test_of_many_who_decide_at_once_one_wins(tasks: TaskBench) -> None:
    task = await tasks.park()
    decisions = [tasks.decide(task, "approve" if n % 2 else "refuse", f"user:{n}") for n in range(20)]
    answers = await asyncio.gather(*decisions, return_exceptions=True)
    ended = await tasks.ended(task)
    (winner,) = (number for number, answer in enumerate(answers) if not isinstance(answer, TavernError))
    assert sum(isinstance(answer, Conflict) for answer in answers) == 19
    assert ended.approval is not None and str(ended.approval.decided_by) == f"user:{winner}"
    assert tasks.count("began").total() == winner % 2
    assert [entry["actor"] for entry in tasks.audited(task)] == [f"user:{winner}"]
