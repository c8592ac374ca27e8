"""Several hosts on one database: each accepted run ends once, whichever of them are killed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from helpers.repetition import repetitions
from helpers.stub_llm import said
from helpers.survival import Child
from helpers.waiting import until
from helpers.workflow_documents import workflow_document

from benchmarks.enginegraphs import node_id
from benchmarks.faultchild import Place, accept_runs, graph_of
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RUNS_CHANGED
from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.storage.databases import SHARED_DATABASES
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, BaseHeader, KnowledgeEntry
from tavern_llm.api.llm import ChatMessage
from tavern_postgres import audit_copies
from tavern_postgres.moving import move
from tavern_tools.api.tasks import NewTask, TaskEntry
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.tasks.store import SqliteTaskStore
from tests.agents.agent_bench import agent_bench

KILLS = repetitions(3, 30)
AT_ONCE = 3
RUNS, WIDTH, DEPTH = 5, 20, 3
WAITS = Workflow.model_validate(workflow_document({"n": {"type": "core:Wait", "inputValues": {"seconds": 3600}}}))


async def killed_host(host: Host, place: Place, number: int, count: int, *, after: int | None = None) -> list[str]:
    """Start a host, kill it while nodes run there and some are recorded, or when it has accepted `after` runs; return
    those that it had. `host` sees what is recorded."""
    place.fill()
    nodes = WIDTH + 6 * (number % AT_ONCE)
    # it runs four others first
    async with Child(accept_runs, place, number, count, DEPTH, HOLD_AFTER=str(nodes + 4)) as child:
        assert await child.said() == "ready"
        accepted = [await child.said() for _ in range(count if after is None else after)]
        while after is None and (
            begun([place]).total() < nodes + 4 or (accepted and not await kept_of(host, accepted))
        ):
            child.check()
            await asyncio.sleep(0.005)
        return accepted + await child.killed()


def begun(places: list[Place], run_id: str = "") -> Counter[str]:
    """Return how often each node of a run, or of all, was begun, by what the nodes wrote themselves."""
    lines = [line for place in places if place.log.exists() for line in place.log.read_text().splitlines()]
    return Counter(line.split()[1] for line in lines if line.startswith(run_id) and " begins " in line)


@pytest.mark.timeout(300 * KILLS // AT_ONCE)
async def test_runs_of_killed_hosts_end_once_elsewhere(database: str, tmp_path: Path) -> None:
    survivor = Place(tmp_path / "survivor")
    survivor.fill()
    async with survivor.host(serving=True, runs=1) as host:
        for first in range(0, KILLS, AT_ONCE):
            places = [Place(tmp_path / str(number)) for number in range(first, first + AT_ONCE)]
            await end_once(host, [survivor, *places], first)


async def kept_of(host: Host, run_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the nodes that are recorded as ended, by run that has some."""
    runs = {run_id: await nodes_of(host, run_id) for run_id in run_ids}
    ended = {run_id: [n for n, state in nodes.items() if state.status.is_final] for run_id, nodes in runs.items()}
    return {run_id: nodes for run_id, nodes in ended.items() if nodes}


