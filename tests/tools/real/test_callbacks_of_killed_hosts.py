"""A killed host owed an address the end of a task: the next host tells it."""

from __future__ import annotations

import json
from pathlib import Path

from task_bench import Child, opened
from test_callbacks import SECRET, receiving, settled


async def test_what_a_killed_host_owed_the_next_tells(tmp_path: Path) -> None:
    async with receiving() as receiver:
        settings = {"callbackHosts": [receiver.place], "callbackSecret": SECRET}
        code = f"task = await bench.submit(seconds=60, callback={receiver.url!r})\n"
        child = Child(tmp_path / "p", f"{code}await bench.is_at(task, TaskStatus.RUNNING)\nsay(task.id)", **settings)
        assert await child.said() == "ready"
        task_id = await child.said()
        child.kill()
        async with opened(tmp_path / "p", **settings) as bench:
            assert (await settled(bench, await bench.ended(task_id))).status == "delivered"
    assert json.loads(receiver.requests[0][1])["task"]["status"] == "unknown"
