"""The run store with several processes at once, and with processes that are killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from helpers.run_entries import accepted, finished
from helpers.survival import Child, say
from runs_bench import opened

from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RunEnd
from tavern_engine.journal.run_store import pruning
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.executions import RunStatus


async def claim_all(folder: Path, number: int) -> None:
    """Accept runs of its own, and claim all that are free, both once it is told to."""
    async with opened(folder) as store:
        say("ready")
        sys.stdin.readline()
        names = [f"run_{number}_{i}" for i in range(20)]
        await accepted(store, *names, worker=f"worker {number}", lease=0.001)
        say(names)
        sys.stdin.readline()
        while (claimed := await store.claim(f"worker {number}", 1000)) is not None:
            await store.append(f"worker {number}", claimed.id, f"worker {number}".encode())
            say(claimed.id)
        say("waiting")
        await asyncio.Event().wait()


async def test_each_run_is_claimed_by_one_worker(tmp_path: Path) -> None:
    """Of three, which begin a store at once, with runs of their own for the others."""

    async def claimed(worker: Child) -> list[str]:
        found = []
        while (name := await worker.said()) != "waiting":
            found.append(name)
        return found

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Child(claim_all, tmp_path / "new", n)) for n in range(3)]
        said = []
        for _ in range(2):
            said.append([await worker.said() for worker in workers])
            for worker in workers:
                worker.tell()
        found = await asyncio.gather(*map(claimed, workers))

        assert said[0] == ["ready"] * 3
        assert sorted(name for each in found for name in each) == sorted(name for each in said[1] for name in each)
        async with opened(tmp_path / "new") as store:
            for number, each in enumerate(found):
                for name in each:
                    assert await store.batches(name) == [f"worker {number}".encode()]


async def claim(folder: Path) -> None:
    """Claim a run that has ended and accept another, and say the first."""
    async with opened(folder) as store:
        await finished(store, "run_1", worker="dead")
        await accepted(store, "run_2", worker="dead", lease=1000)
        say((await store.claim("dead", 1000, run_id="run_1")).id)
        await asyncio.Event().wait()


async def test_runs_of_a_killed_process_are_free(tmp_path: Path) -> None:
    async with Child(claim, tmp_path) as child:
        assert await child.said() == "run_1"
        async with opened(tmp_path) as store:
            assert await store.claim("w", 30) is None

            await child.killed()

            claimed = await store.claim("w", 30)
            assert (claimed.id, claimed.status, claimed.owner) == ("run_2", RunStatus.QUEUED, "w")
            assert await store.delete("run_1") is True


async def until_nothing_was_pruned_between(write: Callable[[], Awaitable[Any]]) -> Any:
    while True:
        try:
            return await write()
        except NotFound:
            pass


async def fill(folder: Path, worker: str) -> None:
    """Make runs, and say those that do not end, with their contents."""
    async with opened(folder) as store:

        async def write(name: str, number: int) -> list[str]:
            contents = [await store.put(f"{number % 7} {n}".encode() * 10_000) for n in range(3)]
            await store.append(worker, name, b"batch", contents=tuple(contents))
            return contents

        for number in range(30):
            name = f"run_{worker}_{number}"
            await until_nothing_was_pruned_between(lambda name=name: accepted(store, name, worker=worker))
            contents = await until_nothing_was_pruned_between(lambda name=name, number=number: write(name, number))
            for hash in contents:
                await store.content(hash)
            if number % 3:
                await store.update(worker, name, RunEnd(status="complete"))
            else:
                say([name, contents])


async def prune(folder: Path) -> None:
    """Prune without end, and say how many runs it forgot each time."""
    pruning.KEPT_SECONDS = 0.05
    async with opened(folder) as store:
        say(0)
        while True:
            if count := await store.prune(max_age=0, max_bytes=0):
                say(count)


async def test_pruning_takes_nothing_that_is_needed(tmp_path: Path) -> None:
    async with Child(prune, tmp_path) as pruner, Child(fill, tmp_path, "w0") as one, Child(fill, tmp_path, "w1") as two:
        kept = [line for writer in (one, two) for line in await writer.ended()]
        forgotten = sum(await pruner.killed())

    async with opened(tmp_path) as store:
        listed = {run.id for run in await store.list_runs(RunFilter(limit=1000))}
        assert len(kept) == 20
        assert 0 < forgotten <= 60 - len(listed)
        assert listed >= {name for name, _ in kept}
        for name, contents in kept:
            assert await store.batches(name) == [b"batch"]
            for hash in contents:
                assert await store.content(hash)
