"""Hosts that are killed at random moments: no accepted task is lost, and none is carried out twice unless it may be."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.audit_logs import tail
from helpers.repetition import repetitions
from task_bench import Child, Marks, caller, marking, opened

from tavern_host.contracts.executions import EXECUTION_ENGINE, RunStatus
from tavern_host.contracts.toolcalls import TaskStatus, ToolErrorType

ACCEPTING = """
import random
rng = random.Random({seed})
await asyncio.sleep(0)
for number in range({first}, {first} + 40):
    kind = rng.choice(["plain", "idempotent", "approved", "waiting"])
    name, seconds = f"{{number}} {{kind}}", rng.choice([0, 0.02, 0.1, 0.3])
    if kind in ("plain", "idempotent"):
        task = await bench.submit(idempotent=kind == "idempotent", name=name, seconds=seconds)
    else:
        task = await bench.park(name=name, seconds=60)
    say([name, task.id])
    if kind == "approved":
        await bench.tasks.decide(task.id, "approve", None, "", caller())
        say([name, "approved"])
    await asyncio.sleep(rng.choice([0, 0, 0.02]))
await asyncio.sleep(60)
"""


async def killed(root: Path, code: str, moment: float, opener: str = "opened") -> list[list[str]]:
    """Let a host be killed some seconds after it was ready; return what it said until then."""
    child, said = Child(root, code, opener=opener), []

    async def listen() -> None:
        while (line := await child.said()) is not None:
            said.append(line)

    assert await child.said() == "ready"
    listening = asyncio.create_task(listen())
    await asyncio.sleep(moment)
    child.kill()
    with contextlib.suppress(ValueError):  # the last line was cut off
        await listening
    return said


async def killed_once_begun(root: Path, code: str) -> None:
    """Kill a host with marking tools as soon as the code, which waits until its calls have begun, has ended."""
    child = Child(root, f'{code}\nsay("begun")\nawait asyncio.sleep(60)', opener="marking")
    assert [await child.said(), await child.said()] == ["ready", "begun"]
    child.kill()


@pytest.mark.parametrize("part", range(repetitions(1, 4)))
async def test_no_accepted_task_is_lost_and_none_is_carried_out_twice(tmp_path: Path, part: int) -> None:
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    ids: dict[str, str] = {}
    approved: set[str] = set()
    for kill in range(repetitions(2, 4)):
        code = ACCEPTING.format(seed=rng.random(), first=1000 * kill)
        for name, word in await killed(tmp_path / "p", code, rng.choice([rng.uniform(0, 0.1), rng.uniform(0.1, 1)])):
            if word == "approved":
                approved.add(name)
            else:
                ids[name] = word

    async with opened(tmp_path / "p") as bench:
        ended: dict[str, Any] = {}
        for name, task_id in ids.items():
            task = await bench.tasks.get(task_id, 0, caller())
            if task.status is TaskStatus.AWAITING_APPROVAL and name not in approved:
                await bench.tasks.decide(task_id, "refuse", None, "", caller())
            ended[name] = await bench.ended(task_id)

    what = f"seed {seed}, part {part}"
    began = Counter(name for name, note, _ in bench.noted() if note == "began")
    finished = Counter(name for name, note, _ in bench.noted() if note == "ended")
    for name, task in ended.items():
        about = f"{what}: {name} {task}"
        if task.status is TaskStatus.DONE:
            assert finished[name] >= 1, about
        elif task.status is TaskStatus.REFUSED:
            assert began[name] == 0, about
            assert name not in approved, about
        else:
            assert task.status is TaskStatus.UNKNOWN, about
            assert task.result is not None and task.result.error is not None, about
            assert task.result.error.type is ToolErrorType.UNKNOWN_OUTCOME, about
            assert "idempotent" not in name or task.attempt == 3, about
        if "idempotent" not in name:
            assert began[name] <= 1, about
            assert task.attempt <= 1, about


async def test_a_call_that_had_begun_is_run_again_only_if_it_is_declared_idempotent(tmp_path: Path) -> None:
    code = """
for name in ("plain", "idempotent"):
    task = await bench.submit(name=name, seconds=1, idempotent=name == "idempotent")
    await bench.is_at(task, TaskStatus.RUNNING)
    say(task.id)
while len(bench.noted()) < 2:
    await asyncio.sleep(0.01)
say("begun")
await asyncio.sleep(60)
"""
    child = Child(tmp_path / "p", code)
    assert await child.said() == "ready"
    plain, idempotent, begun = [await child.said() for _ in range(3)]
    assert begun == "begun"
    child.kill()

    async with opened(tmp_path / "p") as bench:
        lost, again = await bench.ended(plain), await bench.ended(idempotent)

    assert (lost.status, lost.attempt) == (TaskStatus.UNKNOWN, 1)
    assert lost.result.error.message == "the host ended while it ran: it may have done what it does, or not"
    assert (again.status, again.attempt) == (TaskStatus.DONE, 2)
    assert Counter(name for name, what, _ in bench.noted() if what == "began") == {"plain": 1, "idempotent": 2}


async def test_a_call_that_hosts_die_of_again_and_again_is_given_up(tmp_path: Path) -> None:
    first = "task = await bench.submit(seconds=60, idempotent=True)\nawait bench.is_at(task, TaskStatus.RUNNING)\n"
    child = Child(tmp_path / "p", first + "say(task.id)\nawait asyncio.sleep(60)")
    assert await child.said() == "ready"
    task_id = await child.said()
    child.kill()
    for attempt in (2, 3):
        child = Child(
            tmp_path / "p",
            f"""
while (await bench.tasks.get("{task_id}", 0, caller())).attempt < {attempt}:
    await asyncio.sleep(0.02)
