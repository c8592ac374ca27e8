"""Calls that wait for a decision: who decides, with which arguments, until when, and what the audit log says of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.audit_logs import tail
from task_bench import TaskBench, caller, opened

from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, PermissionDenied, TavernError
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.toolcalls import TaskStatus, ToolErrorType


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[TaskBench]:
    async with opened(tmp_path / "p") as made:
        yield made


def audited(bench: TaskBench) -> list[dict[str, Any]]:
    """Return what the audit log says about decisions."""
    bench.host.audit.flush()
    entries = [entry.to_json() for entry in tail(bench.host.audit.path, 10_000)]
    return [entry for entry in entries if entry["action"].startswith("toolApproval.")]


async def test_a_call_waits_until_it_is_approved_and_is_made_then(bench: TaskBench) -> None:
    task = await bench.park(gives="yes")
    assert task.status is TaskStatus.AWAITING_APPROVAL
    assert bench.noted() == []

    approved = await bench.tasks.decide(task.id, "approve", None, "go on", caller("user:ann"))
    assert approved.status in (TaskStatus.PENDING, TaskStatus.RUNNING)
    ended = await bench.ended(task)

    assert ended.status is TaskStatus.DONE
    assert (ended.approval.decision, str(ended.approval.decided_by)) == ("approved", "user:ann")
    assert (ended.approval.comment, ended.approval.edited) == ("go on", False)
    await asyncio.sleep(0)
    assert [each["status"] for each in bench.told(task)] == ["awaiting_approval", "pending", "running", "done"]
    assert bench.told(task)[0]["approval"]["reason"] == "a rule says so"
    (entry,) = audited(bench)
    assert (entry["actor"], entry["action"], entry["subject"]) == ("user:ann", "toolApproval.approved", task.id)
    assert entry["details"]["caller"] == "agent:writer"


async def test_a_call_that_is_refused_is_never_made(bench: TaskBench) -> None:
    task = await bench.park()
    refused = await bench.tasks.decide(task.id, "refuse", None, "not today", caller())
    assert refused.status is TaskStatus.REFUSED
    assert refused.result.error.type is ToolErrorType.APPROVAL_REFUSED
    assert refused.result.error.message == "the call of acme:work was refused by user:operator: not today"
    assert bench.noted() == []
    assert [entry["action"] for entry in audited(bench)] == ["toolApproval.refused"]


async def test_a_call_is_made_with_the_approved_arguments(bench: TaskBench) -> None:
    task = await bench.park(gives="old", apiKey="hunter2")
    assert task.arguments["apiKey"] == MASK
    await bench.tasks.decide(task.id, "approve", {**task.arguments, "gives": "new"}, "", caller())
    ended = await bench.ended(task)
    assert (ended.result.structured, ended.approval.edited) == ("new", True)
    assert bench.noted()[0] == ["", "began", "hunter2"]
    assert audited(bench)[0]["details"]["arguments"] == {"log": str(bench.log), "gives": "new", "apiKey": MASK}
    same = await bench.park(apiKey="hunter2")
    await bench.tasks.decide(same.id, "approve", same.arguments, "", caller())
    ended = await bench.ended(same)
    assert ended.approval is not None and not ended.approval.edited


async def test_a_decision_that_cannot_be_leaves_the_call_waiting(bench: TaskBench) -> None:
    rows: Any = [
        ("approve", {"colour": "red"}, "acme:work has no parameter colour"),
        ("approve", {"gives": MASK}, r"gives is \*{8}, where no secret stands"),
        ("refuse", {}, "arguments go with approving a call"),
        ("perhaps", None, 'a decision is "approve" or "refuse"'),
    ]
    task = await bench.park()
    for decision, arguments, message in rows:
        with pytest.raises(InvalidInput, match=message):
            await bench.tasks.decide(task.id, decision, arguments, "", caller())
        assert (await bench.tasks.get(task.id, 0, caller())).status is TaskStatus.AWAITING_APPROVAL
    assert audited(bench) == []


async def test_who_may_not_decide_is_told_so_and_who_may_not_see_finds_nothing(bench: TaskBench) -> None:
    task = await bench.park(who="agent:writer")
    with pytest.raises(PermissionDenied, match="agent:writer may not decide about calls of acme:work"):
        await bench.tasks.decide(task.id, "approve", None, "", caller("agent:writer"))
    with pytest.raises(NotFound):
        await bench.tasks.decide(task.id, "approve", None, "", caller("agent:reader"))
    with pytest.raises(NotFound):
        await bench.tasks.decide("task_nowhere", "approve", None, "", caller())
    decided = await bench.tasks.decide(task.id, "refuse", None, "", caller("agent:judge"))
    assert decided.status is TaskStatus.REFUSED
    assert [entry["actor"] for entry in audited(bench)] == ["agent:judge"]


@pytest.mark.parametrize("default", ["refuse", "approve"])
async def test_when_the_time_is_over_the_default_decides(bench: TaskBench, default: str) -> None:
    task = await bench.park(seconds=0.2, default=default)
    ended = await bench.ended(task)
    with pytest.raises(Conflict, match="already, by its default, when its time was over"):
        await bench.tasks.decide(task.id, "approve", None, "", caller())
    assert ended.status is (TaskStatus.DONE if default == "approve" else TaskStatus.REFUSED)
    assert ended.approval is not None and ended.approval.decided_by is None
    assert [entry["actor"] for entry in audited(bench)] == ["system:host"]


async def test_a_decision_at_the_moment_when_the_time_is_over_comes_too_late(bench: TaskBench) -> None:
    task = await bench.park(seconds=-1)
    with pytest.raises(Conflict):
        await bench.tasks.decide(task.id, "approve", None, "", caller())
    assert (await bench.ended(task)).status is TaskStatus.REFUSED
    assert bench.noted() == []
    assert [entry["action"] for entry in audited(bench)] == ["toolApproval.refused"]


async def test_of_many_who_decide_at_the_same_moment_one_wins(bench: TaskBench) -> None:
    task = await bench.park()
    answers = await asyncio.gather(
        *(
            bench.tasks.decide(task.id, "approve" if n % 2 else "refuse", None, "", caller(f"user:{n}"))
            for n in range(20)
        ),
        return_exceptions=True,
    )
    ended = await bench.ended(task)
    losers = [answer for answer in answers if isinstance(answer, TavernError)]
    assert len(losers) == 19
    assert all(isinstance(loser, Conflict) for loser in losers)
    (winner,) = (number for number, answer in enumerate(answers) if not isinstance(answer, TavernError))
    assert str(ended.approval.decided_by) == f"user:{winner}"
    assert len([what for _, what, _ in bench.noted() if what == "began"]) == winner % 2
    assert [entry["actor"] for entry in audited(bench)] == [f"user:{winner}"]


async def test_only_a_waiting_call_can_be_decided(bench: TaskBench) -> None:
    running, waiting = await bench.submit(seconds=5), await bench.park(who="agent:writer")
    with pytest.raises(Conflict, match="does not wait for a decision"):
        await bench.tasks.decide(running.id, "approve", None, "", caller())
    cancelled = await bench.tasks.cancel(waiting.id, caller("agent:writer"))
    assert cancelled.status is TaskStatus.CANCELLED
    with pytest.raises(Conflict):
        await bench.tasks.decide(waiting.id, "approve", None, "", caller())
    refused = await bench.tasks.decide((await bench.park()).id, "refuse", None, "no " * 100_000, caller())
    assert refused.approval is not None and len(refused.approval.comment) == 2000
