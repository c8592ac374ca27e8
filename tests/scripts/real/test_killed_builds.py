"""What a killed process left of an environment that it built is cleared, and its lock is free."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.survival import Child, say
from helpers.waiting import until
from test_environments_store import KEY, build

from tavern_scripts.environments.store import Store


async def build_half(folder: Path) -> None:
    """Begin to build an environment, and say so."""
    async with Store(folder).building(KEY, lambda: None) as built:
        (built / "half").write_text("x")
        say("ready")
        await asyncio.Event().wait()


async def test_what_a_killed_process_left_is_cleared_and_its_lock_is_free(tmp_path: Path) -> None:
    async with Child(build_half, tmp_path) as child:
        assert await child.said() == "ready"
        store, waited = Store(tmp_path), list[bool]()
        task = asyncio.create_task(build(store, {"a": "1"}, wait=lambda: waited.append(True)))
        await until(lambda: waited)
        assert waited == [True] and not task.done()
        assert store.prune(0) == [] and any(entry.name.startswith(".building") for entry in tmp_path.iterdir())
        await child.killed()

    assert await task
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [KEY, f"{KEY}.lock"]
