"""What a killed process left of an environment that it built is cleared, and its lock is free."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from test_environments_store import KEY, build

from tavern_scripts.environments.store import Store


async def test_what_a_killed_process_left_is_cleared_and_its_lock_is_free(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, pathlib\n"
        "from tavern_scripts.environments.store import Store\n"
        "async def main():\n"
        "    async with Store(pathlib.Path(sys.argv[1])).building(sys.argv[2], lambda: None) as folder:\n"
        "        (folder / 'half').write_text('x')\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), KEY]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None and await process.stdout.readline() == b"ready\n"
    store, waited = Store(tmp_path), list[bool]()
    task = asyncio.create_task(build(store, {"a": "1"}, wait=lambda: waited.append(True)))
    while not waited:
        await asyncio.sleep(0.01)
    assert waited == [True] and not task.done()
    assert store.prune(0) == [] and any(entry.name.startswith(".building") for entry in tmp_path.iterdir())
    process.kill()
    await process.communicate()

    assert await task
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [KEY, f"{KEY}.lock"]
