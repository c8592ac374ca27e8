"""A run is carried out once, whichever ways it is taken up at one host, or at two that share a store, and whenever.

A start, a turn of a schedule and a retry make a run of their own, and claim no other. Runs of agents and tasks have
claims of their own, as their stores are others than that of runs: `check_idle` and `begin` there decide between hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

import pytest
from engine_bench import Bench, plugin_folders, workflow
from helpers.repetition import Failures
from helpers.waiting import until
from loops_bench import flow, notes

from tavern_engine.api.runs import RUN_STORE
from tavern_host import Host
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.executions import RunStatus

WAYS = ("resume", "interrupt", "recover")
TIMES = ("at once", "while it works")


@pytest.fixture
def projects(tmp_path: Path) -> tuple[Path, Path]:
    """Return the projects of two hosts that have one store: a server, and a command beside it."""
    return tmp_path / "project", tmp_path / "project"


def hosts(projects: tuple[Path, Path]) -> list[Host]:
    about = {"plugins": plugin_folders("acme_flow"), "trust": ["acme-flow"]}
    here, there = projects
    return [Host(here, serving=True, **about), Host(there, serving=here != there, **about)]


async def take_up(bench: Bench, way: str, run: str) -> None:
    """Take a run up in this way; who comes second hears so, or of no run."""
    with contextlib.suppress(Conflict):
        if way == "resume":
            await bench.engine.resume(run)
        elif way == "interrupt":
            await bench.engine.interrupt(run)
        else:
            await bench.state.engine._recovery._claim_abandoned()


async def test_each_run_is_carried_out_once_and_ends_alike_at_both(projects: tuple[Path, Path], tmp_path: Path) -> None:
    file, go = tmp_path / "notes", tmp_path / "go"
    nodes = {"note": flow("NoteAlways", file=file, value="ran"), "wait": flow("WaitUntil", file=go)}
    one, other = hosts(projects)
    async with one, other:
        here, there = Bench(one), Bench(other)
        store = one.services.get(RUN_STORE)
        go.touch()
        made = await store.get((await here.run(workflow(nodes, "note > wait"))).id)
        fresh = {"status": RunStatus.QUEUED, "started_at": None, "finished_at": None, "outputs": {}}
        with Failures() as failures:
            for number, row in enumerate(itertools.product(WAYS, WAYS, TIMES, ("elsewhere", "here"))):
                go.unlink()
                before, (first, second, when, where) = len(notes(file)), row
                left = made.model_copy(update={**fresh, "id": f"run_{number}"})
                await store.accept(left, worker=f"gone {number}", lease=1e-6)
                acts = [take_up(here, first, left.id), take_up(here if where == "here" else there, second, left.id)]
                if when == "at once":
                    await asyncio.gather(*acts)
                else:
                    await acts[0]
                    if first != "interrupt":
                        await until(lambda count=before: len(notes(file)) > count)
                    await acts[1]
                go.touch()
                heard = [(await bench.engine.wait(left.id)).status for bench in (here, there)]
                with failures.row(row):
                    assert heard == [(await store.get(left.id)).status] * 2
                    assert len(notes(file)) - before <= 1
                    assert heard[0] is RunStatus.COMPLETE or "interrupt" in row
                    assert heard[0] is RunStatus.INTERRUPTED or len(notes(file)) == before + 1


async def test_a_run_that_one_host_resumes_has_not_ended_at_the_other(
    projects: tuple[Path, Path], tmp_path: Path
) -> None:
    go, (one, other) = tmp_path / "go", hosts(projects)
    async with one, other:
        here, there = Bench(one), Bench(other)
        run = await here.start(workflow({"wait": flow("WaitUntil", file=go)}))
        await here.interrupted(run)
        await here.engine.resume(run)
        assert not (await there.engine.get(run)).status.is_final
        go.touch()
        assert (await there.engine.wait(run)).status is RunStatus.COMPLETE


async def test_runs_that_two_hosts_retry_are_two(projects: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "notes"
    one, other = hosts(projects)
    async with one, other:
        benches = [Bench(one), Bench(other)]
        made = await benches[0].run(workflow({"note": flow("NoteAlways", file=file, value="ran")}))
        runs = await asyncio.gather(*(bench.engine.rerun(made.id) for bench in benches))
        ended = [await bench.engine.wait(run) for bench in benches for run in runs]
    assert {(run.id, run.status) for run in ended} == {(run, RunStatus.COMPLETE) for run in runs}
    assert notes(file) == ["ran"] * 3
