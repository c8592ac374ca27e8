"""How many runs go on at a time, which of those that wait comes next, how many may, and what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, output, workflow
from loops_bench import flow, notes

from tavern_host.contracts.errors import LimitReached
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

LIMIT = "extensions.tavern-engine.maxConcurrentRuns"
QUEUE = "extensions.tavern-engine.maxQueuedRuns"


@asynccontextmanager
async def one_at_a_time(open_host: OpenHost, **settings: Any) -> AsyncIterator[tuple[Bench, str]]:
    """A host whose only turn is taken by a run that hangs; the second is that run's id."""
    async with open_host("acme_flow", settings={LIMIT: 1, **settings}) as bench:
        first = await bench.start(workflow({"n": "Hang"}))
        await bench.until("NODE_EXECUTING", nodeId="n")
        yield bench, first


async def submit(bench: Bench, file: Path, name: str, priority: int = 0) -> str:
    document = workflow({"n": flow("NoteAlways", file=file, value=name)})
    return await bench.engine.submit(RunRequest(workflow=document, priority=priority))


async def test_higher_priorities_come_first_then_first_come(open_host: OpenHost, file: Path) -> None:
    """Those that are interrupted while they wait never begin."""
    asked = [("a", 0), ("b", 5), ("c", -3), ("d", 5), ("e", 0), ("f", 1000), ("g", -1000)]
    async with one_at_a_time(open_host) as (bench, first):
        runs = [await submit(bench, file, name, priority) for name, priority in asked]
        unwanted = [await submit(bench, file, "unwanted", priority) for priority in range(5)]
        for run_id in unwanted:
            assert (await bench.interrupted(run_id)).status == "interrupted"
        assert [await bench.engine.interrupt(run_id) for run_id in unwanted] == [False] * 5
        await bench.engine.interrupt(first)
        for run_id in runs:
            assert (await bench.engine.wait(run_id)).status == "complete"

    assert notes(file) == ["f", "b", "d", "a", "e", "c", "g"]


async def test_a_run_is_refused_when_enough_wait_already(open_host: OpenHost, file: Path) -> None:
    """However many are submitted at the same moment; a run within a run need not wait."""
    async with one_at_a_time(open_host, **{QUEUE: 3}) as (bench, first):
        answers = await asyncio.gather(*(submit(bench, file, str(i)) for i in range(20)), return_exceptions=True)
        waiting = [answer for answer in answers if isinstance(answer, str)]
        refused = [answer for answer in answers if isinstance(answer, LimitReached)]
        assert {answer.message for answer in refused} == {
            "the run was not accepted: 3 runs wait already; try again later"
        }
        assert [answer.info.details["retry_after"] for answer in refused] == [1] * 17
        assert (len(waiting), len((await bench.engine.queue()).pending)) == (3, 3)
        with pytest.raises(LimitReached, match="3 runs wait already"):
            await submit(bench, file, "too many")
        run = await bench.run(workflow({"one": give(1)}), call=bench.host.call().child(run_id=first))
        assert run.status == "complete"

        await bench.interrupted(waiting[0])
        another = await submit(bench, file, "another")
        await bench.engine.interrupt(first)
        assert (await bench.engine.wait(another)).status == "complete"


async def test_runs_that_need_not_wait_are_accepted_with_the_smallest_queue(open_host: OpenHost) -> None:
    async with open_host("acme_flow", settings={LIMIT: 4, QUEUE: 1}) as bench:
        answers = await asyncio.gather(*(bench.start(workflow({f"n{i}": "Hang"})) for i in range(5)))

        queue = await bench.engine.queue()
        assert (len(queue.running) + len(queue.pending), len(queue.pending)) == (len(answers), 1)


async def test_a_deadline_holds_for_a_waiting_run_too(open_host: OpenHost) -> None:
    async with one_at_a_time(open_host) as (bench, _):
        run = await bench.late(lambda call: bench.run(workflow({"m": "Hang"}), call))

        assert run.error is not None and run.error.code == "deadline_exceeded"
        assert (await bench.engine.queue()).pending == []


async def test_queue_updates_tell_what_runs_and_what_waits(open_host: OpenHost) -> None:
    async with open_host(settings={LIMIT: 1}) as bench:
        updates = bench.host.events.subscribe("SYSTEM_QUEUE_UPDATE")
        ids = [await bench.start(workflow({"n": "Hang"})) for _ in range(2)]
        async for event in updates:
            payload: Any = event.payload  # type: ignore[union-attr]
            states = [[run["promptId"] for run in payload[f"{kind}Executions"]] for kind in ("running", "pending")]
            if states == [ids[:1], ids[1:]]:
                break


async def test_runs_that_memory_has_no_room_for_are_found_in_the_store(bench: Bench) -> None:
    first = await bench.run(workflow({"one": give(1)}, name="short"))
    for _ in range(501):
        await bench.run(Workflow())

    found = await bench.engine.get(first.id)

    assert (found.status, found.workflow_name, output(found, "one")) == ("complete", "short", 1)
