"""The run store on a full disk, and with a database that somebody else does not let go."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import sqlite3
from pathlib import Path

import pytest
from helpers.run_entries import accepted
from helpers.survival import Child, say
from helpers.waiting import until
from runs_bench import opened
from test_run_store_damage import damaged, ids

from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RUN_STORE
from tavern_engine.journal import recorder
from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow


async def fill_disk(folder: Path) -> None:
    """Write beyond what the process may write to a file, and say what fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with opened(folder) as store:
        await accepted(store, "run_1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        for attempt in (store.append("w", "run_1", b"x" * 1_000_000), store.put(b"x" * 1_000_000)):
            try:
                await attempt
            except TavernError as error:
                say(error.message)
        await store.append("w", "run_1", b"small")
        say(len(await store.batches("run_1")))


async def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    async with Child(fill_disk, tmp_path) as child:
        said = await child.ended()
    assert said[0].startswith(f"{tmp_path}/runs.sqlite3: ")
    assert said[1] == f"{tmp_path}/values: the disk is full: make room"
    assert said[2] == 1
    assert await ids(tmp_path) == ["run_1"]
    assert damaged(tmp_path) == []
    assert [path for path in (tmp_path / "values").iterdir() if path.is_file()] == []


async def test_another_process_that_does_not_let_go_is_waited_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await accepted(store, "run_1")
        with sqlite3.connect(tmp_path / "runs.sqlite3", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(store.append("w", "run_1", b"batch"))
            await asyncio.sleep(0.1)
            assert not writing.done()
            assert [run.id for run in await store.list_runs(RunFilter())] == ["run_1"]
            other.execute("COMMIT")
        await writing
        assert await store.batches("run_1") == [b"batch"]


async def test_an_end_that_the_store_takes_long_for_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "PATIENCE", 0.05)
    nodes = [{"id": "n", "type": "core:Wait", "inputValues": {"value": "v" * 100_000, "seconds": 0.3}}]
    document = Workflow.model_validate({"nodes": nodes, "edges": []})
    async with Host(tmp_path / "project") as host:
        engine, runs = host.services.get(EXECUTION_ENGINE), host.services.get(RUN_STORE)
        run_id = await engine.submit(RunRequest(workflow=document))
        path = tmp_path / "project" / ".tavern" / "runs" / "runs.sqlite3"

        async def has_status(status: RunStatus) -> bool:
            return (await runs.get(run_id)).status is status

        await until(lambda: has_status(RunStatus.RUNNING))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await engine.wait(run_id)).status is RunStatus.COMPLETE
            other.execute("ROLLBACK")
        await until(lambda: has_status(RunStatus.COMPLETE))
        assert len(await runs.batches(run_id)) == 1
