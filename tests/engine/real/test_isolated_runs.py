"""Nodes that run in a process of their own: they are killed with their run, and only so many run at a time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from apart_bench import apart
from engine_bench import OpenHost, output, state, workflow
from loops_bench import inside, loop, notes, policy

LIMIT = "extensions.tavern-engine.maxIsolatedProcesses"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def begun(file: Path, count: int = 1) -> list[int]:
    """Return the processes that nodes have begun, as soon as there are so many."""
    while len(found := [int(line.split()[1]) for line in notes(file) if line.startswith("begin")]) < count:
        await asyncio.sleep(0.02)
    return found


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(60):
        while any(is_alive(pid) for pid in pids):
            await asyncio.sleep(0.02)


async def test_an_interrupt_kills_the_processes_of_nodes(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_apart", settings={LIMIT: 2}) as bench:
        nodes = {f"n{i}": apart("Apart", file=file, seconds=600) for i in range(3)}
        run_id = await bench.start(workflow(nodes))
        pids = await begun(file, 2)

        await bench.engine.interrupt(run_id)
        run = await bench.engine.wait(run_id)

        await gone(pids)
        assert run.status == "interrupted"
        assert len(pids) == len(set(pids)) == 2
        assert not any(line.startswith("end") for line in notes(file))


async def test_processes_are_limited_over_all_runs(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_apart", settings={LIMIT: 1}) as bench:
        document = workflow({f"n{i}": apart("Apart", file=file, seconds=0.1, value=i) for i in range(2)})
        runs = [await bench.start(document), await bench.start(document.model_copy(update={"name": "another"}))]
        for run_id in runs:
            assert (await bench.engine.wait(run_id)).status == "complete"

    assert [line.split()[0] for line in notes(file)] == ["begin", "end"] * (len(notes(file)) // 2)


async def test_waiting_for_a_process_costs_no_time_limit(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_apart", settings={LIMIT: 1}) as bench:
        before = time.monotonic()
        await bench.run(workflow({"quick": apart("Apart", file=tmp_path / "others", seconds=0)}))
        limit = 1 + 5 * (time.monotonic() - before)  # a busy machine starts processes slowly
        first = await bench.start(workflow({"a": apart("Apart", file=file, seconds=limit + 1)}))
        await begun(file)

        run = await bench.run(workflow({"b": policy(apart("Apart", file=file, seconds=0), timeout=limit)}))

        assert state(run, "b").status == "complete"
        assert (await bench.engine.wait(first)).status == "complete"


async def test_a_node_waiting_for_a_process_can_be_interrupted(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_apart", settings={LIMIT: 1}) as bench:
        first = await bench.start(workflow({"a": apart("Apart", file=file, seconds=600)}))
        await begun(file)
        second = await bench.start(workflow({"b": apart("Apart", file=file, seconds=0)}))
        await asyncio.sleep(0.05)

        await bench.engine.interrupt(second)
        assert (await bench.engine.wait(second)).status == "interrupted"
        assert [line.split()[0] for line in notes(file)] == ["begin"]
        await bench.engine.interrupt(first)
        await bench.engine.wait(first)
        third = await bench.run(workflow({"c": apart("Apart", file=file, seconds=0, value=3)}))

        assert output(third, "c") == 3


async def test_a_node_in_a_loop_has_a_process_for_each_iteration(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_apart") as bench:
        document = workflow({"z": loop(count=2), "n": inside("z", apart("Apart", file=file, seconds=0))}, "z.index > n")

        run = await bench.run(document)

        assert run.status == "complete"
        assert len(set(await begun(file, 2))) == 2
