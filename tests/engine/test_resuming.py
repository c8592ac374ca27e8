"""Resuming runs that failed or were interrupted: what is used of them, and what is run again."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, OpenHost, give, output, state, workflow
from helpers.repetition import repetitions
from loops_bench import flow, inside, loop, notes, policy
from runs_bench import begin

from tavern_engine.journal.journal import read_rows
from tavern_host import Host
from tavern_host.contracts.errors import Conflict, NotFound
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.runs import RUN_STORE
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
ADD = inside("z", flow("Add"))
COUNTING = ("z.in__n > add.a", "add.sum > z.next__n")


@pytest.fixture
def bench(shared: Bench) -> Bench:
    return shared


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notes"


async def resumed(bench: Bench, run_id: str) -> Run:
    assert await bench.engine.resume(run_id) == run_id
    return await bench.engine.wait(run_id)


def flaky(file: Path, calls: Path, times: int = 1) -> Workflow:
    """Return three nodes in a row, the second of which fails, and one beside them."""
    return workflow(
        {
            "first": flow("NoteAlways", file=file, value="first"),
            "bad": flow("FailTimes", file=calls, times=times),
            "last": flow("NoteAlways", file=file),
            "beside": flow("Note", file=file, value="beside"),
        },
        "first.value > bad.value",
        "bad.value > last.value",
    )


# --- nodes ----------------------------------------------------------------------------------------


async def test_a_failed_run_resumes_from_the_failed_node(bench: Bench, file: Path, tmp_path: Path) -> None:
    failed = await bench.run(flaky(file, tmp_path / "calls", times=2))
    again = await resumed(bench, failed.id)
    run = await resumed(bench, failed.id)

    assert (failed.status, again.status, run.status, run.attempt) == ("error", "error", "complete", 3)
    assert sorted(notes(file)) == ["beside", "first", "first"]  # the second is what `last` was given
    assert (state(run, "first").cached, state(run, "beside").cached, state(run, "last").cached) == (True, True, False)
    assert output(run, "last") == "first"
    assert run.error is None


async def test_an_interrupted_run_resumes_on_a_later_host(open_host: OpenHost, file: Path, tmp_path: Path) -> None:
    document = workflow(
        {"a": flow("NoteAlways", file=file, value="a"), "wait": flow("WaitUntil", file=tmp_path / "go"), "b": "Take"},
        "a.value > wait.value",
        "wait.value > b.value",
    )
    async with open_host("acme_flow") as bench:
        run_id = await bench.start(document)
        await bench.until("NODE_EXECUTING", nodeId="wait")
    (tmp_path / "go").touch()
    async with open_host("acme_flow") as bench:
        before = await bench.engine.get(run_id)
        run = await resumed(bench, run_id)

    assert (before.status, state(before, "a").status) == ("interrupted", "complete")
    assert (run.status, output(run, "b"), notes(file)) == ("complete", "a", ["a"])
    assert run.submitted_at == before.submitted_at


async def test_branches_not_taken_stay_skipped_on_resume(bench: Bench, file: Path, tmp_path: Path) -> None:
    document = workflow(
        {
            "s": flow("Switch", condition=True, value="x"),
            "bad": flow("FailTimes", file=tmp_path / "calls"),
            "no": flow("Note", file=file),
            "m": flow("Merge"),
        },
        "s.yes > bad.value",
        "s.no > no.value",
        "bad.value > m.values",
        "no.value > m.values",
    )
    failed = await bench.run(document)

    run = await resumed(bench, failed.id)

    assert (output(run, "m"), state(run, "no").status, notes(file)) == ("x", "skipped", [])


async def test_a_whole_stream_is_read_not_made_again(bench: Bench, tmp_path: Path) -> None:
    document = workflow(
        {
            "letters": flow("Letters", text="abc"),
            "read": flow("Read"),
            "bad": flow("FailTimes", file=tmp_path / "calls"),
            "again": flow("Read"),
        },
        "letters.letters > read.items",
        "read.list > bad.value",
        "letters.letters > again.items",
    )
    failed = await bench.run(document)

    run = await resumed(bench, failed.id)

    assert (run.status, state(run, "letters").cached, output(run, "read", "list")) == (
        "complete",
        True,
        ["a", "b", "c"],
    )


async def test_a_default_is_no_result_on_resume(bench: Bench, file: Path, tmp_path: Path) -> None:
    """When the run goes on, the node is tried again."""
    document = workflow(
        {
            "n": policy(flow("FailTimes", file=file, value="real"), onError="default", defaults={"value": "instead"}),
            "bad": flow("FailTimes", file=tmp_path / "calls"),
            "take": "Take",
        },
        "n.value > bad.value",
        "bad.value > take.value",
    )
    failed = await bench.run(document)

    assert output(await resumed(bench, failed.id), "take") == "real"


# --- what is refused ------------------------------------------------------------------------------


async def test_a_complete_run_is_not_resumed(bench: Bench) -> None:
    run = await bench.run(workflow({"one": give(1)}))

    with pytest.raises(Conflict, match=f"the run {run.id} is complete; run it again with `tavern runs retry {run.id}`"):
        await bench.engine.resume(run.id)
    with pytest.raises(NotFound):
        await bench.engine.resume("run_0")


async def test_a_running_or_queued_run_is_not_resumed(open_host: OpenHost) -> None:
    async with open_host("acme_flow", settings={"extensions.tavern-engine.maxConcurrentRuns": 1}) as bench:
        for run_id in [await bench.start(workflow({"n": "Hang"})), await bench.start(workflow({"m": "Hang"}))]:
            with pytest.raises(Conflict, match="is already running"):
                await bench.engine.resume(run_id)


async def test_of_many_who_resume_a_run_one_succeeds(bench: Bench, file: Path, tmp_path: Path) -> None:
    failed = await bench.run(flaky(file, tmp_path / "calls"))

    answers = await asyncio.gather(*(bench.engine.resume(failed.id) for _ in range(5)), return_exceptions=True)
    run = await bench.engine.wait(failed.id)

    assert [answer for answer in answers if isinstance(answer, str)] == [failed.id]
    assert sum(isinstance(answer, Conflict) for answer in answers) == 4
    assert (run.status, run.attempt, notes(file).count("first")) == ("complete", 2, 2)


async def test_a_run_with_unkept_values_is_not_resumed(bench: Bench, tmp_path: Path) -> None:
    document = workflow({"o": flow("Opaque"), "bad": flow("FailTimes", file=tmp_path / "calls")}, "o.value > bad.value")

    failed = await bench.run(document)

    assert failed.not_resumable is not None and "Amount" in failed.not_resumable
    with pytest.raises(Conflict, match="cannot be resumed"):
        await bench.engine.resume(failed.id)
    again = await bench.engine.wait(await bench.engine.rerun(failed.id))
    assert again.status == "complete"


async def test_each_attempt_has_a_deadline_of_its_own(bench: Bench, tmp_path: Path) -> None:
    document = workflow({"wait": flow("WaitUntil", file=tmp_path / "go", value=1)})
    late = await bench.run(document, call=bench.host.call().child(timeout=0.2))
    await bench.engine.resume(late.id, call=bench.host.call().child(timeout=0.2))
    again = await bench.engine.wait(late.id)
    (tmp_path / "go").touch()
    run = await resumed(bench, late.id)

    for each in (late, again):
        assert each.error is not None and each.error.code == "deadline_exceeded"
    assert output(run, "wait") == 1


# --- other versions of plugins --------------------------------------------------------------------


@asynccontextmanager
async def host_with_version(tmp_path: Path, version: str) -> AsyncIterator[Bench]:
    """A host whose plugin `acme-flow` has this version."""
    plugin = tmp_path / "acme_flow"
    shutil.rmtree(plugin, ignore_errors=True)
    shutil.copytree(PLUGINS / "acme_flow", plugin, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = plugin / "plugin.yaml"
    manifest.write_text(manifest.read_text().replace("version: 1.0.0", f"version: {version}"))
    host = Host(tmp_path / "project", plugins=[PLUGINS / "acme_nodes", plugin], trust=["acme-nodes", "acme-flow"])
    async with host:
        yield Bench(host)


@pytest.mark.parametrize(("version", "runs", "again"), [("1.0.0", 1, []), ("1.0.1", 2, ["0", "1"])])
async def test_results_of_another_plugin_version_are_not_used(
    tmp_path: Path, version: str, runs: int, again: list[str]
) -> None:
    """Neither those of nodes nor those of iterations, whether they may be cached or not."""
    nodes: dict[str, Any] = {"all": flow("Gather"), "wait": flow("WaitUntil", file=tmp_path / "go")}
    edges = ["all.list > wait.value"]
    for kind in ("Note", "NoteAlways"):
        nodes |= {
            f"{kind}0": flow(kind, file=tmp_path / f"{kind}0", value="n"),
            f"{kind}1": loop(each="n: INTEGER", count=3),
            f"{kind}2": inside(f"{kind}1", flow(kind, file=tmp_path / f"{kind}2")),
            f"{kind}3": inside(f"{kind}1", flow("WaitAt", file=tmp_path / "go", at=2)),
        }
        edges += [f"{kind}0.value > all.values", f"{kind}1.index > {kind}2.value", f"{kind}2.value > {kind}3.value"]
        edges.append(f"{kind}3.value > {kind}1.each__n")
    async with host_with_version(tmp_path, "1.0.0") as bench:
        run_id = await bench.start(workflow(nodes, *edges))
        await bench.until("NODE_EXECUTING", nodeId="wait")
        while len(notes(tmp_path / "Note2")) < 3 or len(notes(tmp_path / "NoteAlways2")) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    (tmp_path / "go").touch()

    async with host_with_version(tmp_path, version) as bench:
        run = await resumed(bench, run_id)

    assert run.status == "complete"
    for kind in ("Note", "NoteAlways"):
        assert len(notes(tmp_path / f"{kind}0")) == runs
        assert state(run, f"{kind}0").cached == (runs == 1)
        assert output(run, f"{kind}1", "list__n") == [0, 1, 2]
        assert notes(tmp_path / f"{kind}2") == ["0", "1", "2", *again, "2"]


# --- loops ----------------------------------------------------------------------------------------


def counted(file: Path, go: Path, at: int, count: int = 6) -> Workflow:
    """Return a loop that waits in one iteration and whose values are text of its own making, and a reader of it."""
    return workflow(
        {
            "z": loop("n: INTEGER = 0", "items: ARRAY = []", each="n: INTEGER", count=count),
            "add": ADD,
            "append": inside("z", flow("Append")),
            "note": inside("z", flow("NoteAlways", file=file)),
            "wait": inside("z", flow("WaitAt", file=go, at=at)),
            "read": flow("Read"),
        },
        *COUNTING,
        "z.in__items > append.items",
        "z.index > append.item",
        "append.list > z.next__items",
        "z.index > note.value",
        "note.value > wait.value",
        "wait.value > z.each__n",
        "z.stream__n > read.items",
    )


def check_counted(run: Run, count: int = 6) -> None:
    assert run.status == "complete", run.error
    assert output(run, "z", "out__n") == count
    assert output(run, "z", "out__items") == list(range(count))
    assert output(run, "z", "list__n") == list(range(count))
    assert output(run, "z", "iterations") == count
    assert output(run, "read", "list") == list(range(count))


async def test_a_loop_resumes_with_the_iteration_cut_off(open_host: OpenHost, file: Path, tmp_path: Path) -> None:
    async with open_host("acme_flow") as bench:
        run_id = await bench.start(counted(file, tmp_path / "go", at=3))
        while len(notes(file)) < 4:
            await asyncio.sleep(0.01)
        before = await bench.interrupted(run_id)
        whole = await bench.run(workflow({"z": loop(count=5)}))
    (tmp_path / "go").touch()
    async with open_host("acme_flow") as bench:
        kept = await bench.engine.get(run_id)
        assert state(await bench.engine.get(whole.id), "z").iterations == 5
        run = await resumed(bench, run_id)

    check_counted(run)
    for each in (before, kept):
        assert (each.status, state(each, "z").status, state(each, "z").iterations) == ("interrupted", "interrupted", 3)
    assert state(kept, "add").status == "complete"
    assert notes(file) == ["0", "1", "2", "3", "3", "4", "5"]


async def test_a_loop_resumes_from_a_failed_iteration(bench: Bench, file: Path, tmp_path: Path) -> None:
    document = workflow(
        {
            "z": loop("n: INTEGER = 0", each="n: INTEGER", count=4),
            "add": ADD,
            "note": inside("z", flow("NoteAlways", file=file)),
            "bad": inside("z", flow("FailUnless", file=tmp_path / "go", at=2)),
        },
        *COUNTING,
        "z.index > note.value",
        "note.value > bad.value",
        "bad.value > z.each__n",
    )
    failed = await bench.run(document)
    (tmp_path / "go").touch()

    run = await resumed(bench, failed.id)

    assert state(failed, "bad").status == "error"
    assert (output(run, "z", "list__n"), output(run, "z", "out__n")) == ([0, 1, 2, 3], 4)
    assert notes(file) == ["0", "1", "2", "2", "3"]


@pytest.mark.parametrize("seed", range(repetitions(2, 12)))
async def test_a_loop_cut_off_anywhere_gives_the_same(bench: Bench, file: Path, seed: int) -> None:
    """Interrupted at random moments until it is through; an iteration is begun again once per interruption at most."""
    chance = random.Random(seed)
    document = workflow(
        {
            "z": loop("n: INTEGER = 0", "items: ARRAY = []", each="n: INTEGER", count=40),
            "add": ADD,
            "slow": inside("z", flow("Sleep", seconds=0.003)),
            "note": inside("z", flow("NoteAlways", file=file)),
            "append": inside("z", flow("Append")),
            "read": flow("Read"),
        },
        *COUNTING,
        "z.index > slow.value",
        "slow.value > note.value",
        "z.in__items > append.items",
        "note.value > append.item",
        "append.list > z.next__items",
        "note.value > z.each__n",
        "z.stream__n > read.items",
    )
    run_id, cuts = await bench.start(document), 0
    while True:
        await asyncio.sleep(chance.uniform(0, 0.06))
        if not await bench.engine.interrupt(run_id):
            break
        if (await bench.engine.wait(run_id)).status == "complete":
            break
        cuts += 1
        await bench.engine.resume(run_id)
    run = await bench.engine.wait(run_id)

    assert output(run, "z", "out__n") == 40
    assert (
        output(run, "z", "out__items") == output(run, "z", "list__n") == output(run, "read", "list") == list(range(40))
    )
    assert 40 <= len(notes(file)) <= 40 + cuts
    assert cuts > 0


@pytest.mark.parametrize("use_cache", [True, False])
async def test_outputs_from_before_the_interruption_are_shown(
    bench: Bench, file: Path, tmp_path: Path, use_cache: bool
) -> None:
    document = workflow(
        {
            "z": loop("n: INTEGER = 0", each="n: INTEGER", count=3),
            "add": ADD,
            "read": flow("Read"),
            "note": inside("z", flow("NoteAlways", file=file)),
            "wait": flow("WaitAt", file=tmp_path / "go", at=0, value=0),
        },
        *COUNTING,
        "add.sum > note.value",
        "note.value > z.each__n",
        "z.stream__n > read.items",
    )
    run_id = await bench.engine.submit(RunRequest(workflow=document, use_cache=use_cache))
    await bench.until("NODE_COMPLETE", promptId=run_id, nodeId="read")
    await bench.interrupted(run_id)
    (tmp_path / "go").touch()

    run = await resumed(bench, run_id)

    assert output(run, "read", "list") == output(run, "z", "list__n") == [1, 2, 3]
    assert state(run, "z").cached


async def test_a_list_changed_in_place_is_kept_unchanged(bench: Bench, tmp_path: Path) -> None:
    document = workflow(
        {
            "z": loop("items: ARRAY = []", count=4),
            "append": inside("z", flow("AppendInPlace")),
            "wait": inside("z", flow("WaitAt", file=tmp_path / "go", at=[0, 1, 2])),
        },
        "z.in__items > append.items",
        "z.index > append.item",
        "append.list > wait.value",
        "wait.value > z.next__items",
    )
    run_id = await bench.start(document)
    while state(await bench.engine.get(run_id), "z").iterations != 2:
        await asyncio.sleep(0.01)
    await bench.interrupted(run_id)
    (tmp_path / "go").touch()

    run = await resumed(bench, run_id)

    assert output(run, "z", "out__items") == [0, 1, 2, 3]


async def test_a_retried_loop_resumes_from_its_last_try(bench: Bench, file: Path, tmp_path: Path) -> None:
    """The first try fails in its third iteration, the second waits in its second and is interrupted there."""
    document = workflow(
        {
            "z": policy(loop("n: INTEGER = 0", each="call: INTEGER", count=4), retry=1),
            "add": ADD,
            "bad": inside("z", flow("FailOnCall", file=file, call=3)),
            "wait": inside("z", flow("WaitAt", file=tmp_path / "go", at=5)),
        },
        *COUNTING,
        "add.sum > bad.value",
        "bad.value > wait.value",
        "wait.value > z.each__call",
    )
    run_id = await bench.start(document)
    while len(notes(file)) < 5:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    await bench.interrupted(run_id)
    (tmp_path / "go").touch()

    run = await resumed(bench, run_id)

    assert (output(run, "z", "list__call"), output(run, "z", "out__n")) == ([4, 6, 7, 8], 4)


async def test_an_inner_loop_begins_anew_on_resume(bench: Bench, file: Path, tmp_path: Path) -> None:
    document = workflow(
        {
            "a": loop("sum: INTEGER = 0", count=2),
            "b": inside("a", loop("sum: INTEGER", count=3)),
            "add": inside("b", flow("Add")),
            "note": inside("b", flow("NoteAlways", file=file)),
            "wait": inside("b", flow("WaitAt", file=tmp_path / "go", at=5)),
        },
        "a.in__sum > b.in__sum",
        "b.in__sum > add.a",
        "add.sum > note.value",
        "note.value > wait.value",
        "wait.value > b.next__sum",
        "b.out__sum > a.next__sum",
    )
    run_id = await bench.start(document)
    while len(notes(file)) < 5:
        await asyncio.sleep(0.01)
    await bench.interrupted(run_id)
    (tmp_path / "go").touch()

    run = await resumed(bench, run_id)

    assert output(run, "a", "out__sum") == 6
    assert notes(file) == ["1", "2", "3", "4", "5", "4", "5", "6"]


async def test_only_carried_values_must_be_kept(bench: Bench, tmp_path: Path) -> None:
    def document(*edges: str) -> Workflow:
        return workflow(
            {
                "z": loop("o: WILDCARD", "n: INTEGER = 0", count=3),
                "opaque": inside("z", flow("Opaque")),
                "real": inside("z", flow("Real")),
                "wait": inside("z", flow("Sleep", seconds=0.04)),
            },
            "z.index > opaque.number",
            "opaque.value > real.value",
            "real.value > wait.value",
            "wait.value > z.next__n",
            *edges,
        )

    assert (await bench.run(document())).not_resumable is None
    assert (await bench.run(document("opaque.value > z.next__o"))).not_resumable is not None


async def test_a_loop_resumes_after_its_host_was_killed(open_host: OpenHost, file: Path, tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from engine_bench import Bench, PLUGINS
from tavern_host import Host
from test_resuming import counted, kept_rows

async def main():
    plugins = [PLUGINS / "acme_nodes", PLUGINS / "acme_flow"]
    async with Host({str(tmp_path / "project")!r}, plugins=plugins, trust=["acme-nodes", "acme-flow"]) as host:
        bench = Bench(host)
        run_id = await bench.start(counted(Path({str(file)!r}), Path({str(tmp_path / "go")!r}), at=3))
        while not any(row.iteration == 3 for row in await kept_rows(bench, run_id)):
            await asyncio.sleep(0.02)
        print(run_id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    child = await begin(code)
    run_id = (await child.stdout.readline()).decode().strip()
    while len(notes(file)) < 4:
        await asyncio.sleep(0.01)
    child.kill()
    await child.wait()
    (tmp_path / "go").touch()

    async with open_host("acme_flow") as bench:
        run = await resumed(bench, run_id)

    check_counted(run)
    assert notes(file) == ["0", "1", "2", "3", "3", "4", "5"]


async def kept_rows(bench: Bench, run_id: str) -> list[Any]:
    store = bench.host.services.get(RUN_STORE)
    return await read_rows(await store.batches(run_id), logging.getLogger())


async def test_what_is_kept_of_a_loop_grows_linearly(bench: Bench) -> None:
    document = workflow(
        {
            "z": loop("n: INTEGER = 0", each="n: INTEGER", count=40),
            "add": ADD,
            "slow": inside("z", flow("Sleep", seconds=0.01)),
        },
        *COUNTING,
        "add.sum > slow.value",
        "slow.value > z.each__n",
    )
    kept = [row.outputs for row in await kept_rows(bench, (await bench.run(document)).id) if row.iteration is not None]

    assert len(kept) > 2
    values = [value for outputs in kept for value in outputs["each"].get("n", [])]
    assert values == list(range(1, len(values) + 1))


async def test_quick_iterations_are_kept_together(bench: Bench) -> None:
    document = workflow({"z": loop("n: INTEGER = 0", count=2000, maxIterations=2000), "add": ADD}, *COUNTING)

    assert len(await kept_rows(bench, (await bench.run(document)).id)) < 1000


async def test_targets_and_priority_hold_on_resume(bench: Bench, file: Path, tmp_path: Path) -> None:
    request = RunRequest(workflow=flaky(file, tmp_path / "calls"), targets=["bad"], priority=7)
    failed = await bench.engine.run(request)

    run = await resumed(bench, failed.id)

    assert (run.status, run.targets, run.priority) == ("complete", ["bad"], 7)
    assert notes(file) == ["first"]
    assert {state(run, name).status for name in ("last", "beside")} == {"skipped"}
