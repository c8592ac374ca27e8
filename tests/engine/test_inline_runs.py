"""Runs that are a part of their caller's work: they leave nothing behind, unless they fail or somebody looks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, OpenHost, give, slot, workflow

from tavern_host import Host
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_nodes"]
OUT = "core:GroupOutput"
ANSWER = workflow({"one": give("plain"), "out": OUT}, "one > out.answer", interfaceOutputs={"answer": slot()})
FAILS = workflow({"one": give("plain"), "bad": "core:Fail"}, "one > bad")
HANG = workflow({"n": "Hang"})


async def inline(bench: Bench, document: Workflow, call: CallContext | None = None, **more: Any) -> Run:
    bench.begun = bench.host.events.last_seq
    return await bench.engine.run(RunRequest(workflow=document, inline=True, **more), call=call)


async def hanging(bench: Bench) -> tuple[asyncio.Task[Run], str]:
    """Begin a run that does not end by itself; return its task and its id."""
    seen = bench.host.events.subscribe("NODE_EXECUTING")
    task = asyncio.create_task(inline(bench, HANG))
    event: Any = await anext(seen)
    await seen.close()
    return task, str(event.payload["promptId"])


async def test_a_complete_run_leaves_nothing_behind(shared: Bench) -> None:
    before, seq = await shared.engine.history(), shared.host.events.last_seq
    run = await inline(shared, ANSWER)
    assert (run.status, run.outputs, run.nodes) == ("complete", {"answer": "plain"}, {})
    assert await shared.engine.history() == before
    assert shared.host.events.last_seq == seq
    with pytest.raises(NotFound):
        await shared.engine.get(run.id)


async def test_its_messages_are_made_where_somebody_subscribes(shared: Bench) -> None:
    heard = shared.host.events.subscribe("EXECUTION_STATUS_UPDATE", "NODE_COMPLETE")
    run = await inline(shared, ANSWER, use_cache=False)
    await heard.close()
    told = [event.payload async for event in heard]
    assert {payload["promptId"] for payload in told} == {run.id}
    assert [payload["status"] for payload in told if "status" in payload] == ["running", "complete"]
    assert "one" in [payload.get("nodeId") for payload in told]


async def test_a_failed_run_is_kept_whole(tmp_path: Path) -> None:
    plugins = [PLUGINS / "acme_nodes"]
    async with Host(tmp_path, plugins=plugins, trust=["acme-nodes"]) as host:
        run = await inline(Bench(host), FAILS, metadata={"of": "a test"})
        assert (run.status, run.nodes["bad"].status) == ("error", "error")
        assert await Bench(host).engine.get(run.id) == run
    async with Host(tmp_path, plugins=plugins, trust=["acme-nodes"]) as host:
        [listed] = await Bench(host).engine.history()
        kept = await Bench(host).engine.get(listed.id)
        assert (kept.status, kept.error, kept.metadata) == (run.status, run.error, run.metadata)
        assert (kept.nodes["one"].output, kept.nodes["bad"].error) == ({"value": "plain"}, run.nodes["bad"].error)


async def test_a_run_whose_caller_is_cancelled_is_interrupted(shared: Bench) -> None:
    task, run_id = await hanging(shared)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = await shared.engine.get(run_id)
    assert (run.status, run.nodes["n"].status, run.error and run.error.message) == (
        *("interrupted", "interrupted"),
        "the run was interrupted",
    )
    assert (await shared.engine.history())[0].id == run_id


async def test_a_run_can_be_interrupted_and_waited_for(shared: Bench) -> None:
    task, run_id = await hanging(shared)
    assert (await shared.engine.get(run_id)).status == "running"
    waiting = asyncio.create_task(shared.engine.wait(run_id))
    assert await shared.engine.interrupt(run_id)
    assert (await task).status == (await waiting).status == "interrupted"


async def test_a_run_ends_at_its_deadline(shared: Bench) -> None:
    run = await shared.late(lambda call: inline(shared, HANG, call), lambda run: run.nodes["n"].started is not None)
    assert run.error is not None and run.error.code == "deadline_exceeded"


async def test_it_waits_for_no_slot_and_stands_in_no_queue(open_host: OpenHost) -> None:
    async with open_host(settings={"extensions.tavern-engine.maxConcurrentRuns": 1}) as bench:
        busy = await bench.start(HANG)
        await bench.until("NODE_EXECUTING", nodeId="n")
        assert (await inline(bench, ANSWER)).status == "complete"
        task, run_id = await hanging(bench)
        queue = await bench.engine.queue()
        assert [run.id for run in (*queue.running, *queue.pending)] == [busy]
        parent = bench.host.call().child(run_id=run_id)  # it holds no slot that a run within it could share
        inner = await bench.start(ANSWER, parent)
        assert (await bench.engine.get(inner)).status == "queued"
    assert (await task).status == "interrupted"


async def test_a_run_that_gave_blobs_is_kept_with_them(tmp_path: Path) -> None:
    document = workflow({"both": {"type": "acme-blobs:ProduceBoth", "inputValues": {"size": 3_000_000}}})
    async with Host(tmp_path, plugins=[PLUGINS / "acme_blobs"], trust=["acme-blobs"]) as host:
        bench = Bench(host)
        run = await inline(bench, document)
        kept = (await bench.engine.get(run.id)).nodes["both"].output or {}
        await bench.state.engine.recorder.prune(max_age=1e9, max_bytes=10**12)  # type: ignore[union-attr]
        await host.blobs.sweep(0)
        assert len(await host.blobs.read(await bench.engine.output(run.id, "data", node_id="both"))) == 3_000_000
        assert kept["size"] == 3_000_000


async def test_other_methods_take_no_notice(shared: Bench) -> None:
    run_id = await shared.engine.submit(RunRequest(workflow=ANSWER, inline=True))
    assert (await shared.engine.wait(run_id)).nodes["one"].status == "complete"
    assert (await shared.engine.get(run_id)).outputs == {"answer": "plain"}
