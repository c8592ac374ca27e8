"""Hosts that share a project, or are killed: no accepted task is lost, and none is carried out twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.audit_logs import tail
from helpers.repetition import repetitions
from task_bench import Child, Marks, caller, marking, opened

from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.executions import EXECUTION_ENGINE, RunStatus
from tavern_host.contracts.toolcalls import TaskStatus, ToolErrorType

# --- several hosts --------------------------------------------------------------------------------


async def test_hosts_leave_alone_what_a_living_one_does(tmp_path: Path) -> None:
    code = """
running, cancelled = [await bench.submit(until="go" * n, seconds=600 * (1 - n), name="running") for n in (1, 0)]
parked = [await bench.park(name="waiting") for _ in range(12)]
await bench.began(2)
say([task.id for task in (running, cancelled, *parked)])
say((await bench.ended(cancelled)).result.error.message)
won = 0
for task in parked[2:]:
    try:
        await bench.decide(task, "approve", "user:child")
        won += 1
    except Exception as error:
        assert type(error).__name__ == "Conflict", error
say(won)
for task in (running, *parked):
    assert (await bench.ended(task)).status == "done"
say("done")
""".replace('"go" * n', f"{str(tmp_path / 'go')!r} if n else {str(tmp_path)!r}")
    child = Child(tmp_path / "p", code)
    try:
        assert await child.said() == "ready"
        running, cancelled, *parked = await child.said()
        for serving, waiting in ((False, parked[0]), (True, parked[1])):
            async with opened(tmp_path / "p", serving=serving) as bench:
                assert (await bench.get(running, 0.5)).status is TaskStatus.RUNNING
                await bench.decide(waiting, "approve")
                assert (await bench.ended(waiting)).status is TaskStatus.DONE
                if serving:
                    ended = await bench.tasks.cancel(cancelled, caller("user:ann"))
                    assert ended.status is TaskStatus.CANCELLED
                    assert await child.said() == "it was cancelled by user:ann"
                    won = 0
                    for task in parked[2:]:  # of two processes that decide one wins
                        with contextlib.suppress(Conflict):
                            await bench.decide(task, "approve")
                            won += 1
                    assert won + await child.said() == len(parked) - 2
                    (tmp_path / "go").touch()
                    async with asyncio.timeout(60):  # pages of one host see what another does
                        while not any(each["status"] == "done" for each in bench.told(running)):
                            await asyncio.sleep(0.05)
                    assert await child.said() == "done"
    finally:
        child.kill()
    assert bench.count("ended") == {"running": 1, "waiting": 12}
    assert bench.count("began") == {"running": 2, "waiting": 12}


async def test_what_a_paused_host_had_is_not_taken_up(tmp_path: Path) -> None:
    child = Child(tmp_path / "p", "task = await bench.submit(seconds=60)\nsay(task.id)")
    try:
        assert await child.said() == "ready"
        task_id = await child.said()
        os.kill(child.process.pid, signal.SIGSTOP)
        async with opened(tmp_path / "p") as bench:
            assert not (await bench.get(task_id, 1.5)).status.is_final
    finally:
        os.kill(child.process.pid, signal.SIGCONT)
        child.kill()


# --- hosts that are killed ------------------------------------------------------------------------

ACCEPTING = """
rng = random.Random({seed})
for number in range({first}, {first} + 40):
    kind = rng.choice(["plain", "idempotent", "approved", "waiting"])
    name, seconds = f"{{number}} {{kind}}", rng.choice([0, 0.02, 0.1, 0.3])
    if kind in ("plain", "idempotent"):
        task = await bench.submit(idempotent=kind == "idempotent", name=name, seconds=seconds)
    else:
        task = await bench.park(name=name)
    say([name, task.id])
    if kind == "approved":
        await bench.decide(task, "approve")
        say([name, "approved"])
    await asyncio.sleep(rng.choice([0, 0, 0.02]))
"""
MARKING = """
rng = random.Random({seed})
calls = set()
for number in range({first}, {first} + 30):
    tool = "mark:" + rng.choice(Marks.KINDS) + rng.choice(["", "-async", "-async"])
    name, seconds = f"{{number}} {{tool}}", rng.choice([0, 0.1, 0.5])
    calls.add(call := asyncio.create_task(bench.call(tool, name, seconds)))
    call.add_done_callback(lambda done, name=name: say([name, done.result().task_id or done.result().status]))
    await asyncio.sleep(rng.choice([0, 0.02]))
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


