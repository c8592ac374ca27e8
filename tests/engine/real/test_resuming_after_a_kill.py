"""A run of a host that was killed resumes with the iteration that was cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_bench import OpenHost
from helpers.waiting import until
from loops_bench import notes
from runs_bench import begin
from test_resuming import check_counted, resumed

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_loop_resumes_after_its_host_was_killed(open_host: OpenHost, file: Path, go: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from engine_bench import Bench, PLUGINS
from tavern_host import Host
from test_resuming import counted, kept_rows

async def main():
    plugins = [PLUGINS / "acme_nodes", PLUGINS / "acme_flow"]
    async with Host({str(file.parent / "project")!r}, plugins=plugins, trust=["acme-nodes", "acme-flow"]) as host:
        bench = Bench(host)
        run_id = await bench.start(counted(Path({str(file)!r}), go=Path({str(go)!r}), at=3))
        while not any(row.iteration == 3 for row in await kept_rows(bench, run_id)):
            await asyncio.sleep(0.02)
        print(run_id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    child = await begin(code)
    run_id = (await child.stdout.readline()).decode().strip()
    await until(lambda: len(notes(file)) == 4)
    child.kill()
    await child.wait()
    go.touch()

    async with open_host("acme_flow") as bench:
        check_counted(await resumed(bench, run_id))
    assert notes(file) == ["0", "1", "2", "3", "3", "4", "5"]
