"""Several hosts share a queue of runs: one that waits at a busy host runs at another, and ends for its callers here."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.postgres import shared_server
from helpers.run_entries import accepted, finished
from helpers.workflow_documents import function, workflow_document

from benchmarks.enginegraphs import node_id
from benchmarks.faultchild import PLUGIN, Place, graph_of
from tavern_engine import EngineState
from tavern_engine.api.executions import ExecutionEngine
from tavern_engine.api.runs import RUNS_CHANGED, RunEnd, RunEntry
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store.schema import RUNS
from tavern_engine.journal.run_store.store import SqlRunStore
from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import Conflict, ServiceUnavailable
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.storage.databases import SharedDatabase, SqlDatabase
from tavern_postgres.database import Connection
from tavern_postgres.sql_databases import PostgresDatabases

pytestmark = pytest.mark.usefixtures("database")


def waits(**more: Any) -> RunRequest:
    """Return the request of a run that ends when it is interrupted."""
    document = workflow_document({"n": {"type": "core:Wait", "inputValues": {"seconds": 3600}}})
    return RunRequest(workflow=Workflow.model_validate(document), **more)


def short(number: int, **more: Any) -> RunRequest:
    return RunRequest(workflow=graph_of(number, depth=2, width=2).workflow(), **more)


@asynccontextmanager
async def two_hosts(folder: Path) -> AsyncIterator[tuple[Host, ExecutionEngine, Place]]:
    """Give a host, and another one's engine and place; each runs one run at a time."""
    here, there = Place(folder / "here"), Place(folder / "there")
    for place in (here, there):
        place.fill()
    async with here.host(serving=True, runs=1) as host, there.host(serving=True, runs=1) as other:
        async with asyncio.timeout(120):
            yield host, other.services.get(EXECUTION_ENGINE), there


async def running(engine: ExecutionEngine, run_id: str) -> None:
    """Return when a run runs at a host."""
    while run_id not in [run.id for run in (await engine.queue()).running]:
        await asyncio.sleep(0.02)


async def both_busy(engine: ExecutionEngine, elsewhere: ExecutionEngine) -> list[str]:
    """Return the runs that keep two hosts busy."""
    runs = [await engine.submit(waits()) for _ in range(2)]
    for one, run_id in zip((engine, elsewhere), runs, strict=True):
        await running(one, run_id)
    return runs


async def pending(engine: ExecutionEngine) -> list[str]:
    return [run.id for run in (await engine.queue()).pending]


async def at_home(host: Host) -> list[RunRequest]:
    """Return requests of runs that take or give what is at one host alone: a Blob, bytes, a stream."""
    blob = (await host.blobs.put(b"bytes")).to_json()
    stream = {"n": {"type": "core:TextToStream", "inputValues": {"text": "a b"}}}
    documents = (
        function("takes a Blob", {}, takes={"data": "BINARY"}, gives={}),
        function("gives bytes", {}, takes={}, gives={"data": "BINARY"}),
        function("streams", stream, "n.stream > out.text", takes={}, gives={"text": "STRING"}),
    )
    workflows = map(Workflow.model_validate, documents)
    return [RunRequest(workflow=one, inputs={"data": blob} if one.interface_inputs else {}) for one in workflows]


