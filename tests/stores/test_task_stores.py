"""What every store of tasks does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from implementations import OpenTasks

from tavern_host import clock
from tavern_host.contracts.calls import CallContext, Principal
from tavern_tools.api.tasks import NewTask, TaskEntry, TaskRow, TaskStore
from tavern_tools.api.toolcalls import TaskCallback, TaskFilter, TaskStatus, ToolApproval, ToolCallRequest, ToolResult

AGENT = Principal(kind="agent", id="ava")
OPERATOR = Principal(kind="user", id="operator")


def task(name: str, *, idempotent: bool = False, **more: Any) -> NewTask:
    request = ToolCallRequest(tool_id="acme:work", arguments={"n": 1, "apiKey": "s3cret"})
    return NewTask(name, "acme:work", TaskEntry(request=request, call=CallContext(principal=AGENT)), idempotent, **more)


def approval(seconds: float = 60) -> ToolApproval:
    now = clock.now()
    return ToolApproval(reason="a rule", requested_at=now, expires_at=now + timedelta(seconds=seconds))


def decided(row: TaskRow, decision: Any) -> ToolApproval:
    assert row.approval is not None
    return row.approval.model_copy(update={"decision": decision, "decided_by": OPERATOR})


def done(name: str) -> ToolResult:
    return ToolResult(tool_id="acme:work", status="done", task_id=name)


async def statuses(store: TaskStore) -> dict[str, str]:
    return {row.id: row.status.value for row in await store.find(TaskFilter(), None, 0)}


async def test_a_store_without_tasks_is_empty(open_tasks: OpenTasks) -> None:
    store = open_tasks("host_a")
    assert await store.get("task_1") is None
    assert await store.find(TaskFilter(), None, 0) == await store.callbacks() == []
    seen = await store.look(takes_up=True)
    assert (seen.rows, seen.unaudited, seen.tells) == ([], [], False)
    assert await store.prune(2**62, 0) == 0
    await store.release()
    await store.close()


async def test_a_task_goes_from_waiting_to_its_end(open_tasks: OpenTasks) -> None:
    store = open_tasks("host_a")
    added = await store.add(task("task_1"), 2)
    assert added is not None
    assert (added.status, added.owner, added.attempt) == (TaskStatus.PENDING, "host_a", 0)
    assert await store.add(task("task_2"), 2) is not None
    assert await store.add(task("task_3"), 2) is None  # two have not ended

    begun = await store.begin("task_1")
    assert begun is not None and (begun.status, begun.attempt) == (TaskStatus.RUNNING, 1)
    assert await store.begin("task_1") is await store.begin("task_3") is None
    assert await store.put_back("task_2") is None
    back = await store.put_back("task_1")
    assert back is not None and (back.status, back.attempt) == (TaskStatus.PENDING, 0)
    await store.begin("task_1")
    moved = await store.progress("task_1", 0.5, "half")
    assert moved is not None and (moved.progress, moved.progress_text) == (0.5, "half")
    assert moved.changed > begun.changed

    ended = await store.end("task_1", TaskStatus.DONE, done("task_1"), (1.0, "all"))
    assert ended is not None and ended.result == done("task_1")
    assert (ended.is_final, ended.progress, ended.owner) == (True, 1.0, None)
    assert ended.entry.request.arguments["n"] == 1
    assert ended.entry.request.arguments["apiKey"] != "s3cret"  # nothing will be done with it any more
    assert await store.end("task_1", TaskStatus.ERROR, done("task_1")) is None
    assert await store.add(task("task_3"), 2) is not None
    await store.close()
    again = open_tasks("host_a")
    assert await statuses(again) == {"task_3": "pending", "task_2": "pending", "task_1": "done"}
    assert await again.get("task_1") == ended
    await again.close()


async def test_tasks_are_found_newest_first_by_what_is_asked(open_tasks: OpenTasks) -> None:
    store = open_tasks("host_a")
    for number in range(5):
        await store.add(task(f"task_{number}"), 9)
    await store.begin("task_3")

    async def found(only: Principal | None = None, since: int = 0, **asked: Any) -> list[str]:
        return [row.id for row in await store.find(TaskFilter(**asked), only, since)]

    assert await found(limit=2, offset=1) == ["task_3", "task_2"]
    assert await found(statuses=[TaskStatus.RUNNING]) == ["task_3"]
    assert await found(tool="acme:other") == await found(only=OPERATOR) == []
    assert len(await found(only=AGENT)) == 5
    patterns = {"*": 5, "acme:w?rk": 5, "acme:*": 5, "ac": 0, "acme.work": 0, "a[c]me*": 0, "(acme|b)*": 0, "ACME*": 0}
    assert {pattern: len(await found(tool=pattern)) for pattern in patterns} == patterns
    await store.cancel("task_0", OPERATOR)
    assert "task_0" not in await found(since=clock.microseconds())  # it ended before
    await store.close()


async def test_cancelling_ends_what_waits_and_asks_what_runs(open_tasks: OpenTasks) -> None:
    store = open_tasks("host_a")
    for name in ("task_1", "task_2"):
        await store.add(task(name), 9)
    await store.begin("task_2")
    waits, runs = await store.cancel("task_1", OPERATOR), await store.cancel("task_2", OPERATOR)
    assert waits is not None and (waits.status, waits.cancelled_by) == (TaskStatus.CANCELLED, "user:operator")
    assert runs is not None and (runs.status, runs.cancelled_by) == (TaskStatus.RUNNING, "user:operator")
    assert await store.begin("task_1") is await store.cancel("task_3", OPERATOR) is None
    await store.close()


async def test_the_first_decision_holds(open_tasks: OpenTasks) -> None:
    store, other = open_tasks("host_a"), open_tasks("host_b")
    for name in ("task_1", "task_2"):
        row = await store.add(task(name, approval=approval()), 9)
        assert row is not None and row.status is TaskStatus.AWAITING_APPROVAL
        assert await store.begin(name) is None
    late = await store.add(task("task_3", approval=approval(-1)), 9)
    assert late is not None

    approved, outcome = await other.decide("task_1", decided(row, "approved"), {"n": 2})
    assert approved is not None and (outcome, approved.status, approved.is_audited) == ("decided", "pending", False)
    assert (approved.entry.request.arguments, approved.owner) == ({"n": 2}, "host_a")
    again, outcome = await store.decide("task_1", decided(row, "refused"), None)
    assert again is not None and (outcome, again.approval) == ("late", approved.approval)
    refused, outcome = await store.decide("task_2", decided(row, "refused"), None)
    assert refused is not None and (outcome, refused.status, refused.is_final) == ("decided", "refused", True)
    expired, outcome = await store.decide("task_3", decided(late, "approved"), None)
    assert expired is not None and (outcome, expired.status) == ("expired", "refused")  # its default decided
    assert await store.decide("task_4", decided(row, "approved"), None) == (None, "late")
    await other.audited("task_1")
    kept = await store.get("task_1")
    assert kept is not None and kept.is_audited
    await store.close()
    await other.close()


async def test_a_host_takes_up_what_no_living_host_has(
    open_tasks: OpenTasks, put_clock_forward: Callable[[float], None]
) -> None:
    gone, living, other = open_tasks("host_a"), open_tasks("host_b"), open_tasks("host_c")
    names = {"waits": False, "runs": False, "repeats": True, "asked": False}
    for name, idempotent in names.items():
        await gone.add(task(name, idempotent=idempotent, approval=approval() if name == "asked" else None), 9)
    await living.add(task("its own"), 9)
    await gone.begin("runs")
    await gone.begin("repeats")
    assert (await other.look(takes_up=True)).rows == []  # both live
    await gone.close()

    assert (await living.look(takes_up=False)).rows != []  # it sees what another changed
    await living.look(takes_up=True)
    rows = {name: await living.get(name) for name in names}
    assert {name: (row.status.value, row.owner) for name, row in rows.items() if row is not None} == {
        "waits": ("pending", "host_b"),
        "runs": ("unknown", None),  # it may have done what it does, or not
        "repeats": ("pending", "host_b"),
        "asked": ("awaiting_approval", "host_b"),
    }
    put_clock_forward(60)  # the time for the decision is over
    assert [row.id for row in (await living.look(takes_up=True)).unaudited] == ["asked"]
    assert (await living.look(takes_up=True)).rows == []  # all of it was seen
    await living.release()
    assert sorted(row.id for row in (await other.look(takes_up=True)).rows if row.owner == "host_c") == [
        "its own",
        "repeats",
        "waits",
    ]
    await living.close()
    await other.close()


async def test_callbacks_are_due_until_they_are_told(open_tasks: OpenTasks) -> None:
    store = open_tasks("host_a")
    await store.add(task("task_1", callback=TaskCallback(url="http://127.0.0.1/told")), 9)
    await store.begin("task_1")
    assert await store.callbacks() == []
    await store.end("task_1", TaskStatus.DONE, done("task_1"))
    assert (await store.look(takes_up=False)).tells
    (due,) = await store.callbacks()
    assert due.callback is not None
    failed = due.callback.model_copy(update={"attempts": 1, "error": "refused"})
    await store.told("task_1", failed, clock.microseconds() + 60_000_000)
    assert await store.callbacks() == []
    delivered = await store.told("task_1", failed.model_copy(update={"status": "delivered"}), None)
    assert delivered is not None and (delivered.owner, delivered.callback_due) == (None, None)
    assert await store.told("task_1", failed, None) is None
    await store.close()


async def test_what_ended_is_forgotten_by_age_and_size(open_tasks: OpenTasks) -> None:
    store = open_tasks("host_a")
    for number in range(6):
        await store.add(task(f"task_{number}"), 9)
        if number:
            await store.cancel(f"task_{number}", OPERATOR)
    assert await store.prune(0, 2**40) == 0
    ended = await store.get("task_2")
    assert ended is not None and ended.finished is not None
    assert await store.prune(ended.finished, 2**40) == 1
    assert await store.prune(0, 0) == 4
    assert await statuses(store) == {"task_0": "pending"}  # it has not ended
    await store.close()
