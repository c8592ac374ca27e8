"""The run store with several processes at once, and with processes that are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from runs_bench import Child, opened

from tavern_host.contracts.executions import RunFilter, RunStatus

WORKER = """
say("ready")
sys.stdin.readline()
names = [f"run_{number}_{i}" for i in range(20)]
await accepted(store, *names, worker="worker {number}", lease=0.001)
say(names)
sys.stdin.readline()
while (claimed := await store.claim("worker {number}", 1000)) is not None:
    await store.append("worker {number}", claimed.id, b"worker {number}")
    say(claimed.id)
say("waiting")
sys.stdin.readline()
"""


async def test_each_run_is_claimed_by_one_worker(tmp_path: Path) -> None:
    """Of three, which begin a store at once, with runs of their own for the others."""
    workers = [Child(tmp_path / "new", WORKER.replace("{number}", str(number))) for number in range(3)]

    async def claimed(worker: Child) -> list[str]:
        found = []
        while (name := await worker.said()) != "waiting":
            found.append(name)
        return found

    try:
        said = []
        for _ in range(2):
            said.append([await worker.said() for worker in workers])
            for worker in workers:
                worker.process.stdin.write("go\n")
                worker.process.stdin.flush()
        found = await asyncio.gather(*map(claimed, workers))

        assert said[0] == ["ready"] * 3
        assert sorted(name for each in found for name in each) == sorted(name for each in said[1] for name in each)
        async with opened(tmp_path / "new") as store:
            for number, each in enumerate(found):
                for name in each:
                    assert await store.batches(name) == [f"worker {number}".encode()]
    finally:
        for worker in workers:
            worker.kill()


async def test_runs_of_a_killed_process_are_free(tmp_path: Path) -> None:
    code = 'await finished(store, "run_1", worker="dead")\nawait accepted(store, "run_2", worker="dead", lease=1000)'
    code += '\nsay((await store.claim("dead", 1000, run_id="run_1")).id)'
    child = Child(tmp_path, f"{code}\nsys.stdin.readline()")
    assert await child.said() == "run_1"
    async with opened(tmp_path) as store:
        assert await store.claim("w", 30) is None

        child.kill()

        claimed = await store.claim("w", 30)
        assert (claimed.id, claimed.status, claimed.owner) == ("run_2", RunStatus.QUEUED, "w")
        assert await store.delete("run_1") is True


async def test_pruning_takes_nothing_that_is_needed(tmp_path: Path) -> None:
    writers = [
        Child(
            tmp_path,
            f"""
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.runs import RunEnd

async def until_nothing_was_pruned_between(write):
    while True:
        try:
            return await write()
        except NotFound:
            pass

for number in range(30):
    name = f"run_{worker}_{{number}}"
    await until_nothing_was_pruned_between(lambda: accepted(store, name, worker="worker {worker}"))

    async def write():
        contents = tuple([await store.put(f"{{number % 7}} {{n}}".encode() * 10_000) for n in range(3)])
        await store.append("worker {worker}", name, b"batch", contents=contents)
        return contents

    contents = await until_nothing_was_pruned_between(write)
    for hash in contents:
        await store.content(hash)
    if number % 3:
        await store.update("worker {worker}", name, RunEnd(status="complete"))
    else:
        say([name, contents])
""",
        )
        for worker in range(2)
    ]
    pruner = Child(
        tmp_path,
        """
from tavern_engine.journal.run_store import pruning as module
module.KEPT_SECONDS = 0.05
say(0)
while True:
    if count := await store.prune(max_age=0, max_bytes=0):
        say(count)
""",
    )
    try:
        kept = [line for writer in writers for line in await writer.says_all()]
        assert [writer.process.returncode for writer in writers] == [0, 0]
    finally:
        pruner.kill()
    forgotten = sum(await pruner.says_all())

    async with opened(tmp_path) as store:
        listed = {run.id for run in await store.list_runs(RunFilter(limit=1000))}
        assert len(kept) == 20
        assert 0 < forgotten <= 60 - len(listed)
        assert listed >= {name for name, _ in kept}
        for name, contents in kept:
            assert await store.batches(name) == [b"batch"]
            for hash in contents:
                assert await store.content(hash)
