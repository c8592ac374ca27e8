"""A run of a host that was killed resumes with the iteration that was cut off."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_bench import PLUGINS, Bench, OpenHost
from helpers.survival import Child, say
from helpers.waiting import until
from loops_bench import notes
from test_resuming import check_counted, counted, kept_rows, resumed

from tavern_host import Host

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def count_to_three(file: Path, go: Path) -> None:
    """Run a loop that waits in its fourth iteration, and say the run once that is recorded."""
    plugins = [PLUGINS / "acme_nodes", PLUGINS / "acme_flow"]
    async with Host(file.parent / "project", plugins=plugins, trust=["acme-nodes", "acme-flow"]) as host:
        bench = Bench(host)
        run_id = await bench.start(counted(file, go=go, at=3))

        async def is_recorded() -> bool:
            return any(row.iteration == 3 for row in await kept_rows(bench, run_id))

        await until(is_recorded)
        say(run_id)
        await asyncio.Event().wait()


async def test_a_loop_resumes_after_its_host_was_killed(open_host: OpenHost, file: Path, go: Path) -> None:
    async with Child(count_to_three, file, go) as child:
        run_id = await child.said()
        await until(lambda: len(notes(file)) == 4)
        await child.killed()
    go.touch()

    async with open_host("acme_flow") as bench:
        check_counted(await resumed(bench, run_id))
    assert notes(file) == ["0", "1", "2", "3", "3", "4", "5"]
