"""A killed host owed an address the end of a task: the next host tells it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from helpers.survival import killed, say
from task_bench import opened
from test_callbacks import SECRET, final_callback, receiving

from tavern_tools.api.toolcalls import TaskStatus


async def owe(root: Path, callback: str, settings: dict[str, Any]) -> None:
    """Begin a task whose end is to be told, and say its id."""
    async with opened(root, **settings) as bench:
        task = await bench.submit(seconds=60, callback=callback)
        await bench.is_at(task, TaskStatus.RUNNING)
        say(task.id)
        await asyncio.Event().wait()


async def test_what_a_killed_host_owed_the_next_tells(tmp_path: Path) -> None:
    async with receiving() as receiver:
        settings = {"callbackHosts": [receiver.place], "callbackSecret": SECRET}
        (task_id,) = await killed(owe, tmp_path / "p", receiver.url, settings, lines=1)
        async with opened(tmp_path / "p", **settings) as bench:
            assert (await final_callback(bench, await bench.ended(task_id))).status == "delivered"
    assert json.loads(receiver.requests[0][1])["task"]["status"] == "unknown"
