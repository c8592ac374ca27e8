"""The run store: accepting, claiming, writing, listing, and values kept apart."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from helpers.run_entries import DOCUMENT, accepted, entry
from runs_bench import opened

from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RUN_STORE
from tavern_engine.journal.run_store.store import SMALL, ProjectRuns, SqlRunStore
from tavern_host import Host, service_info
from tavern_host.contracts.errors import NotFound, ServiceUnavailable

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LARGE = b"x" * (SMALL + 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "project" / ".tavern" / "runs"


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[SqlRunStore]:
    async with opened(folder) as made:
        yield made


async def ids(store: SqlRunStore, **filter: object) -> list[str]:
    return [run.id for run in await store.list_runs(RunFilter.model_validate(filter))]


# --- accepting and reading -----------------------------------------------------------------------------


async def test_reading_makes_no_file_and_files_are_private(store: SqlRunStore, folder: Path) -> None:
    assert await ids(store) == []
    assert await store.claim("w", 30) is None
    assert await store.prune(max_age=0, max_bytes=0) == 0
    assert not folder.exists()

    await accepted(store, "run_1")
    await store.put(b"x" * 100)

    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


async def test_a_closed_store_refuses_and_can_be_closed_twice(folder: Path) -> None:
    async with opened(folder) as store:
        await accepted(store, "run_1")
        await store.close()
        with pytest.raises(ServiceUnavailable, match="the run store is closed"):
            await store.get("run_1")


# --- values kept apart ---------------------------------------------------------------------------------


async def test_a_value_is_found_by_the_hash_of_its_content(store: SqlRunStore, folder: Path) -> None:
    for content in (b"", b"\x00" * 10, bytes(range(256)) * 400):
        first, second = await asyncio.gather(store.put(content), store.put(content))
        assert first == second == hashlib.sha256(content).hexdigest()
        assert await store.content(first) == content
    files = [p.relative_to(folder).as_posix() for p in folder.glob("values/**/*") if p.is_file()]
    assert files == [f"values/{first[:2]}/{first}"]  # the last one, which is not small


async def test_values_damaged_removed_or_linked_are_not_read(store: SqlRunStore, folder: Path, tmp_path: Path) -> None:
    small, large = await store.put(b"right"), await store.put(LARGE)
    path = folder / "values" / large[:2] / large
    path.write_bytes(b"wrong")
    with sqlite3.connect(folder / "runs.sqlite3") as connection:
        connection.execute("UPDATE bodies SET body = x'00'")
    for name, content in ((small, b"right"), (large, LARGE)):
        with pytest.raises(NotFound):
            await store.content(name)
        await store.put(content)
        assert await store.content(name) == content
    path.unlink()
    with pytest.raises(NotFound):
        await store.content(large)
    (tmp_path / "elsewhere").write_bytes(LARGE)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotFound):
        await store.content(large)


# --- lists ---------------------------------------------------------------------------------------------


async def test_runs_are_listed_by_indexes(store: SqlRunStore, folder: Path) -> None:
    document = await store.put(DOCUMENT)
    await asyncio.gather(
        *(
            store.accept(
                entry(f"run_{i}", document, workflow_id=f"w{i % 100}", submitted_at=LONG_AGO + timedelta(seconds=i)),
                worker="w",
                lease=30,
            )
            for i in range(300)
        )
    )

    assert await ids(store, workflow_id="w7", limit=2) == ["run_207", "run_107"]
    assert await ids(store, text="run_123", limit=2) == ["run_123"]
    assert (await ids(store, offset=299)) == ["run_0"]
    plans = {
        "workflow_id = 'w7'": "runs_by_workflow",
        "status = 'queued'": "runs_by_status",
        "submitted > 5": "runs_newest",
    }
    with sqlite3.connect(folder / "runs.sqlite3") as connection:
        for condition, index in plans.items():
            listing = f"SELECT id FROM runs WHERE {condition} ORDER BY submitted DESC, seq DESC LIMIT 50"
            steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {listing}")]
            assert len(steps) == 1
            assert index in steps[0]


# --- as a service --------------------------------------------------------------------------------------


async def test_it_provides_the_service_for_its_project(tmp_path: Path) -> None:
    assert service_info(RUN_STORE, ProjectRuns).handler == "tavern_engine.journal.run_store.store:ProjectRuns"
    async with Host(tmp_path / "project") as host:
        await accepted(host.services.get(RUN_STORE), "run_1")
    assert (tmp_path / "project" / ".tavern" / "runs" / "runs.sqlite3").is_file()
