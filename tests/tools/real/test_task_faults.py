"""Hosts that share a project, or are killed: no accepted task is lost, and none is carried out twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.audit_logs import tail
from helpers.repetition import repetitions
from helpers.survival import Child, killed, say
from helpers.waiting import until
from helpers.workflow_documents import function
from task_bench import Marks, caller, marking, opened

from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.executions import RunActions, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_tools.api.toolcalls import TaskStatus, ToolErrorType

# --- several hosts --------------------------------------------------------------------------------


async def do_and_decide(root: Path, go: Path) -> None:
    """Have tasks that run and tasks that wait, and decide about those beside another host."""
    async with opened(root) as bench:
        running = await bench.submit(until=str(go), seconds=0, name="running")
        cancelled = await bench.submit(until=str(go.parent), seconds=600, name="running")
        parked = [await bench.park(name="waiting") for _ in range(12)]
        await bench.began(2)
        say([task.id for task in (running, cancelled, *parked)])
        say((await bench.ended(cancelled)).result.error.message)
        won = 0
        for task in parked[2:]:
            with contextlib.suppress(Conflict):
                await bench.decide(task, "approve", "user:child")
                won += 1
        say(won)
        for task in (running, *parked):
            assert (await bench.ended(task)).status == "done"
        say("done")
        await asyncio.Event().wait()


async def test_hosts_leave_alone_what_a_living_one_does(tmp_path: Path) -> None:
    async with Child(do_and_decide, tmp_path / "p", tmp_path / "go") as child:
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
                    # pages of one host see what another does
                    await until(lambda: any(each["status"] == "done" for each in bench.told(running)))
                    assert await child.said() == "done"
    assert bench.count("ended") == {"running": 1, "waiting": 12}
    assert bench.count("began") == {"running": 2, "waiting": 12}


async def work(root: Path) -> None:
    """Begin a task, and say its id."""
    async with opened(root) as bench:
        say((await bench.submit(seconds=60)).id)
        await asyncio.Event().wait()


async def test_what_a_paused_host_had_is_not_taken_up(tmp_path: Path) -> None:
    async with Child(work, tmp_path / "p") as child:
        task_id = await child.said()
        child.send(signal.SIGSTOP)
        async with opened(tmp_path / "p") as bench:
            assert not (await bench.get(task_id, 1.5)).status.is_final


# --- hosts that are killed ------------------------------------------------------------------------


async def accept(root: Path, seed: float, first: int) -> None:
    """Accept tasks of all kinds, and say of each what was done with it."""
    rng = random.Random(seed)
    async with opened(root) as bench:
        say("ready")
        for number in range(first, first + 40):
            kind = rng.choice(["plain", "idempotent", "approved", "waiting"])
            name, seconds = f"{number} {kind}", rng.choice([0, 0.02, 0.1, 0.3])
            if kind in ("plain", "idempotent"):
                task = await bench.submit(idempotent=kind == "idempotent", name=name, seconds=seconds)
            else:
                task = await bench.park(name=name)
            say([name, task.id])
            if kind == "approved":
                await bench.decide(task, "approve")
                say([name, "approved"])
            await asyncio.sleep(rng.choice([0, 0, 0.02]))
        await asyncio.Event().wait()


async def mark(root: Path, seed: float, first: int) -> None:
    """Call tools of all kinds, and say of each call what came of it."""
    rng = random.Random(seed)

    async def call(number: int) -> None:
        tool = "mark:" + rng.choice(Marks.KINDS) + rng.choice(["", "-async", "-async"])
        name = f"{number} {tool}"
        done = await bench.call(tool, name, rng.choice([0, 0.1, 0.5]))
        say([name, done.task_id or done.status])

    async with marking(root) as bench, asyncio.TaskGroup() as calls:
        say("ready")
        for number in range(first, first + 30):
            calls.create_task(call(number))
            await asyncio.sleep(rng.choice([0, 0.02]))
        await asyncio.Event().wait()


async def killed_at(moment: float, function: Callable[..., Any], *arguments: Any) -> list[list[str]]:
    """Kill a host some seconds after it was ready; return what it said in between."""
    async with Child(function, *arguments) as child:
        assert await child.said() == "ready"
        await asyncio.sleep(moment)
        return await child.killed()


@pytest.mark.parametrize("part", range(repetitions(1, 4)))
async def test_no_accepted_task_is_lost_or_made_twice(tmp_path: Path, part: int) -> None:
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    ids: dict[str, str] = {}
    approved: set[str] = set()
    for kill in range(repetitions(2, 4)):
        moment = rng.choice([rng.uniform(0, 0.1), rng.uniform(0.1, 1)])
        for name, word in await killed_at(moment, accept, tmp_path / "p", rng.random(), 1000 * kill):
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
        accepted |= dict(await killed_at(rng.uniform(0.1, 1.5), mark, tmp_path / "p", rng.random(), 1000 * kill))

    async with marking(tmp_path / "p") as bench:
        tasks = {task.id: task for task in await bench.rested()}
        made = bench.made()

    about = f"seed {seed}, part {part}"
    assert {name: count for name, count in made.items() if count > 1} == {}, about
    for name, answer in accepted.items():
        if answer in tasks and tasks[answer].status is not TaskStatus.DONE:
            assert tasks[answer].status is TaskStatus.UNKNOWN, (about, tasks[answer])
        else:
            assert answer in tasks or answer == "done", (about, name, answer)
            assert made[name] == 1, (about, name)


async def begin(root: Path) -> None:
    """Begin a task that is not to be repeated, and one that is, and say their ids."""
    async with opened(root) as bench:
        tasks = [await bench.submit(seconds=60, idempotent=again, name=str(again)) for again in (False, True)]
        await bench.began(2)
        say([task.id for task in tasks])
        await asyncio.Event().wait()


async def repeat(root: Path, task_id: str, attempt: int) -> None:
    """Take up a task, and say so when this attempt has begun."""
    async with opened(root) as bench:

        async def is_repeated() -> bool:
            return (await bench.get(task_id)).attempt == attempt

        await until(is_repeated)
        await bench.began(attempt + 1)
        say("begun")
        await asyncio.Event().wait()


async def test_a_call_that_hosts_die_of_is_given_up(tmp_path: Path) -> None:
    ((plain, again),) = await killed(begin, tmp_path / "p", lines=1)
    for attempt in (2, 3):
        assert await killed(repeat, tmp_path / "p", again, attempt, lines=1) == ["begun"]
    async with opened(tmp_path / "p") as bench:
        lost, given_up = [await bench.ended(task) for task in (plain, again)]
    assert [(task.status, task.attempt) for task in (lost, given_up)] == [
        (TaskStatus.UNKNOWN, 1),
        (TaskStatus.UNKNOWN, 3),
    ]
    assert lost.result.error.message == "the host ended while it ran: it may have done what it does, or not"
    assert "the host ended 3 times while it ran" in given_up.result.error.message
    assert bench.count("began") == {"False": 1, "True": 3}


CALLS = [f"mark:{kind}{how}" for kind in Marks.KINDS for how in ("", "-async", "-again")]
TEXT = '<tool_call name="mark:service"><param name="name">output</param><param name="seconds">-1</param></tool_call>'


async def call_all(root: Path) -> None:
    """Make calls of all kinds that do not end, from a run's output too, and say how their tasks stand."""
    async with marking(root) as bench:
        calls = [asyncio.create_task(bench.call(tool, tool, -1)) for tool in CALLS]
        await bench.until(12, 10)
        for number in range(5):
            await bench.call("mark:service-async", str(number), -1)
        slots = {"text": "STRING"}
        workflow = Workflow.model_validate(function("same", {}, "in.text > out.text", takes=slots, gives=slots))
        run = RunRequest(workflow=workflow, inputs={"text": TEXT}, actions=RunActions())
        await bench.host.services.get(EXECUTION_ENGINE).submit(run)
        await bench.until(14, 11)
        say([task.status for task in await bench.tools.tasks()])
        await asyncio.wait(calls)


