"""Two hosts of one project, one of which is killed again and again: each trigger fires once, and starts one run."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path

from helpers.repetition import repetitions
from helpers.survival import Child, say
from helpers.waiting import until

from tavern_engine.api.executions import EXECUTION_ENGINE, RunFilter
from tavern_host import clock
from tavern_host.contracts.executions import RunStatus
from tavern_triggers.api.triggers import FiringStatus
from tests.triggers.trigger_bench import TriggerBench, trigger_bench

KILLS, EACH = repetitions(20, 100), 4


async def serve(folder: Path) -> None:
    """Serve the project, and say so once triggers are looked after."""
    async with trigger_bench(folder) as bench:
        await bench.triggers.list_triggers()
        say("ready")
        await asyncio.Event().wait()


async def ended(bench: TriggerBench, ids: list[str]) -> bool:
    firings = await bench.triggers.history(limit=1000)
    return {one.trigger_id for one in firings if one.status.is_final} >= set(ids)


async def test_each_trigger_fires_once_over_kills_of_one_of_two_hosts(tmp_path: Path) -> None:
    chance, ids = random.Random(7), list[str]()
    async with trigger_bench(tmp_path) as bench:
        for kill in range(KILLS):
            async with Child(serve, tmp_path) as child:
                await child.said()
                for place in range(EACH):
                    ids.append(f"t{kill}-{place}")
                    due = clock.now() + timedelta(seconds=0.5)  # of its own: what is past cannot be switched on
                    await bench.on(ids[-1], "schedule", {"at": due.isoformat()}, inputs={"text": ids[-1]})
                await asyncio.sleep(chance.uniform(0.2, 0.9))
                await child.killed()
            await until(lambda: ended(bench, ids))
        firings = await bench.triggers.history(limit=1000)
        assert sorted(one.trigger_id for one in firings) == sorted(ids)
        assert {one.status for one in firings} == {FiringStatus.COMPLETE}
        runs = await bench.host.services.get(EXECUTION_ENGINE).history(RunFilter(limit=1000))
        assert sorted(run.id for run in runs) == sorted(one.run_id or "" for one in firings)
        assert {run.status for run in runs} == {RunStatus.COMPLETE}
