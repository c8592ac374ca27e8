"""Stopping a run: on request, with its caller, at its deadline, with the host."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, slot, workflow
from helpers.repetition import repetitions
from helpers.waiting import until
from loops_bench import flow, inside, loop, notes, policy

from tavern_host import clock
from tavern_host.contracts.errors import DeadlineExceeded, NotFound

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
HANG = workflow({"n": "Hang"})


async def test_an_interrupt_reaches_every_awaiting_node(shared: Bench, caplog: pytest.LogCaptureFixture) -> None:
    hanging = [f"n{i}" for i in range(100)]
    document = workflow(
        {"one": give(1), **dict.fromkeys(hanging, "Hang"), "after": "Take", "out": "core:GroupOutput"},
        "n0 > after, one > out.early, after > out.late",
        interfaceOutputs={"early": slot(), "late": slot()},
    )
    run_id = await shared.start(document)
    for name in hanging:
        await shared.until("NODE_EXECUTING", nodeId=name)

    await asyncio.gather(*(shared.engine.interrupt(run_id) for _ in range(5)))
    run = await shared.engine.wait(run_id)

    for name in hanging:
        await shared.until("ACME_RELEASED", node=name)
    assert run.status == "interrupted"
    assert run.error is not None and run.error.code == "interrupted"
    assert {name: state.status for name, state in run.nodes.items()} == {
        **{"one": "complete", "after": "skipped", "out": "skipped"},
        **dict.fromkeys(hanging, "interrupted"),
    }
    assert run.outputs == {"early": 1}
    assert "Exception in callback" not in caplog.text
    assert not await shared.engine.interrupt(run.id)
    with pytest.raises(NotFound, match="no run 'run_0'"):
        await shared.engine.interrupt("run_0")


async def test_cancelling_the_waiter_interrupts_its_run(shared: Bench) -> None:
    waiting = asyncio.create_task(shared.run(HANG))
    await shared.until("NODE_EXECUTING", nodeId="n")
    (running,) = (await shared.engine.queue()).running

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (await shared.engine.get(running.id)).status == "interrupted"


async def test_a_run_ends_at_its_deadline(shared: Bench) -> None:
    run = await shared.late(lambda call: shared.run(HANG, call), lambda run: run.nodes["n"].started is not None)

    assert run.status == "error"
    assert run.error is not None and run.error.code == "deadline_exceeded"
    assert run.nodes["n"].status == "interrupted"
    late = shared.host.call().model_copy(update={"deadline": clock.now() - timedelta(seconds=1)})
    with pytest.raises(DeadlineExceeded):
        await shared.start(HANG, call=late)


async def test_stopping_the_host_stops_its_runs(open_host: OpenHost) -> None:
    """The one that runs, and the one that it had accepted and never begun."""
    async with open_host(settings={"extensions.tavern-engine.maxConcurrentRuns": 1}) as bench:
        running = asyncio.create_task(bench.run(HANG))
        await bench.until("NODE_EXECUTING", nodeId="n")
        waiting = asyncio.create_task(bench.run(workflow({"m": "Hang"})))
        while not (await bench.engine.queue()).pending:
            await asyncio.sleep(0)

    runs = await asyncio.wait_for(asyncio.gather(running, waiting), timeout=60)
    assert [run.status for run in runs] == ["interrupted", "interrupted"]


async def test_a_node_may_clean_up_before_its_run_ends(shared: Bench, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    run_id = await shared.start(workflow({"n": flow("SlowToEnd", file=file, seconds=0.2)}))
    await shared.until("NODE_EXECUTING", nodeId="n")
    await shared.interrupted(run_id)
    assert notes(file) == ["tidied up"]


async def test_a_node_that_ignores_an_interrupt_is_left_behind(open_host: OpenHost, tmp_path: Path) -> None:
    node = flow("Swallow", file=tmp_path / "notes", seconds=90)
    places: dict[str, dict[str, Any]] = {
        "alone": {"n": node},
        "with a time limit": {"n": policy(node, timeout=60)},
        "tried again": {"n": policy(node, retry=3)},
        "in a loop": {"z": loop(count=2), "n": inside("z", node)},
        "in two loops": {"z": loop(count=2), "y": inside("z", loop(count=2)), "n": inside("y", node)},
        "in a loop with a time limit": {"z": policy(loop(count=2), timeout=60), "n": inside("z", node)},
        "ends at last": {"n": flow("Swallow", file=tmp_path / "last", seconds=90)},
    }
    settings = {"extensions.tavern-engine.maxConcurrentRuns": len(places) + 1}
    async with open_host("acme_flow", settings=settings) as bench:
        runs = {name: await bench.start(workflow(nodes)) for name, nodes in places.items()}
        for run_id in runs.values():
            await bench.until("NODE_EXECUTING", nodeId="n", promptId=run_id)

        ended = dict(zip(runs, await asyncio.gather(*map(bench.interrupted, runs.values())), strict=True))

        assert {(run.status, run.nodes["n"].status) for run in ended.values()} == {("interrupted", "interrupted")}
        assert [notes(tmp_path / name).count("ended") for name in ("notes", "last")] == [0, 0]
        assert (await bench.run(workflow({"one": give(1)}))).status == "complete"
        for name in ("notes", "last"):
            (tmp_path / f"{name}.over").touch()
        await until(lambda: "ended" in notes(tmp_path / "last"))
        assert await bench.engine.get(runs["ends at last"]) == ended["ends at last"]


async def test_a_quick_loop_can_be_interrupted_anywhere(shared: Bench) -> None:
    document = workflow(
        {"z": loop("n: INTEGER = 0", count=100_000, maxIterations=100_000), "add": inside("z", "Add")},
        "z.in__n > add.a, add.sum > z.next__n",
    )
    for turns in range(1, repetitions(30, 60), 3):
        run_id = await shared.start(document)
        for _ in range(turns):
            await asyncio.sleep(0)
        run = await asyncio.wait_for(shared.interrupted(run_id), 60)
        assert run.status == "interrupted"