async def test_waiting_runs_run_in_order_at_a_free_host(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (host, elsewhere, there):
        engine = host.services.get(EXECUTION_ENGINE)
        busy = await both_busy(engine, elsewhere)
        stay = [await engine.submit(short(9), call=system_call("test").child(timeout=3600))]
        stay += [await engine.submit(request) for request in (short(8, recover=False), *await at_home(host))]
        order = [await engine.submit(short(n, priority=priority)) for n, priority in ((1, 0), (2, 0), (3, 5))]
        caller = asyncio.create_task(engine.run(short(4)))
        while len(waiting := await pending(engine)) < len(stay) + 4:
            await asyncio.sleep(0.02)
        order = [order[2], order[0], order[1], waiting[-1]]

        assert await elsewhere.interrupt(busy[1])
        results: list[Run] = [*(await asyncio.gather(*map(engine.wait, order[:3]))), await caller]
        assert [run.id for run in results] == order
        for run, number in zip(results, (3, 1, 2, 4), strict=True):
            assert (run.status, run.attempt, run.error) == (RunStatus.COMPLETE, 1, None)
            wanted = graph_of(number, depth=2, width=2).results
            assert {node_id(i): run.nodes[node_id(i)].output for i in wanted} == {
                node_id(i): v for i, v in wanted.items()
            }
        begun = [line.split()[0] for line in there.log.read_text().splitlines() if " begins " in line]
        assert [*dict.fromkeys(begun)] == order
        assert len(begun) == sum(len(graph_of(n, depth=2, width=2)) for n in (1, 2, 3, 4))
        assert (await pending(engine), (await engine.queue()).running[0].id) == (stay, busy[0])

        assert await engine.interrupt(busy[0])
        ended = await asyncio.gather(*map(engine.wait, stay))
        assert [(run.status, run.error) for run in ended] == [(RunStatus.COMPLETE, None)] * len(stay)
        assert [run.id for run in (await elsewhere.queue()).running] == []
        assert not {*stay} & {*begun}


async def test_a_free_host_starts_what_it_accepts(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (host, _, there):

        async def look() -> None:
            while True:
                host.events.publish(RUNS_CHANGED, {"promptId": "none", "worker": "none"})
                await asyncio.sleep(0.001)

        looking = asyncio.create_task(look())
        engine = host.services.get(EXECUTION_ENGINE)
        runs = [await engine.run(short(number)) for number in range(12)]
        looking.cancel()
        assert {run.status for run in runs} == {RunStatus.COMPLETE}
        assert not there.log.exists()


async def test_a_host_that_drains_leaves_what_waits(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (host, elsewhere, there):
        engine = host.services.get(EXECUTION_ENGINE)
        busy, follower = await engine.submit(waits()), asyncio.create_task(engine.run(waits()))
        while not (moved := (await elsewhere.queue()).running):
            await asyncio.sleep(0.02)
        left = await engine.submit(short(1))
        caller = asyncio.create_task(engine.wait(left))
        stays = await engine.submit(short(2), call=system_call("test").child(timeout=3600))
        assert host.begin_draining() > 0
        theirs = await elsewhere.submit(short(3))

        assert await engine.interrupt(busy)
        assert (await engine.wait(stays)).status is RunStatus.COMPLETE
        assert (told := (await caller).error) and told.message == "the host stopped the run"
        assert [(await elsewhere.get(one)).status for one in (left, theirs)] == [RunStatus.QUEUED] * 2
        assert await elsewhere.interrupt(moved[0].id)
        assert (told := (await follower).error) and told.message == "the run was interrupted"
        ended = [await elsewhere.wait(one) for one in (left, theirs)]
        assert [(run.status, run.attempt) for run in ended] == [(RunStatus.COMPLETE, 1)] * 2
        begun = [
            {line.split()[0] for line in place.log.read_text().splitlines()}
            for place in (Place(host.project.root.parent), there)
        ]
        assert begun == [{stays}, {left, theirs}]


async def test_a_run_is_interrupted_wherever_it_waits_or_runs(tmp_path: Path) -> None:
    async with two_hosts(tmp_path) as (host, elsewhere, _):
        engine = host.services.get(EXECUTION_ENGINE)
        here, there = await both_busy(engine, elsewhere)
        assert await elsewhere.interrupt(there)
        for asked in (engine, elsewhere):
            moved = await engine.submit(waits())
            await running(elsewhere, moved)
            assert await asked.interrupt(moved)
            ended = [await one.wait(moved) for one in (engine, elsewhere)]
            assert [run.status for run in ended] == [RunStatus.INTERRUPTED] * 2
            assert ended[0].error is not None and ended[0].error.message == "the run was interrupted"
        caller = asyncio.create_task(engine.run(waits()))
        while not (found := (await elsewhere.queue()).running):
            await asyncio.sleep(0.02)
        caller.cancel()
        await asyncio.wait([caller])
        assert (await elsewhere.wait(found[0].id)).status is RunStatus.INTERRUPTED

        full = await engine.submit(waits())
        await running(elsewhere, full)
        for asked in (engine, elsewhere):
            queued = await engine.submit(waits())
            assert await asked.interrupt(queued)
            assert (await engine.wait(queued)).status is RunStatus.INTERRUPTED
        assert (await pending(engine), [run.id for run in (await elsewhere.queue()).running]) == ([], [full])
        assert host.begin_draining() > 0 and await engine.interrupt(here)
        while host.in_flight():  # not with the run that is elsewhere, since nobody waits for it here
            await asyncio.sleep(0.02)


async def test_a_run_waits_for_a_host_that_has_its_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tavern_engine.recovery._RECOVER_EVERY", 0.2)
    without = Place(tmp_path / "without")
    without.fill()
    (without.root / PLUGIN / "plugin.yaml").write_text("no manifest")
    here = Place(tmp_path / "here")
    here.fill()
    async with without.host(serving=True, runs=1) as other, here.host(serving=True, runs=1) as host:
        async with asyncio.timeout(120):
            engine, elsewhere = (one.services.get(EXECUTION_ENGINE) for one in (host, other))
            busy, there = await both_busy(engine, elsewhere)
            assert await elsewhere.interrupt(there)
            needed = [await engine.submit(short(number)) for number in range(4)]
            while await pending(engine):  # the other host has taken all, and runs none
                await asyncio.sleep(0.02)
            for asked in (engine, elsewhere):
                unwanted = needed.pop()
                assert (await asked.get(unwanted)).status is RunStatus.QUEUED
                assert await asked.interrupt(unwanted)
                assert (await asked.wait(unwanted)).status is RunStatus.INTERRUPTED
            assert await engine.interrupt(busy)
            ended = [await engine.wait(run_id) for run_id in needed]
            assert [(run.status, run.attempt) for run in ended] == [(RunStatus.COMPLETE, 1)] * 2
            recovery = other._manager.active["tavern-engine"].context.own(EngineState).engine._recovery
            while recovery._handed_on:  # until it sees that these have ended
                await asyncio.sleep(0.02)


async def test_callers_learn_that_their_host_stops(tmp_path: Path) -> None:
    there = Place(tmp_path / "elsewhere")
    there.fill()
    async with there.host(serving=True, runs=1) as other:
        elsewhere = other.services.get(EXECUTION_ENGINE)
        here = Place(tmp_path / "here")
        here.fill()
        async with here.host(serving=True, runs=1) as host, asyncio.timeout(120):
            engine = host.services.get(EXECUTION_ENGINE)
            busy, moved = await both_busy(engine, elsewhere)
            waited = await engine.submit(short(1))
            caller = asyncio.create_task(engine.wait(moved))
            while moved in await pending(engine):
                await asyncio.sleep(0.02)
        await asyncio.wait([caller], timeout=60)
        assert caller.done()
        assert (await elsewhere.get(moved)).status is RunStatus.RUNNING
        async with asyncio.timeout(120):
            assert await elsewhere.interrupt(moved)
            await running(elsewhere, busy)
            assert await elsewhere.interrupt(busy)
            ended = [await elsewhere.wait(run_id) for run_id in (busy, waited)]
            statuses = [RunStatus.INTERRUPTED, RunStatus.COMPLETE]
            assert [(run.status, run.attempt) for run in ended] == [*zip(statuses, (2, 1), strict=True)]


@asynccontextmanager
async def two_stores(folder: Path) -> AsyncIterator[tuple[SqlRunStore, SqlRunStore]]:
    log, schema = logging.getLogger("test"), f"queue {secrets.token_hex(8)}"
    runs = SqlDatabase(name="runs", file="", migrations=[[*statements] for statements in RUNS.migrations])
    databases = [PostgresDatabases(shared_server(), schema, log) for _ in range(2)]
    here, there = (SqlRunStore(folder, log, ProjectKey(folder), SharedDatabase(one, runs)) for one in databases)
    try:
        yield here, there
    finally:
        for store, one in zip((here, there), databases, strict=True):
            await store.close()
            await one.close()


async def executed(store: SqlRunStore, statement: str) -> list[Any]:
    return await store._writer.write(lambda connection: connection.execute(statement).fetchall())


async def test_leases_that_end_without_the_database_are_prolonged_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_stores(tmp_path) as (here, there):
        await accepted(here, "waited")
        await accepted(here, "ran")
        assert await here.set_stealable("w", "waited", waits=True)
        assert await there.claim("other", 30) is None
        (written_by,) = (await executed(there, "SELECT pg_backend_pid()"))[0]
        await executed(here, f"SELECT pg_terminate_backend({written_by})")
        await executed(here, "UPDATE runs SET lease_until = 0 RETURNING id")
        with pytest.raises(ServiceUnavailable):
            await there.claim("other", 30)
        assert await there.claim("other", 30) is None
        assert await here.set_stealable("w", "waited", waits=False)
        monkeypatch.setattr("tavern_engine.journal.run_store.ownership.BACK", 0.0)
        taken = [await there.claim("other", 30) for _ in range(2)]
        assert [run and run.id for run in taken] == ["ran", None]


async def test_no_host_is_gone_until_it_could_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = f"queue {secrets.token_hex(8)}"
    here, there = (PostgresDatabases(shared_server(), schema, logging.getLogger("test")) for _ in range(2))
    await here.hold("host")
    assert not await there.is_gone("host")
    other = Connection(shared_server(), schema, logging.getLogger("test"), name="test")
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tavern-host: %%'"
    await other.rows(f"{ends} AND pid <> pg_backend_pid()")
    await other.rows("UPDATE hosts SET seen = '-infinity'")
    assert not await there.is_gone("host")
    monkeypatch.setattr("tavern_postgres.sql_databases._ALIVE_SECONDS", 0)
    assert await there.is_gone("host")
    for one in (here, there, other):
        await one.close()


async def test_an_offered_run_is_taken_once_in_order(tmp_path: Path) -> None:
    async with two_stores(tmp_path) as (here, there):
        for number, (run_id, priority) in enumerate((("late", 0), ("urgent", 5), ("kept", 9), ("late too", 0))):
            moment = datetime(2025, 1, 1 + number, tzinfo=UTC)
            await accepted(here, run_id, priority=priority, submitted_at=moment)
        await accepted(here, "not offered", priority=7)
        await finished(here, "over")
        for run_id in ("late", "late too", "urgent", "kept"):
            assert await here.set_stealable("w", run_id, waits=True)
        assert not await here.set_stealable("w", "over", waits=True)
        assert not await there.set_stealable("other", "late", waits=True)
        assert await here.set_stealable("w", "kept", waits=False)
        assert await here.steal("w", 30) is None
        assert await there.claim("other", 30) is None
        assert await there.interrupt("late")

        taken = [found async for found in all_taken(there)]
        assert [(run.id, run.owner, run.cancel_requested) for run in taken] == [
            ("urgent", "other", False),
            ("late", "other", True),
            ("late too", "other", False),
        ]
        assert not await here.set_stealable("w", "late", waits=False)
        assert await here.renew("w", ["late", "kept"], 30) == ["kept"]
        with pytest.raises(Conflict, match="the run 'late' is other's by now"):
            await here.update("w", "late", RunEnd(status=RunStatus.COMPLETE))


async def all_taken(store: SqlRunStore) -> AsyncIterator[RunEntry]:
    while (found := await store.steal("other", 30)) is not None:
        yield found