async def end_once(host: Host, places: list[Place], first: int) -> None:
    """Kill a host whose runs wait, one that has just accepted some, and one that takes those; see that all end once."""
    engine = host.services.get(EXECUTION_ENGINE)
    busy = await engine.submit(RunRequest(workflow=WAITS))  # so that the third host is the one with room
    while (await engine.get(busy)).status is not RunStatus.RUNNING:
        await asyncio.sleep(0.02)
    _, waiting, begins, takes = places
    numbers = [RUNS * (first + number) for number in range(AT_ONCE)]
    lists = await asyncio.gather(
        killed_host(host, waiting, numbers[0], RUNS),
        killed_host(host, begins, numbers[1], RUNS, after=RUNS - first // AT_ONCE % RUNS),
        killed_host(host, takes, numbers[2], 0),
    )
    accepted = {run: number + n for number, runs in zip(numbers, lists, strict=True) for n, run in enumerate(runs)}
    kept = await kept_of(host, accepted)
    before = {run_id: begun(places, run_id) for run_id in accepted}
    left = {run_id: await engine.get(run_id) for run_id in accepted}
    assert kept
    assert await engine.interrupt(busy)
    async with asyncio.timeout(120):
        while await engine.history(RunFilter(statuses=[RunStatus.QUEUED, RunStatus.RUNNING])):
            await asyncio.sleep(0.2)
    for run_id, number in accepted.items():
        run = await engine.get(run_id)
        assert (run.status, run.error) == (RunStatus.COMPLETE, None)
        assert run.attempt == left[run_id].attempt + (left[run_id].started_at is not None)
        results = {node_id(i): values for i, values in graph_of(number, depth=DEPTH).results.items()}
        assert {node: run.nodes[node].output for node in results} == results
        times = begun(places, run_id)
        assert len(times) == WIDTH * DEPTH
        assert [node for node in kept.get(run_id, ()) if times[node] != before[run_id][node]] == []
        assert run.attempt > 1 or before[run_id] or set(times.values()) == {1}
    ended = Counter(run.status for run in await engine.history(RunFilter(limit=1000)))
    assert ended.keys() == {RunStatus.COMPLETE, RunStatus.INTERRUPTED}
    assert ended[RunStatus.INTERRUPTED] == 1 + first // AT_ONCE


async def test_a_run_at_one_host_is_followed_at_another(database: str, tmp_path: Path) -> None:
    here, there = Place(tmp_path / "here"), Place(tmp_path / "there")
    for place in (here, there):
        place.fill()
    async with here.host(serving=True) as host, there.host(serving=True) as other:
        heard = other.events.subscribe("NODE_COMPLETE", "EXECUTION_STATUS_UPDATE")
        engine = host.services.get(EXECUTION_ENGINE)
        run_id = await engine.submit(RunRequest(workflow=graph_of(1, depth=2, width=2).workflow()))
        statuses, nodes = [], set[str]()
        async with asyncio.timeout(90):
            async for event in heard:
                assert isinstance(event, Event) and event.plugin == "tavern-postgres"
                if event.payload["promptId"] == run_id and event.type == "NODE_COMPLETE":
                    nodes.add(str(event.payload["nodeId"]))
                elif event.payload["promptId"] == run_id:
                    statuses.append(event.payload["status"])
                    if statuses[-1] == "complete":
                        break
        assert statuses == ["running", "complete"]
        assert nodes >= {node_id(i) for i in range(len(graph_of(1, depth=2, width=2)))}
        seen = await other.services.get(EXECUTION_ENGINE).get(run_id)
        assert seen.status is RunStatus.COMPLETE


async def test_what_one_host_announces_is_heard_at_all(database: str, tmp_path: Path) -> None:
    here, there = Place(tmp_path / "here"), Place(tmp_path / "there")
    for place in (here, there):
        place.fill()
    async with here.host(serving=True) as host, there.host(serving=True) as other, asyncio.timeout(60):
        heard = [one.events.subscribe(RUNS_CHANGED) for one in (host, other)]
        payload = {"promptId": "run_1", "worker": None}
        context = host._manager.active["tavern-engine"].context
        await context.services.get(SHARED_DATABASES).announce(RUNS_CHANGED, payload)
        assert [(await anext(events)).payload for events in heard] == [payload] * 2


async def test_a_run_is_interrupted_at_another_host(database: str, tmp_path: Path) -> None:
    here, there = Place(tmp_path / "here"), Place(tmp_path / "there")
    for place in (here, there):
        place.fill()
    request = RunRequest(workflow=WAITS)
    async with here.host(serving=True) as host, there.host(serving=False) as other:
        engine, elsewhere = host.services.get(EXECUTION_ENGINE), other.services.get(EXECUTION_ENGINE)
        run_id = await engine.submit(request)
        async with asyncio.timeout(60):
            while (await elsewhere.get(run_id)).status is not RunStatus.RUNNING:
                await asyncio.sleep(0.02)
            assert await elsewhere.interrupt(run_id)
            seen = await elsewhere.wait(run_id)
        assert (seen.status, (await engine.wait(run_id)).status) == (RunStatus.INTERRUPTED, RunStatus.INTERRUPTED)
        assert seen.error is not None and seen.error.message == "the run was interrupted"
        assert not await elsewhere.interrupt(run_id)
        left = await engine.submit(request)
    async with there.host(serving=False) as other:  # nobody works on it: its host has ended
        engine = other.services.get(EXECUTION_ENGINE)
        assert await engine.interrupt(left)
        assert (await engine.get(left)).status is RunStatus.INTERRUPTED


async def test_what_two_hosts_write_is_there_at_both(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = Place(tmp_path / "here"), Place(tmp_path / "there")
    for place in (here, there):
        place.fill()
    async with here.host(serving=True) as host, there.host(serving=True) as other:
        bases = [one.services.get(KNOWLEDGE_BASE) for one in (host, other)]
        await bases[0].save_base(BaseHeader(kb_id="lore"))
        entries = [KnowledgeEntry.model_validate({"id": f"e{n}", "content": {"value": "ale"}}) for n in range(12)]
        await asyncio.gather(*(bases[n % 2].put("lore", [entry]) for n, entry in enumerate(entries)))
        for base in bases:
            page = await base.list_entries("lore")
            assert sorted(stored.entry.id for stored in page.entries) == sorted(entry.id for entry in entries)
            assert len(await base.search("ale", limit=20)) == 12
        assert [*tmp_path.rglob("lore.json")] == []
        for number, one in enumerate((host, other)):
            await one.services.get(AUDIT).record("acme.tried", subject=f"ž\0{number}")
        copies = await copied(host, "acme.tried", 2)
        assert {subject for _, subject in copies} == {"ž\0" + "0", "ž\0" + "1"}
        assert len({name for name, _ in copies}) == 2
        assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as tampering:
            await tampering.execute("UPDATE audit SET body = '{}'")
        await host.services.get(AUDIT).record("acme.later")
        assert (await copied(host, "acme.later", 1)).isdisjoint({(name, "") for name, _ in copies})
    assert "does not have the entry" in caplog.text


async def copied(host: Host, action: str, count: int) -> set[tuple[str, str]]:
    """Return the host and the subject of each entry with this action, once there are so many copies."""
    context = host._manager.active["tavern-postgres"].context
    async with asyncio.timeout(60):
        while True:
            said = [o.data async for o in audit_copies.show({"limit": 500}, context) if o.kind == "result"]
            found = {(one["host"], one["subject"]) for one in said[0] if one.get("action") == action}
            if len(found) >= count:
                return found
            await asyncio.sleep(0.1)


async def test_lost_connections_cost_no_result(database: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.fill()
    ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tavern-host: %'"
    async with (
        place.host(serving=True, runs=1) as host,
        await psycopg.AsyncConnection.connect(database, autocommit=True) as other,
    ):
        engine = host.services.get(EXECUTION_ENGINE)
        run_ids = {n: await engine.submit(RunRequest(workflow=graph_of(n).workflow())) for n in (3, 4)}
        ended = 0
        while not (run := await engine.get(run_ids[4])).status.is_final:  # it waits, and may be offered
            ended += len(await (await other.execute(ends)).fetchall())
            await asyncio.sleep(0.05)
        assert ended > 0 and run.status is RunStatus.COMPLETE
    async with place.host(serving=False) as host:
        for number, run_id in run_ids.items():
            kept = await host.services.get(EXECUTION_ENGINE).get(run_id)
            assert (kept.status, kept.attempt, kept.not_resumable) == (RunStatus.COMPLETE, 1, None)
            assert all(kept.nodes[node_id(i)].output == values for i, values in graph_of(number).results.items())


async def test_runs_of_agents_are_taken_up_by_a_host_that_serves(tmp_path: Path, database: str) -> None:
    async with agent_bench(tmp_path / "there", serving=True) as there:
        async with agent_bench(tmp_path / "here", serving=True) as here:
            model = here.model(lambda request: asyncio.sleep(3600, said("never")))
            run = await here.start("Hello.")
            await until(lambda: len(model.asked) == 1)
            there.answers(said("I am back."))
        reply = await there.ended(run.id)
        assert (reply.outcome, reply.text) == ("reply", "I am back.")


async def test_what_is_in_files_moves_to_the_database(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path / "place")
    place.fill()
    monkeypatch.setenv("HOLD_AFTER", "60")
    async with place.host(serving=True) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        await engine.run(RunRequest(workflow=graph_of(0, depth=2, width=2).workflow()))
        left = await engine.submit(RunRequest(workflow=graph_of(1).workflow()))
        while begun([place]).total() < 60:
            await asyncio.sleep(0.005)
        first = await host.services.get(CHAT_HISTORY).append("tale", [ChatMessage(role="user", content="ž\0\n")] * 3)
        told = await host.services.get(CHAT_HISTORY).export_history("tale")
        folder = host._manager.active["tavern-tools"].context.operator_dir / "tasks"
        tasks = SqliteTaskStore(folder, "host_of_before", logging.getLogger("test"))
        asked = TaskEntry(request=ToolCallRequest(tool_id="acme:work"), call=system_call(host.project.id))
        assert await tasks.add(NewTask("task_1", "acme:work", asked, False), 9)
        await tasks.close()
    monkeypatch.delenv("HOLD_AFTER")
    async with place.host(serving=False) as host:
        before = {run.id: run for run in await host.services.get(EXECUTION_ENGINE).history()}
        nodes = {run_id: await nodes_of(host, run_id) for run_id in before}
        assert {state.status.is_final for state in nodes[left].values()} >= {True} and not before[left].status.is_final
    (place.root / "project" / "knowledge").mkdir(exist_ok=True)
    (place.root / "project" / "knowledge" / "lore.json").write_text('{"entries": [{"id": "inn"}]}')
    request.getfixturevalue("database")

    async def moved() -> Any:
        async with place.host(serving=False) as host:
            context = host._manager.active["tavern-postgres"].context
            return [output.data async for output in move({}, context) if output.kind == "result"]

    rows = {"agents": 5, "knowledge": 1, "tasks": 2, "triggers": 0}
    assert await moved() == [{"runs": 2, "moved": 2, "missing": [], "rows": rows}]
    assert await moved() == [{"runs": 2, "there": 2, "missing": [], "rows": rows}]
    async with place.host(serving=False) as host:
        after = {run.id: run for run in await host.services.get(EXECUTION_ENGINE).history()}
        assert after == before
        assert {run_id: await nodes_of(host, run_id) for run_id in after} == nodes
        kept = host.services.get(CHAT_HISTORY)
        assert await kept.export_history("tale") == told
        (more,) = await kept.append("tale", [ChatMessage(role="user", content="more")], parent_id=first[-1].id)
        assert [one.id for one in await kept.load("tale")] == [*(one.id for one in first), more.id]
        assert (await host.services.get(KNOWLEDGE_BASE).get("lore", "inn")).entry.id == "inn"
        assert [task.id for task in await host.services.get(TOOL_MANAGER).tasks()] == ["task_1"]
    async with place.host(serving=True) as host, asyncio.timeout(60):
        while not (run := await host.services.get(EXECUTION_ENGINE).get(left)).status.is_final:
            await asyncio.sleep(0.1)
        assert (run.status, run.attempt) == (RunStatus.COMPLETE, 2)


async def nodes_of(host: Host, run_id: str) -> dict[str, Any]:
    return (await host.services.get(EXECUTION_ENGINE).get(run_id)).nodes
