"""Which of the runs that wait comes next, how many may wait, and how waiting ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, workflow
from loops_bench import flow, notes

from tavern_host.contracts.errors import LimitReached
from tavern_host.contracts.executions import RunRequest

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


async def test_the_higher_priority_comes_first_and_within_one_first_come_first_served(
    open_host: OpenHost, tmp_path: Path
) -> None:
    file = tmp_path / "order"
    asked = [("a", 0), ("b", 5), ("c", -3), ("d", 5), ("e", 0), ("f", 1000), ("g", -1000)]
    async with one_at_a_time(open_host) as (bench, first):
        runs = [await submit(bench, file, name, priority) for name, priority in asked]
        await bench.engine.interrupt(first)
        for run_id in runs:
            assert (await bench.engine.wait(run_id)).status == "complete"

    assert notes(file) == ["f", "b", "d", "a", "e", "c", "g"]


async def test_a_run_that_would_have_to_wait_is_refused_when_enough_wait_already(
    open_host: OpenHost, tmp_path: Path
) -> None:
    async with one_at_a_time(open_host, **{QUEUE: 2}) as (bench, first):
        waiting = [await submit(bench, tmp_path / "order", str(i)) for i in range(2)]

        with pytest.raises(LimitReached, match="the run was not accepted: 2 runs wait already") as refused:
            await submit(bench, tmp_path / "order", "too many")
        assert refused.value.info.details["retry_after"] == 1

        await bench.engine.interrupt(waiting[0])
        await bench.engine.wait(waiting[0])
        another = await submit(bench, tmp_path / "order", "another")
        await bench.engine.interrupt(first)
        assert (await bench.engine.wait(another)).status == "complete"


async def test_many_submitted_at_the_same_moment_are_no_more_than_may_wait(open_host: OpenHost, tmp_path: Path) -> None:
    async with one_at_a_time(open_host, **{QUEUE: 3}) as (bench, _):
        answers = await asyncio.gather(
            *(submit(bench, tmp_path / "order", str(i)) for i in range(20)), return_exceptions=True
        )

        assert sum(isinstance(answer, str) for answer in answers) == 3
        assert sum(isinstance(answer, LimitReached) for answer in answers) == 17
        assert len((await bench.engine.queue()).pending) == 3


async def test_runs_that_need_not_wait_are_accepted_with_the_smallest_queue(
    open_host: OpenHost, tmp_path: Path
) -> None:
    async with open_host("acme_flow", settings={LIMIT: 4, QUEUE: 1}) as bench:
        answers = await asyncio.gather(*(bench.start(workflow({f"n{i}": "Hang"})) for i in range(5)))

        queue = await bench.engine.queue()
        assert (len(queue.running) + len(queue.pending), len(queue.pending)) == (len(answers), 1)


async def test_a_run_within_a_run_is_accepted_though_the_queue_is_full(open_host: OpenHost, tmp_path: Path) -> None:
    async with one_at_a_time(open_host, **{QUEUE: 1}) as (bench, first):
        await submit(bench, tmp_path / "order", "waits")

        run = await bench.run(workflow({"one": give(1)}), call=bench.host.call().child(run_id=first, timeout=5))

        assert run.status == "complete"


async def test_all_runs_that_wait_can_be_interrupted_and_none_of_them_begins(
    open_host: OpenHost, tmp_path: Path
) -> None:
    file = tmp_path / "order"
    async with one_at_a_time(open_host) as (bench, first):
        waiting = [await submit(bench, file, str(i), i) for i in range(5)]

        for run_id in waiting:
            assert await bench.engine.interrupt(run_id)
        runs = [await bench.engine.wait(run_id) for run_id in waiting]
        await bench.engine.interrupt(first)
        await bench.engine.wait(first)

        assert {run.status.value for run in runs} == {"interrupted"}
        assert [await bench.engine.interrupt(run_id) for run_id in waiting] == [False] * 5
    assert notes(file) == []
