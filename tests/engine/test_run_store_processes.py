"""The run store with several processes at once, and with processes that are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.run_entries import accepted
from runs_bench import Child, opened

from tavern_host.contracts.executions import RunFilter, RunStatus


async def test_each_run_is_claimed_by_one_worker(tmp_path: Path) -> None:
    names = {f"run_{i}" for i in range(60)}
    async with opened(tmp_path) as store:
        await accepted(store, *names, lease=0.001)
    workers = [
        Child(
            tmp_path,
            f"""
say("ready")
sys.stdin.readline()
while (claimed := await store.claim("worker {number}", 1000)) is not None:
    await store.append("worker {number}", claimed.id, b"worker {number}")
    say(claimed.id)
say("waiting")
sys.stdin.readline()
""",
        )
        for number in range(3)
    ]
    try:
        assert [await worker.said() for worker in workers] == ["ready"] * 3
        for worker in workers:
            worker.process.stdin.write("go\n")
            worker.process.stdin.flush()

        async def claimed(worker: Child) -> list[str]:
            found = []
            while (name := await worker.said()) != "waiting":
                found.append(name)
            return found

        found = await asyncio.gather(*(claimed(worker) for worker in workers))

        assert sorted(name for each in found for name in each) == sorted(names)
        async with opened(tmp_path) as store:
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


async def test_processes_make_one_store_at_once(tmp_path: Path) -> None:
    children = [
        Child(tmp_path / "new", f'await accepted(store, "run_{number}", worker="w{number}")') for number in range(3)
    ]
    for child in children:
        await child.says_all()
        assert child.process.returncode == 0
    async with opened(tmp_path / "new") as store:
        assert {run.id for run in await store.list_runs(RunFilter())} == {f"run_{number}" for number in range(3)}


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