@pytest.mark.parametrize("part", range(repetitions(1, 4)))
async def test_no_accepted_task_is_lost_or_made_twice(tmp_path: Path, part: int) -> None:
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
            if (await bench.get(task_id)).status is TaskStatus.AWAITING_APPROVAL and name not in approved:
                await bench.decide(task_id, "refuse")
            ended[name] = await bench.ended(task_id)

    began, finished = bench.count("began"), bench.count("ended")
    for name, task in ended.items():
        about = f"seed {seed}, part {part}: {name} {task}"
        if task.status is TaskStatus.DONE:
            assert finished[name] >= 1, about
        elif task.status is TaskStatus.REFUSED:
            assert (began[name], name in approved) == (0, False), about
        else:
            assert (task.status, task.result.error.type) == (TaskStatus.UNKNOWN, ToolErrorType.UNKNOWN_OUTCOME), about
            assert "idempotent" not in name or task.attempt == 3, about
        if "idempotent" not in name:
            assert began[name] <= 1 and task.attempt <= 1, about


@pytest.mark.parametrize("part", range(repetitions(1, 10)))
async def test_no_call_is_made_twice_whatever_its_tool(tmp_path: Path, part: int) -> None:
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    accepted: dict[str, str] = {}
    for kill in range(repetitions(1, 3)):
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


async def test_a_call_that_hosts_die_of_is_given_up(tmp_path: Path) -> None:
    code = """
plain, again = [await bench.submit(seconds=60, idempotent=repeated, name=str(repeated)) for repeated in (False, True)]
await bench.began(2)
say([plain.id, again.id])
"""
    child = Child(tmp_path / "p", code)
    assert await child.said() == "ready"
    plain, again = await child.said()
    child.kill()
    for attempt in (2, 3):
        waiting = f'while (await bench.get("{again}")).attempt < {attempt}:\n    await asyncio.sleep(0.02)'
        child = Child(tmp_path / "p", f"{waiting}\nawait bench.began({attempt + 1})\nsay('begun')")
        assert [await child.said(), await child.said()] == ["ready", "begun"]
        child.kill()
    async with opened(tmp_path / "p") as bench:
        lost, given_up = [await bench.ended(task) for task in (plain, again)]
    assert [(task.status, task.attempt) for task in (lost, given_up)] == [
        (TaskStatus.UNKNOWN, 1),
        (TaskStatus.UNKNOWN, 3),
    ]
    assert lost.result.error.message == "the host ended while it ran: it may have done what it does, or not"
    assert "the host ended 3 times while it ran" in given_up.result.error.message
    assert bench.count("began") == {"False": 1, "True": 3}


async def test_calls_a_host_died_of_are_repeated_if_allowed(tmp_path: Path) -> None:
    calls = [f"mark:{kind}{how}" for kind in Marks.KINDS for how in ("", "-async", "-again")]
    text = (
        '<tool_call name="mark:service"><param name="name">output</param><param name="seconds">-1</param></tool_call>'
    )
    code = f"""
from helpers.workflow_documents import function
from tavern_host.contracts.executions import RunActions, RunRequest
from tavern_host.contracts.workflows import Workflow
calls = [asyncio.create_task(bench.call(tool, tool, -1)) for tool in {calls!r}]
await bench.until(12, 10)
for number in range(5):
    await bench.call("mark:service-async", str(number), -1)
slots = {{"text": "STRING"}}
workflow = Workflow.model_validate(function("same", {{}}, "in.text > out.text", takes=slots, gives=slots))
run = RunRequest(workflow=workflow, inputs={{"text": {text!r}}}, actions=RunActions())
await bench.host.services.get(EXECUTION_ENGINE).submit(run)
await bench.until(14, 11)
say([task.status for task in await bench.tools.tasks()])
"""
    child = Child(tmp_path / "p", code, opener="marking")
    assert await child.said() == "ready"
    assert Counter(await child.said()) == {"running": 11, "pending": 4}
    child.kill()

    (tmp_path / "p" / "scripts" / "go").touch()
    async with marking(tmp_path / "p") as bench:
        tasks = await bench.rested()
        runs = await bench.host.services.get(EXECUTION_ENGINE).history()
        bench.host.audit.flush()
        called = [entry for entry in tail(bench.host.audit.path, 100) if entry.action == "tool.called"]

    once = {tool: 0 if "script" in tool else 1 for tool in calls}  # what a script had written is gone with it
    numbers = {str(number): 1 for number in range(5)}  # those that waited for their turn are queued still
    made = {tool: once[tool] + tool.endswith("-again") for tool in calls}
    assert bench.made() == Counter({**made, **numbers, "output": 1})
    assert Counter((task.tool_id, task.status, task.attempt) for task in tasks) == {
        **{(tool, TaskStatus.DONE, 2): 1 for tool in calls if tool.endswith("-again")},
        **{(tool, TaskStatus.UNKNOWN, 1): 1 + ("service" in tool) for tool in calls if tool.endswith("-async")},
        ("mark:service-async", TaskStatus.DONE, 1): 4,
    }
    assert Counter(run.error for run in runs if run.status is RunStatus.INTERRUPTED) == {
        "the host ended in the middle of it, and so did the call that it was begun by": 12,
        "the host ended in the middle of it, and it cannot be resumed: the calls in its outputs may have been made": 1,
    }
    assert len(called) == len(calls) + 6 + len(Marks.KINDS) + 4  # what was resumed is called again