say("begun")
await asyncio.sleep(60)
""",
        )
        assert [await child.said(), await child.said()] == ["ready", "begun"]
        child.kill()
    async with opened(tmp_path / "p") as bench:
        given_up = await bench.ended(task_id)
    assert (given_up.status, given_up.attempt) == (TaskStatus.UNKNOWN, 3)
    assert "the host ended 3 times while it ran" in given_up.result.error.message


MARKING = """
rng = random.Random({seed})
calls = set()
for number in range({first}, {first} + 30):
    tool = "mark:" + rng.choice(Marks.KINDS) + rng.choice(["", "-async", "-async"])
    name, seconds = f"{{number}} {{tool}}", rng.choice([0, 0.1, 0.5])
    calls.add(call := asyncio.create_task(bench.call(tool, name, seconds)))
    call.add_done_callback(lambda done, name=name: say([name, done.result().task_id or done.result().status]))
    await asyncio.sleep(rng.choice([0, 0.02]))
await asyncio.sleep(60)
"""


@pytest.mark.parametrize("part", range(repetitions(1, 10)))
async def test_no_call_is_made_twice_whatever_its_tool(tmp_path: Path, part: int) -> None:
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    accepted: dict[str, str] = {}
    for kill in range(repetitions(2, 3)):
        code = MARKING.format(seed=rng.random(), first=1000 * kill)
        accepted |= dict(await killed(tmp_path / "p", code, rng.uniform(0.1, 1.5), "marking"))

    async with marking(tmp_path / "p") as bench:
        tasks = {task.id: task for task in await bench.rested()}
        made = bench.made()

    about = f"seed {seed}, part {part}"
    assert {name: count for name, count in made.items() if count > 1} == {}, about
    for name, given in accepted.items():
        if given in tasks and tasks[given].status is not TaskStatus.DONE:
            assert tasks[given].status is TaskStatus.UNKNOWN, (about, tasks[given])
        else:
            assert given in tasks or given == "done", (about, name, given)
            assert made[name] == 1, (about, name)


async def test_of_calls_a_host_died_of_those_that_may_be_are_repeated(tmp_path: Path) -> None:
    calls = [f"mark:{kind}{how}" for kind in Marks.KINDS for how in ("", "-async", "-again")]
    code = f"""
calls = [asyncio.create_task(bench.call(tool, tool, 3)) for tool in {calls!r}]
await bench.until(12, 10)
"""
    await killed_once_begun(tmp_path / "p", code)

    async with marking(tmp_path / "p") as bench:
        tasks = {task.tool_id: task for task in await bench.rested()}
        runs = await bench.host.services.get(EXECUTION_ENGINE).history()
        bench.host.audit.flush()
        called = [entry for entry in tail(bench.host.audit.path, 100) if entry.action == "tool.called"]

    once = {tool: 0 if "script" in tool else 1 for tool in calls}  # what a script had written is gone with it
    assert bench.made() == Counter({tool: once[tool] + tool.endswith("-again") for tool in calls})
    assert {tool: (task.status, task.attempt) for tool, task in tasks.items()} == {
        tool: (TaskStatus.DONE, 2) if tool.endswith("-again") else (TaskStatus.UNKNOWN, 1)
        for tool in calls
        if "-" in tool
    }
    cut_off = [run.error for run in runs if run.status is RunStatus.INTERRUPTED]
    assert cut_off == ["the host ended in the middle of it, and so did the call that it was begun by"] * 12
    assert len(called) == len(calls) + len(Marks.KINDS)


async def test_calls_that_waited_for_their_turn_are_queued_still(tmp_path: Path) -> None:
    code = """
for number in range(6):
    await bench.call("mark:service-async", str(number), 1.5)
await bench.until(2, 2)
say([task.status for task in await bench.tools.tasks()])
await asyncio.sleep(60)
"""
    child = Child(tmp_path / "p", code, opener="marking")
    assert await child.said() == "ready"
    assert Counter(await child.said()) == {"running": 2, "pending": 4}
    child.kill()

    async with marking(tmp_path / "p") as bench:
        tasks = await bench.rested()

    assert Counter(task.status for task in tasks) == {TaskStatus.UNKNOWN: 2, TaskStatus.DONE: 4}
    assert bench.made() == {str(number): 1 for number in range(6)}


async def test_calls_in_outputs_of_a_run_are_not_made_twice(tmp_path: Path) -> None:
    text = '<tool_call name="mark:service"><param name="name">a</param><param name="seconds">3</param></tool_call>'
    code = f"""
from tavern_host.contracts.executions import RunActions, RunRequest
from tavern_host.contracts.workflows import InterfaceSlot, Workflow, WorkflowEdge, WorkflowNode
slots = {{"text": InterfaceSlot(key="text", data_flow_type="STRING")}}
workflow = Workflow(
    nodes=[WorkflowNode(id="in", type="core:GroupInput"), WorkflowNode(id="out", type="core:GroupOutput")],
    edges=[WorkflowEdge(id="e", source="in", source_handle="text", target="out", target_handle="text")],
    interface_inputs=slots,
    interface_outputs=slots,
)
engine = bench.host.services.get(EXECUTION_ENGINE)
await engine.submit(RunRequest(workflow=workflow, inputs={{"text": {text!r}}}, actions=RunActions()))
await bench.until(1, 0)
"""
    await killed_once_begun(tmp_path / "p", code)

    async with marking(tmp_path / "p") as bench:
        await bench.rested()
        [run] = await bench.host.services.get(EXECUTION_ENGINE).history()

    assert bench.made() == {"a": 1}
    assert (run.status, run.error) == (
        RunStatus.INTERRUPTED,
        "the host ended in the middle of it, and it cannot be resumed: the calls in its outputs may have been made",
    )
