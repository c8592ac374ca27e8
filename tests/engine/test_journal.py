"""The journal over a real store: what was added is written soon, whatever the store does, and can be read back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.held_time import HeldClock
from helpers.run_entries import accepted
from helpers.waiting import let_pass
from runs_bench import LOG, opened

from tavern_engine.api.runs import RunEnd
from tavern_engine.journal.batch_rows import Note
from tavern_engine.journal.documents import documents_of, pack, unpack
from tavern_engine.journal.journal import DELAY, Journal, read_results
from tavern_engine.journal.leases import Leases
from tavern_engine.journal.run_store.store import SqlRunStore
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.executions import RunStatus
from tavern_host.contracts.workflows import Workflow

SIGNATURE = bytes(16)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlRunStore]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture
async def journal(store: SqlRunStore) -> AsyncIterator[Journal]:
    made = Journal(store, "w", LOG)
    yield made
    await made.close()


async def outputs(store: SqlRunStore, run_id: str) -> dict[Any, Any]:
    """Return the outputs that a run would go on with, by node and iteration."""
    found = await read_results(await store.batches(run_id), store.content, LOG)
    return {key: row.outputs for key, row in found.items()}


def add(run: Any, node_id: str, outputs: dict[str, Any] | None, **more: Any) -> None:
    run.add(node_id, SIGNATURE, (0.1, 0.2), outputs, Note(**more))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.ERROR]


# --- writing -------------------------------------------------------------------------------------------


async def test_closing_writes_what_is_left(store: SqlRunStore, journal: Journal) -> None:
    await accepted(store, "run_1", "run_2")
    for name in ("run_1", "run_2"):
        add(journal.begin(name), "n", {"value": name})
    await journal.close()
    for name in ("run_1", "run_2"):
        assert await outputs(store, name) == {("n", None): {"value": name}}


async def test_stopping_in_the_middle_of_a_write_is_no_failure(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    run = journal.begin("run_1", not_resumable=told.append)
    add(run, "n", {"value": "x" * 100_000})
    written = asyncio.create_task(run.drain())
    while run._writing is None:
        await asyncio.sleep(0)
    run.stop()
    await written
    assert (told, errors(caplog)) == ([], [])


async def test_a_cancelled_end_is_written_once(journal: Journal) -> None:
    journal.begin("run_1")
    go_on, ends = asyncio.Event(), []

    async def last(batch: Any) -> None:
        ends.append(batch)
        await go_on.wait()

    cut_off = asyncio.create_task(journal.end("run_1", last))
    while not ends:
        await asyncio.sleep(0)
    cut_off.cancel()
    again = asyncio.create_task(journal.end("run_1", last))
    await asyncio.wait([cut_off])
    go_on.set()
    await again
    assert ends == [None]


async def test_a_cancelled_drain_loses_no_results(store: SqlRunStore, journal: Journal) -> None:
    await accepted(store, "run_1")
    run = journal.begin("run_1")
    add(run, "n", {"value": 1})
    draining = asyncio.create_task(run.drain())
    await asyncio.sleep(0)
    draining.cancel()
    await asyncio.gather(draining, return_exceptions=True)
    await run.drain()
    assert await outputs(store, "run_1") == {("n", None): {"value": 1}}


async def test_large_values_are_kept_apart_and_only_once(store: SqlRunStore, journal: Journal, tmp_path: Path) -> None:
    await accepted(store, "run_1")
    run = journal.begin("run_1")
    values = {"text": "语" * 100_000, "bytes": bytes(100_000), "list": [["x"] * 10] * 20_000}
    for number in range(3):
        add(run, f"n{number}", values)
        await run.drain()

    assert await outputs(store, "run_1") == {(f"n{i}", None): values for i in range(3)}
    assert len([path for path in (tmp_path / "values").rglob("*") if path.is_file()]) == len(values)
    assert sum(map(len, await store.batches("run_1"))) < 3000

    await store.update("w", "run_1", RunEnd(status=RunStatus.COMPLETE))
    await store.prune(max_age=1e9, max_bytes=2**40)
    assert await outputs(store, "run_1") == {(f"n{i}", None): values for i in range(3)}


# --- what cannot be kept -------------------------------------------------------------------------------


async def test_a_failing_store_is_reported_once(
    store: SqlRunStore, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    await accepted(store, "run_1", "run_2")
    told: list[str] = []
    runs = [
        journal.begin(name, not_resumable=told.append, lost=lambda: told.append("lost")) for name in ("run_1", "run_2")
    ]
    await store.close()
    for number in range(3):
        for run in runs:
            add(run, f"n{number}", {"value": number})
            await run.drain()

    assert told == ["its results could not be written: the run store is closed"] * 2
    line = "the results of the run run_1 could not be written; the run continues: the run store is closed"
    assert errors(caplog) == [line]


async def test_a_run_of_another_worker_is_not_written(
    store: SqlRunStore, journal: Journal, tmp_path: Path, held_clock: HeldClock
) -> None:
    await accepted(store, "run_1", lease=30)
    told: list[str] = []
    run = journal.begin("run_1", lost=lambda: told.append("lost"), not_resumable=told.append)
    async with opened(tmp_path) as another:
        held_clock.advance(31)
        assert await another.claim("other", 30) is not None
        for number in range(3):
            add(run, f"n{number}", {"value": number})
            await run.drain()
        assert await another.batches("run_1") == []
    assert told == ["lost"]


async def test_runs_wait_while_the_store_is_behind(
    store: SqlRunStore, journal: Journal, held_clock: HeldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tavern_engine.journal.journal.MAX_WAITING", 100)
    await accepted(store, "run_1")
    run = journal.begin("run_1")
    waited = 0
    for number in range(3_000):
        add(run, f"n{number}", {"value": number})
        if number % 100 == 0:
            held_clock.advance(DELAY)
            await asyncio.sleep(0)
            if run.is_full:
                waited += 1
                await run.drain()
                assert not run.is_full
    await run.drain()
    assert waited > 0
    assert len(await outputs(store, "run_1")) == 3_000


# --- reading -------------------------------------------------------------------------------------------


async def test_a_node_whose_large_value_is_gone_counts_as_not_run(
    store: SqlRunStore, journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await accepted(store, "run_1")
    run = journal.begin("run_1")
    add(run, "a", {"value": "x" * 100_000})
    add(run, "b", {"value": 1})
    await run.drain()
    for path in (tmp_path / "values").rglob("*"):
        if path.is_file() and path.stat().st_size == 100_000:
            path.write_bytes(b"torn")
    assert await outputs(store, "run_1") == {("b", None): {"value": 1}}
    assert "the node a counts as not run" in caplog.text


# --- leases --------------------------------------------------------------------------------------------


def wanted() -> None:
    pytest.fail("nobody asked that the run ends")


def not_lost() -> None:
    pytest.fail("nobody said that the run is another's")


@pytest.mark.usefixtures("held_clock")
async def test_a_claim_is_renewed_while_held(store: SqlRunStore) -> None:
    await accepted(store, "run_1", lease=30)
    leases = Leases(store, "w", LOG, lease=30)

    async def lease_until() -> datetime:
        found = (await store.get("run_1")).lease_until
        assert found is not None
        return found

    async def is_renewed(times: int) -> None:
        for _ in range(times):
            before = await lease_until()
            await let_pass(15)
            assert await lease_until() > before

    leases.hold("run_1", not_lost, wanted)
    await is_renewed(3)
    leases.release("run_1")
    await let_pass(15)  # one renewal may be on the way
    before = await lease_until()
    await let_pass(15)
    assert await lease_until() == before
    leases.hold("run_1", not_lost, wanted)
    await is_renewed(1)
    await leases.close()


async def test_a_run_that_another_worker_claimed_is_told_of_once(
    store: SqlRunStore, tmp_path: Path, held_clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    await accepted(store, "run_1", "run_2", lease=30)
    held_clock.advance(31)
    leases = Leases(store, "w", LOG, lease=30)
    lost = asyncio.Event()
    async with opened(tmp_path) as another:
        assert await another.claim("other", 30, run_id="run_1") is not None
        leases.hold("run_1", lost.set, wanted)
        leases.hold("run_2", not_lost, wanted)
        await lost.wait()
        assert "the run run_1 was claimed by another worker and is stopped here" in caplog.text
        assert (await another.get("run_2")).owner == "w"
    await leases.close()


@pytest.mark.usefixtures("held_clock")
async def test_a_store_that_fails_loses_no_run_and_is_told_once(
    store: SqlRunStore, caplog: pytest.LogCaptureFixture
) -> None:
    await accepted(store, "run_1")
    await store.close()
    leases = Leases(store, "w", LOG, lease=30)
    leases.hold("run_1", not_lost, wanted)
    await let_pass(100)
    await leases.close()
    assert errors(caplog) == ["the claims of running workflows could not be prolonged: the run store is closed"]


# --- documents -----------------------------------------------------------------------------------------


async def test_documents_come_back_with_unknown_keys(store: SqlRunStore) -> None:
    main = Workflow.model_validate(
        {"name": "語\ud800", "odd": [1, None], "nodes": [{"id": "n", "type": "t", "width": 3}]}
    )
    group = Workflow(name="group")
    assert pack(main) == pack(Workflow.model_validate(main.model_dump(exclude_unset=True)))
    (first,) = await accepted(store, "run_1")
    names = [await store.put(pack(each)) for each in (main, group)]
    entry = first.model_copy(update={"workflow": names[0], "groups": {"a": names[1], "b": names[1]}})

    assert await documents_of(entry, store.content) == (main, {"a": group, "b": group})


def test_a_document_that_cannot_be_kept_or_read_is_named() -> None:
    with pytest.raises(InvalidInput, match="the workflow odd cannot be stored: Out of range float"):
        pack(Workflow.model_validate({"name": "odd", "x": float("nan")}))
    for content in (b"", b"[]", b"{", b"\xff", b'{"nodes": 1}'):
        with pytest.raises(TavernError, match="a stored workflow cannot be read"):
            unpack(content)
