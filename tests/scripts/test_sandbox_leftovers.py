"""After any number of runs, however they ended, nothing is left of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from helpers.repetition import repetitions

from tavern_scripts.sandbox.cgroups import find_groups
from tests.scripts.sandboxes import bubblewrap, launch, limits, run, staged

ROUNDS = repetitions(3, 12)
"""Each of five runs; the benchmark does more."""


def there_is(folder: Path) -> dict[str, object]:
    """Return what a run could leave."""
    groups = find_groups()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
        "folders": sorted(path.name for path in folder.iterdir()),
        "groups": sorted(path.name for path in groups.folder.glob(f"tavern-{os.getpid()}-*")) if groups else [],
        "tasks": len(asyncio.all_tasks()),
    }


async def test_nothing_is_left(tmp_path: Path) -> None:
    backend = bubblewrap()
    mounts = [staged("/out", tmp_path / "out")]
    await run(backend, "print(1)", mounts=mounts)
    before = there_is(tmp_path)

    for _ in range(ROUNDS):
        clean = await run(backend, "print(1)", mounts=mounts)
        failed = await run(backend, "raise SystemExit(3)", mounts=mounts)
        broken = await run(backend, "print(1)", mounts=[*mounts, staged("/proc/x", tmp_path)])
        slow = asyncio.ensure_future(run(backend, launch("import time; time.sleep(9)", mounts=mounts)))
        await asyncio.sleep(0.01)
        slow.cancel()
        spent = await run(backend, "while True: pass", limits=limits(cpu=0.02), mounts=mounts)
        await asyncio.wait([slow])
        assert (clean.ended.exit_code, failed.ended.exit_code) == (0, 3)
        assert (broken.ended.reason, spent.ended.reason) == ("broken", "cpu")

    assert there_is(tmp_path) == before
