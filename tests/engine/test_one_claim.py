"""However a run is taken up, and by however many at once, it is carried out once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine_bench import Bench, plugin_folders, workflow
from helpers.stage import STAGE
from helpers.waiting import let_pass
from loops_bench import flow, notes
from runs_bench import store_plugin

from tavern_engine.api.runs import RUN_STORE, RUNS_CHANGED
from tavern_host import Host
from tavern_host.contracts.executions import RunStatus
from tavern_host.contracts.workflows import Workflow

RUNS = 12

HELD_UP = """
    async def claim(self, worker, lease, *, run_id=None, call=None):
        if run_id is not None:
            await STAGE.wait("claim")
        return await self.original.claim(worker, lease, run_id=run_id)
"""
"""A store that is held up where a run is claimed by its id."""


def host(root: Path, *more: Path, serving: bool = True) -> Host:
    """Return a host; one that serves takes up what an earlier one has left."""
    room = {"extensions.tavern-engine.maxConcurrentRuns": RUNS}
    folders = [*plugin_folders("acme_flow"), *more]
    return Host(root, plugins=folders, trust=["acme-flow", "acme-store"], settings=room, serving=serving)


async def abandoned(bench: Bench, document: Workflow, attempt: int = 1, *, hears: bool = True) -> list[str]:
    """Return runs in the store whose worker is gone in this attempt, and let the host hear of them."""
    store = bench.host.services.get(RUN_STORE)
    await let_pass(15)  # recovery begins, and waits for the next abandoned run
    made = await store.get((await bench.run(document)).id)
    waiting = {"status": RunStatus.QUEUED, "started_at": None, "finished_at": None, "outputs": {}, "attempt": attempt}
    entries = [made.model_copy(update={**waiting, "id": f"run_left{number}"}) for number in range(RUNS)]
    for entry in entries:
        await store.accept(entry, worker="gone", lease=1e-6)
    await let_pass(0.01)  # leases end
    if not hears:
        return [entry.id for entry in entries]
    bench.host.events.publish(RUNS_CHANGED, {"promptId": entries[0].id, "worker": "gone"})
    return [entry.id for entry in entries]


async def test_a_run_that_ends_its_host_each_time_is_given_up(tmp_path: Path, file: Path) -> None:
    async with host(tmp_path / "project") as serving:
        bench = Bench(serving)
        runs = await abandoned(bench, workflow({"note": flow("NoteAlways", file=file, value="ran")}), attempt=5)
        ended = [await bench.engine.wait(run) for run in runs]
    assert {run.status for run in ended} == {RunStatus.INTERRUPTED}
    assert all(run.error and "5 times; it is not tried again" in run.error.message for run in ended)
    assert len(notes(file)) == 1


async def test_a_run_that_somebody_interrupted_is_not_taken_up(tmp_path: Path, file: Path) -> None:
    async with host(tmp_path / "project") as serving:
        bench, store = Bench(serving), serving.services.get(RUN_STORE)
        runs = await abandoned(bench, workflow({"note": flow("NoteAlways", file=file, value="ran")}), hears=False)
        for run in runs:
            await store.interrupt(run)
        await let_pass(11)  # recovery looks again
        ended = [await bench.engine.wait(run) for run in runs]
    assert {run.status for run in ended} == {RunStatus.INTERRUPTED}
    assert len(notes(file)) == 1


async def test_a_run_that_somebody_is_claiming_by_its_id_is_not_taken_as_abandoned(tmp_path: Path, file: Path) -> None:
    plugin = store_plugin(tmp_path, HELD_UP)
    async with host(tmp_path / "project", plugin, serving=False) as alone:
        run, *_ = await abandoned(Bench(alone), workflow({"note": flow("NoteAlways", file=file, value="ran")}))
        claims = Bench(alone).state.engine.recorder.claims
        STAGE.reset()
        by_id = asyncio.create_task(claims.claim(run))
        await STAGE.seen("claim").wait()
        assert await claims.claim(run) is None
        taken = []
        while (entry := await claims.claim_abandoned()) is not None:
            taken.append(entry.id)
        STAGE.cue("claim").set()
        assert (await by_id).id == run
        assert len(taken) == RUNS - 1 and run not in taken
