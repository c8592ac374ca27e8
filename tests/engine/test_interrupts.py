"""Stopping a run: on request, with its caller, at its deadline, with the host."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, slot, workflow
from loops_bench import flow, inside, loop, notes, policy

from tavern_host.contracts.errors import DeadlineExceeded, NotFound
from tavern_host.contracts.executions import RunRequest

OUT = "core:GroupOutput"


async def test_an_interrupt_reaches_every_node_in_the_middle_of_an_await(bench: Bench) -> None:
    document = workflow(
        {"one": give(1), "a": "Hang", "b": "Hang", "after": "Take", "out": OUT},
        "a.value > after.value",
        "one.value > out.early",
        "after.value > out.late",
        interfaceOutputs={"early": slot(), "late": slot()},
    )
    run_id = await bench.start(document)
    await bench.until("NODE_EXECUTING", nodeId="a")
    await bench.until("NODE_EXECUTING", nodeId="b")

    assert await bench.engine.interrupt(run_id)
    run = await bench.engine.wait(run_id)

    await bench.until("ACME_RELEASED", node="a")
    await bench.until("ACME_RELEASED", node="b")
    assert run.status == "interrupted"
    assert run.error is not None and run.error.code == "interrupted"
    assert {name: state.status for name, state in run.nodes.items()} == {
        "one": "complete",
        "a": "interrupted",
        "b": "interrupted",
        "after": "skipped",
        "out": "skipped",
    }
    assert run.outputs == {"early": 1}


async def test_a_finished_run_cannot_be_interrupted_and_an_unknown_one_is_not_found(bench: Bench) -> None:
    run = await bench.run(workflow({}))

    assert not await bench.engine.interrupt(run.id)
    with pytest.raises(NotFound, match="no run 'run_0'"):
        await bench.engine.interrupt("run_0")


async def test_cancelling_who_waits_for_a_run_interrupts_it(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.run(workflow({"n": "Hang"})))
    await bench.until("NODE_EXECUTING", nodeId="n")
    (running,) = (await bench.engine.queue()).running

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (await bench.engine.get(running.id)).status == "interrupted"


async def test_a_run_ends_at_its_deadline(bench: Bench) -> None:
    call = bench.host.call().child(timeout=1.0)

    run = await bench.run(workflow({"n": "Hang"}), call=call)

    assert run.status == "error"
    assert run.error is not None and run.error.code == "deadline_exceeded"
    assert run.nodes["n"].status == "interrupted"


async def test_a_run_whose_deadline_is_over_is_not_begun(bench: Bench) -> None:
    late = bench.host.call().model_copy(update={"deadline": datetime.now(UTC) - timedelta(seconds=1)})

    with pytest.raises(DeadlineExceeded):
        await bench.start(workflow({}), call=late)


async def test_a_node_that_ignores_its_interruption_does_not_keep_its_run(bench: Bench) -> None:
    document = workflow(
        {"n": {"type": "Stubborn", "inputValues": {"seconds": 3.5}}, "after": "Take"}, "n.value > after.value"
    )
    run_id = await bench.start(document)
    await bench.until("NODE_EXECUTING", nodeId="n")
    began = time.monotonic()

    await bench.engine.interrupt(run_id)
    run = await bench.engine.wait(run_id)

    assert time.monotonic() - began < 3
    assert run.nodes["n"].status == "interrupted"
    await asyncio.sleep(3.5)
    assert await bench.engine.get(run_id) == run


async def test_stopping_the_host_stops_its_runs(open_host: OpenHost) -> None:
    began = time.monotonic()
    async with open_host() as bench:
        waiting = asyncio.create_task(bench.engine.run(RunRequest(workflow=workflow({"n": "Hang"}))))
        await bench.until("NODE_EXECUTING", nodeId="n")

    await asyncio.wait([waiting], timeout=5)
    assert time.monotonic() - began < 5
    assert waiting.done()


async def test_a_run_that_the_host_accepted_and_never_began_is_settled_too(open_host: OpenHost) -> None:
    async with open_host() as bench:
        waiting = asyncio.create_task(bench.engine.run(RunRequest(workflow=workflow({"n": "Hang"}))))
        while not (await bench.engine.queue()).pending:  # until it is accepted
            await asyncio.sleep(0)

    run = await asyncio.wait_for(waiting, timeout=5)
    assert run.status == "interrupted"


async def test_an_interrupt_reaches_hundreds_of_nodes_at_once(bench: Bench) -> None:
    run_id = await bench.start(workflow({f"n{i}": "Hang" for i in range(300)}))
    await bench.until("NODE_EXECUTING", nodeId="n299")

    await bench.engine.interrupt(run_id)
    run = await bench.engine.wait(run_id)

    assert {state.status.value for state in run.nodes.values()} == {"interrupted"}
    for index in range(300):
        await bench.until("ACME_RELEASED", node=f"n{index}")


async def test_interrupting_twice_is_as_good_as_once(bench: Bench) -> None:
    run_id = await bench.start(workflow({"n": "Hang"}))
    await bench.until("NODE_EXECUTING", nodeId="n")

    await asyncio.gather(*(bench.engine.interrupt(run_id) for _ in range(5)))

    assert (await bench.engine.wait(run_id)).status == "interrupted"


async def test_a_node_may_tidy_up_before_its_run_ends(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_flow") as bench:
        run_id = await bench.start(workflow({"n": flow("SlowToEnd", file=file, seconds=0.2)}))
        await bench.until("NODE_EXECUTING", nodeId="n")

        await bench.engine.interrupt(run_id)
        await bench.engine.wait(run_id)

        assert notes(file) == ["tidied up"]


@pytest.mark.parametrize(
    "place", ["alone", "with a time limit", "tried again", "in a loop", "in two loops", "in a loop with a time limit"]
)
async def test_a_node_that_takes_long_to_end_does_not_keep_its_run_wherever_it_is(
    open_host: OpenHost, tmp_path: Path, place: str
) -> None:
    node = flow("Swallow", file=tmp_path / "notes", seconds=4)
    nodes: dict[str, Any] = {
        "alone": {"n": node},
        "with a time limit": {"n": policy(node, timeout=60)},
        "tried again": {"n": policy(node, retry=3)},
        "in a loop": {"z": loop(count=2), "n": inside("z", node)},
        "in two loops": {"z": loop(count=2), "y": inside("z", loop(count=2)), "n": inside("y", node)},
        "in a loop with a time limit": {"z": policy(loop(count=2), timeout=60), "n": inside("z", node)},
    }[place]
    async with open_host("acme_flow") as bench:
        run_id = await bench.start(workflow(nodes))
        await bench.until("NODE_EXECUTING", nodeId="n")
        began = time.monotonic()

        await bench.engine.interrupt(run_id)
        run = await bench.engine.wait(run_id)

        assert time.monotonic() - began < 3.5
        assert (run.status, run.nodes["n"].status) == ("interrupted", "interrupted")
        another = await bench.run(workflow({"one": give(1)}))
        assert another.status == "complete"


async def test_an_interrupt_ends_the_waiting_for_a_blocking_node(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_flow") as bench:
        run_id = await bench.start(workflow({"n": flow("Block", file=file, seconds=1.5)}))
        await bench.until("NODE_EXECUTING", nodeId="n")
        began = time.monotonic()

        await bench.engine.interrupt(run_id)
        run = await bench.engine.wait(run_id)

        assert time.monotonic() - began < 1.4
        assert (run.status, notes(file)) == ("interrupted", [])


async def test_an_interrupt_at_any_moment_of_a_quick_loop_ends_the_run(open_host: OpenHost) -> None:
    document = workflow(
        {"z": loop("n: INTEGER = 0", count=100_000, maxIterations=100_000), "add": inside("z", flow("Add"))},
        "z.in__n > add.a",
        "add.sum > z.next__n",
    )
    async with open_host("acme_flow") as bench:
        for turns in range(1, 60, 3):
            run_id = await bench.start(document)
            for _ in range(turns):
                await asyncio.sleep(0)
            await bench.engine.interrupt(run_id)
            run = await asyncio.wait_for(bench.engine.wait(run_id), 10)
            assert run.status == "interrupted"