async def test_calls_a_host_died_of_are_repeated_if_allowed(tmp_path: Path) -> None:
    (statuses,) = await killed(call_all, tmp_path / "p", lines=1)
    assert Counter(statuses) == {"running": 11, "pending": 4}

    (tmp_path / "p" / "scripts" / "go").touch()
    async with marking(tmp_path / "p") as bench:
        tasks = await bench.rested()
        runs = await bench.host.services.get(EXECUTION_ENGINE).history()
        bench.host.audit.flush()
        called = [entry for entry in tail(bench.host.audit.path, 100) if entry.action == "tool.called"]

    once = {tool: 0 if "script" in tool else 1 for tool in CALLS}  # what a script had written is gone with it
    numbers = {str(number): 1 for number in range(5)}  # those that waited for their turn are queued still
    made = {tool: once[tool] + tool.endswith("-again") for tool in CALLS}
    assert bench.made() == Counter({**made, **numbers, "output": 1})
    assert Counter((task.tool_id, task.status, task.attempt) for task in tasks) == {
        **{(tool, TaskStatus.DONE, 2): 1 for tool in CALLS if tool.endswith("-again")},
        **{(tool, TaskStatus.UNKNOWN, 1): 1 + ("service" in tool) for tool in CALLS if tool.endswith("-async")},
        ("mark:service-async", TaskStatus.DONE, 1): 4,
    }
    assert Counter(run.error for run in runs if run.status is RunStatus.INTERRUPTED) == {
        # Those of tools that are one node were kept by nobody.
        "the host ended in the middle of it, and so did the call that it was begun by": 10,
        "the host ended in the middle of it, and it cannot be resumed: the calls in its outputs may have been made": 1,
    }
    assert len(called) == len(CALLS) + 6 + len(Marks.KINDS) + 4  # what was resumed is called again
