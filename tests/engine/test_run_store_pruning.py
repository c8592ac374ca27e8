"""What the run store forgets: by age, by size, and values that no run needs."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from helpers.held_time import HeldClock
from helpers.run_entries import accepted, entry, finished
from runs_bench import opened

from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RunEnd, RunStore
from tavern_engine.journal.run_store.pruning import KEPT_SECONDS
from tavern_host import clock
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.executions import RunStatus

FOREVER = 1e12
ALL = 2**60


async def ids(store: RunStore) -> list[str]:
    return sorted(run.id for run in await store.list_runs(RunFilter(limit=1000)))


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "values").rglob("*") if path.is_file()]


async def test_only_old_finished_runs_are_pruned(tmp_path: Path) -> None:
    now = clock.now()
    async with opened(tmp_path) as store:
        for run_id, hours in (("old", 48), ("older", 72), ("new", 1)):
            await finished(store, run_id, finished_at=now - timedelta(hours=hours))
        await accepted(store, "going", submitted_at=now - timedelta(days=400))
        await finished(store, "gone on with", finished_at=now - timedelta(days=400), status=RunStatus.ERROR)
        assert await store.claim("w", 30, run_id="gone on with") is not None

        assert await store.prune(max_age=86_400, max_bytes=ALL) == 2

        assert await ids(store) == ["going", "gone on with", "new"]
        assert await store.prune(max_age=86_400, max_bytes=ALL) == 0


async def test_the_oldest_are_pruned_by_size(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        names = [f"run_{i:03}" for i in range(120)]
        await accepted(store, *names)
        for name in names:
            await store.append("w", name, b"x" * 100_000)
            await store.update("w", name, RunEnd(status=RunStatus.COMPLETE))

        assert await store.prune(max_age=FOREVER, max_bytes=2_050_000) == 100

        assert await ids(store) == names[100:]
        assert await store.prune(max_age=0, max_bytes=ALL) == 20
    assert (tmp_path / "runs.sqlite3").stat().st_size < 1_000_000


async def test_shared_values_count_once(tmp_path: Path, held_clock: HeldClock) -> None:
    async with opened(tmp_path) as store:
        await accepted(store, "a", "b", "c")
        shared, own = await store.put(b"s" * 100_000), await store.put(b"o" * 100_000)
        small = await store.put(b"small")
        for name, contents in (("a", (shared, own, small)), ("b", (shared,)), ("c", (shared,))):
            await store.append("w", name, b"batch", contents=contents)
            await store.update("w", name, RunEnd(status=RunStatus.COMPLETE))

        held_clock.advance(KEPT_SECONDS + 1)
        assert await store.prune(max_age=FOREVER, max_bytes=150_000) == 1

        assert await ids(store) == ["b", "c"]
        assert len(await store.content(shared)) == 100_000
        for gone in (own, small):
            with pytest.raises(NotFound):
                await store.content(gone)


async def test_documents_of_many_runs_are_kept_once(tmp_path: Path, held_clock: HeldClock) -> None:
    large = b'{"nodes":[%s]}' % b",".join(b'{"id":"n%d"}' % i for i in range(10_000))
    async with opened(tmp_path) as store:
        document = await store.put(large)
        await asyncio.gather(*(store.accept(entry(f"run_{i}", document), worker="w", lease=30) for i in range(200)))
        assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 10 * len(large) + 5_000_000
        assert len(files(tmp_path)) == 1
        for i in range(200):
            await store.update("w", f"run_{i}", RunEnd(status=RunStatus.COMPLETE))

        held_clock.advance(KEPT_SECONDS + 1)
        assert await store.prune(max_age=0, max_bytes=ALL) == 200

        assert files(tmp_path) == []


async def test_a_value_just_put_stays(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await finished(store, "run_1")
        name = await store.put(b"value")
        await store.prune(max_age=0, max_bytes=0)
        assert await store.content(name) == b"value"


async def test_unknown_and_half_written_files_are_removed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await finished(store, "run_1")
        stray = tmp_path / "values" / "ab" / ("ab" + "0" * 62)
        stray.parent.mkdir(parents=True)
        half, writing = tmp_path / "values" / ".new-half", tmp_path / "values" / ".new-writing"
        foreign = tmp_path / "values" / "notes.txt"
        for path in (stray, half, writing, foreign):
            path.write_bytes(b"x")
        hours_ago = time.time() - 7200
        os.utime(half, (hours_ago, hours_ago))

        await store.prune(max_age=FOREVER, max_bytes=ALL)

        assert [path.exists() for path in (stray, half, writing, foreign)] == [False, False, True, True]
        assert await ids(store) == ["run_1"]


async def test_limits_below_nothing_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await finished(store, "run_1")
        for max_age, max_bytes in ((-1, 0), (float("nan"), 0), (0, -1)):
            with pytest.raises(InvalidInput, match="must not be below 0"):
                await store.prune(max_age=max_age, max_bytes=max_bytes)
        assert await ids(store) == ["run_1"]
