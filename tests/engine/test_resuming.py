"""Resuming runs that failed or were interrupted: what is used of them, and what is run again."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, OpenHost, give, output, state, workflow
from helpers.repetition import Failures, repetitions
from helpers.waiting import let_pass, until
from loops_bench import flow, inside, loop, looped, notes, policy

from tavern_engine.api.executions import Resumed
from tavern_engine.api.runs import RUN_STORE
from tavern_engine.journal.journal import read_rows
from tavern_host import Host
from tavern_host.contracts.errors import Conflict, NotFound
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
ADD = inside("z", "Add")
COUNTING = "z.in__n > add.a, add.sum > z.next__n"


async def resumed(bench: Bench, run_id: str) -> Run:
    assert (await bench.engine.resume(run_id)).run_id == run_id
    return await bench.engine.wait(run_id)


async def cut_off(bench: Bench, document: Workflow, when: Callable[[Run], bool], **request: Any) -> Run:
    """Interrupt a run at some moment, and return it."""
    run_id = await bench.engine.submit(RunRequest(workflow=document, **request))

    async def is_it() -> bool:
        return when(await bench.engine.get(run_id))

    await until(is_it)
    return await bench.interrupted(run_id)


def flaky(file: Path, calls: Path, times: int = 1) -> Workflow:
    """Return three nodes in a row, the second of which fails, and one beside them."""
    always = flow("NoteAlways", file=file, value="first")
    bad = flow("FailTimes", file=calls, times=times)
    beside = flow("Note", file=file, value="beside")
    last = flow("NoteAlways", file=file)
    return workflow({"first": always, "bad": bad, "last": last, "beside": beside}, "first > bad > last")


# --- nodes ----------------------------------------------------------------------------------------


async def test_a_failed_run_resumes_from_the_failed_node(shared: Bench, file: Path, calls: Path) -> None:
    failed = await shared.run(flaky(file, calls, times=2))
    again = await resumed(shared, failed.id)
    run = await resumed(shared, failed.id)

    assert (failed.status, again.status, run.status, run.attempt) == ("error", "error", "complete", 3)
    assert sorted(notes(file)) == ["beside", "first", "first"]  # the second is what `last` was given
    assert [state(run, name).cached for name in ("first", "beside", "last")] == [True, True, False]
    assert (output(run, "last"), run.error) == ("first", None)


async def test_an_interrupted_run_resumes_on_a_later_host(open_host: OpenHost, file: Path, go: Path) -> None:
    nodes = {"a": flow("NoteAlways", file=file, value="a"), "wait": flow("WaitUntil", file=go), "b": "Take"}
    async with open_host("acme_flow") as bench:
        run_id = await bench.start(workflow(nodes, "a > wait > b"))
        await bench.until("NODE_EXECUTING", nodeId="wait")
    go.touch()
    async with open_host("acme_flow") as bench:
        before = await bench.engine.get(run_id)
        run = await resumed(bench, run_id)

    assert (before.status, state(before, "a").status) == ("interrupted", "complete")
    assert state(before, "wait").status == "interrupted"
    assert (run.status, output(run, "b"), notes(file)) == ("complete", "a", ["a"])
    assert run.submitted_at == before.submitted_at


async def test_resumed_runs_give_what_whole_ones_do(shared: Bench, file: Path, tmp_path: Path) -> None:
    """Branches not taken stay skipped, whole streams are read and not made again, and a default is no result."""
    default = {"onError": "default", "defaults": {"value": "instead"}}
    cases: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
        "branch": ({"s": flow("Switch", condition=True, value="x"), "no": flow("Note", file=file), "m": flow("Merge")},
            "s.yes > bad, s.no > no, bad > m.values, no > m.values", {"m.value": "x"}),
        "stream": ({"letters": flow("Letters", text="abc"), "read": flow("Read"), "again": flow("Read")},
            "letters.letters > read.items, read.list > bad, letters.letters > again.items", {"again.list": [*"abc"]}),
        "default": ({"n": policy(flow("FailTimes", file=tmp_path / "n", value="real"), **default), "take": "Take"},
            "n > bad > take", {"take.value": "real"}),
    }  # fmt: skip
    runs = {}
    with Failures() as failures:
        for name, (nodes, edges, gives) in cases.items():
            with failures.row(name):
                failed = await shared.run(workflow({**nodes, "bad": flow("FailTimes", file=tmp_path / name)}, edges))
                runs[name] = run = await resumed(shared, failed.id)
                assert (failed.status, run.status) == ("error", "complete")
                assert {place: output(run, *place.split(".")) for place in gives} == gives
    assert (state(runs["branch"], "no").status, notes(file)) == ("skipped", [])
    assert state(runs["stream"], "letters").cached


async def test_targets_and_priority_hold_on_resume(shared: Bench, file: Path, calls: Path) -> None:
    failed = await shared.engine.run(RunRequest(workflow=flaky(file, calls), targets=["bad"], priority=7))

    run = await resumed(shared, failed.id)

    assert (run.status, run.targets, run.priority, notes(file)) == ("complete", ["bad"], 7, ["first"])
    assert {state(run, name).status for name in ("last", "beside")} == {"skipped"}


# --- what is refused ------------------------------------------------------------------------------


async def test_a_complete_run_is_not_resumed(shared: Bench) -> None:
    run = await shared.run(workflow({"one": give(1)}))

    with pytest.raises(Conflict, match=f"the run {run.id} is complete; run it again with `tavern runs retry {run.id}`"):
        await shared.engine.resume(run.id)
    with pytest.raises(NotFound):
        await shared.engine.resume("run_0")


async def test_a_running_or_queued_run_is_not_resumed(open_host: OpenHost) -> None:
    async with open_host("acme_flow", settings={"extensions.tavern-engine.maxConcurrentRuns": 1}) as bench:
        for run_id in [await bench.start(workflow({"n": "Hang"})), await bench.start(workflow({"m": "Hang"}))]:
            with pytest.raises(Conflict, match="is already running"):
                await bench.engine.resume(run_id)


async def test_of_many_who_resume_a_run_one_succeeds(shared: Bench, file: Path, calls: Path) -> None:
    failed = await shared.run(flaky(file, calls))

    answers = await asyncio.gather(*(shared.engine.resume(failed.id) for _ in range(5)), return_exceptions=True)
    run = await shared.engine.wait(failed.id)

    assert [answer.run_id for answer in answers if isinstance(answer, Resumed)] == [failed.id]
    assert sum(isinstance(answer, Conflict) for answer in answers) == 4
    assert (run.status, run.attempt, notes(file).count("first")) == ("complete", 2, 2)


async def test_a_run_with_unkept_values_is_not_resumed(shared: Bench, calls: Path) -> None:
    failed = await shared.run(workflow({"o": flow("Opaque"), "bad": flow("FailTimes", file=calls)}, "o > bad"))

    assert failed.not_resumable is not None and "Amount" in failed.not_resumable
    with pytest.raises(Conflict, match="cannot be resumed"):
        await shared.engine.resume(failed.id)
    assert (await shared.engine.wait(await shared.engine.rerun(failed.id))).status == "complete"


async def test_a_run_may_be_released_twice(shared: Bench) -> None:
    """As one that was handed on, which both its lease and who interrupts it learn is to end."""
    failed = await shared.run(workflow({"bad": "Boom"}))
    recorder = shared.state.engine.recorder
    entry = await recorder.claims.claim(failed.id)
    for why in ("once", "twice"):
        await recorder.claims.release(entry, RunStatus.INTERRUPTED, why)
    error = (await recorder.entry(failed.id)).error
    assert error is not None and error.message == "once"


async def test_each_attempt_has_a_deadline_of_its_own(shared: Bench, go: Path) -> None:
    document = workflow({"wait": flow("WaitUntil", file=go, value=1)})
    late = await shared.late(lambda call: shared.run(document, call))
    await shared.late(lambda call: shared.engine.resume(late.id, call=call))
    again = await shared.engine.wait(late.id)
    go.touch()
    run = await resumed(shared, late.id)

    assert [each.error and each.error.code for each in (late, again)] == ["deadline_exceeded"] * 2
    assert output(run, "wait") == 1


@asynccontextmanager
async def host_with_version(tmp_path: Path, version: str) -> AsyncIterator[Bench]:
    """A host whose plugin `acme-flow` has this version."""
    plugin = tmp_path / "acme_flow"
    shutil.copytree(PLUGINS / "acme_flow", plugin, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    manifest = plugin / "plugin.yaml"
    manifest.write_text(manifest.read_text().replace("version: 1.0.0", f"version: {version}"))
    plugins = [PLUGINS / "acme_nodes", plugin]
    async with Host(tmp_path / "project", plugins=plugins, trust=["acme-nodes", "acme-flow"]) as host:
        yield Bench(host)


async def test_results_of_another_plugin_version_are_not_used(tmp_path: Path, go: Path) -> None:
    """Neither those of nodes nor those of iterations, whether they may be cached or not."""
    nodes: dict[str, Any] = {"all": flow("Gather"), "wait": flow("WaitUntil", file=go)}
    edges = ["all.list > wait"]
    kinds = ("Note", "NoteAlways")
    for kind in kinds:
        nodes |= {
            f"{kind}0": flow(kind, file=tmp_path / f"{kind}0", value="n"),
            f"{kind}1": loop(each="n: INTEGER", count=3),
            f"{kind}2": inside(f"{kind}1", flow(kind, file=tmp_path / f"{kind}2")),
            f"{kind}3": inside(f"{kind}1", flow("WaitUntil", file=go, at=2)),
        }
        edges.append(f"{kind}0 > all.values, {kind}1.index > {kind}2, {kind}2 > {kind}3, {kind}3 > {kind}1.each__n")
    async with host_with_version(tmp_path, "1.0.0") as bench:
        run_id = await bench.start(workflow(nodes, *edges))
        await bench.until("NODE_EXECUTING", nodeId="wait")
        await until(lambda: all(len(notes(tmp_path / f"{kind}2")) == 3 for kind in kinds))
    go.touch()

    async with host_with_version(tmp_path, "1.0.1") as bench:
        run = await resumed(bench, run_id)

    assert run.status == "complete"
    for kind in kinds:
        assert (len(notes(tmp_path / f"{kind}0")), state(run, f"{kind}0").cached) == (2, False)
        assert output(run, f"{kind}1", "list__n") == [0, 1, 2]
        assert notes(tmp_path / f"{kind}2") == ["0", "1", "2", "0", "1", "2"]


# --- loops ----------------------------------------------------------------------------------------


def counted(file: Path, count: int = 6, go: Path | None = None, at: int = 0) -> Workflow:
    """Return a loop that is slow, or waits in one iteration, whose values are of its own making, and a reader of it."""
    wait = flow("Sleep", seconds=0.003) if go is None else flow("WaitUntil", file=go, at=at)
    zone = loop("n: INTEGER = 0", "items: ARRAY = []", each="n: INTEGER", count=count)
    nodes = looped(zone, add="Add", append=flow("Append"), note=flow("NoteAlways", file=file), wait=wait)
    nodes["read"] = flow("Read")
    carried = "z.in__items > append.items, z.index > append.item, append.list > z.next__items"
    return workflow(nodes, COUNTING, carried, "z.index > note, note > wait, wait > z.each__n, z.stream__n > read.items")


def check_counted(run: Run, count: int = 6) -> None:
    assert run.status == "complete", run.error
    assert [output(run, "z", key) for key in ("out__n", "iterations")] == [count, count]
    whole = list(range(count))
    assert output(run, "z", "out__items") == output(run, "z", "list__n") == output(run, "read", "list") == whole


async def test_a_loop_resumes_with_the_iteration_cut_off(open_host: OpenHost, file: Path, go: Path) -> None:
    async with open_host("acme_flow") as bench:
        document = counted(file, go=go, at=3)
        before = await cut_off(
            bench, document, lambda run: len(notes(file)) == 4 and state(run, "add").status == "complete"
        )
        whole = await bench.run(workflow({"z": loop(count=5)}))
    go.touch()
    async with open_host("acme_flow") as bench:
        kept = await bench.engine.get(before.id)
        assert state(await bench.engine.get(whole.id), "z").iterations == 5
        run = await resumed(bench, before.id)

    check_counted(run)
    for each in (before, kept):
        assert (each.status, state(each, "z").status, state(each, "z").iterations) == ("interrupted", "interrupted", 3)
    assert (state(kept, "add").status, state(kept, "wait").status) == ("complete", "interrupted")
    assert notes(file) == ["0", "1", "2", "3", "3", "4", "5"]


async def test_a_loop_resumes_from_a_failed_iteration(shared: Bench, file: Path, go: Path) -> None:
    note, bad = flow("NoteAlways", file=file), flow("FailAt", unless=go, at=2)
    nodes = looped(loop("n: INTEGER = 0", each="n: INTEGER", count=4), add="Add", note=note, bad=bad)
    failed = await shared.run(workflow(nodes, COUNTING, "z.index > note, note > bad, bad > z.each__n"))
    go.touch()

    run = await resumed(shared, failed.id)

    assert state(failed, "bad").status == "error"
    assert (output(run, "z", "list__n"), output(run, "z", "out__n")) == ([0, 1, 2, 3], 4)
    assert notes(file) == ["0", "1", "2", "2", "3"]


async def test_a_loop_cut_off_anywhere_gives_the_same(shared: Bench, tmp_path: Path) -> None:
    """Interrupted at random moments until it is through; an iteration is begun again once per interruption at most."""
    for seed in range(repetitions(2, 12)):
        chance, file = random.Random(seed), tmp_path / f"notes {seed}"
        run_id, cuts = await shared.start(counted(file, 40)), 0
        while True:
            await let_pass(chance.uniform(0, 0.06))
            if not await shared.engine.interrupt(run_id):
                break
            if (await shared.engine.wait(run_id)).status == "complete":
                break
            cuts += 1
            await shared.engine.resume(run_id)

        check_counted(await shared.engine.wait(run_id), 40)
        assert 40 <= len(notes(file)) <= 40 + cuts
        assert cuts > 0


async def test_outputs_from_before_the_interruption_are_shown(shared: Bench, file: Path, tmp_path: Path) -> None:
    for use_cache in (True, False):
        go = tmp_path / f"go {use_cache}"
        zone = loop("n: INTEGER = 0", each="n: INTEGER", count=3)
        nodes = looped(zone, add="Add", note=flow("NoteAlways", file=file))
        nodes |= {"read": flow("Read"), "wait": flow("WaitUntil", file=go, at=0, value=0)}
        document = workflow(nodes, COUNTING, "add.sum > note, note > z.each__n, z.stream__n > read.items")
        cut = await cut_off(shared, document, lambda run: state(run, "read").status == "complete", use_cache=use_cache)
        go.touch()

        run = await resumed(shared, cut.id)

        assert output(run, "read", "list") == output(run, "z", "list__n") == [1, 2, 3]
        assert state(run, "z").cached


async def test_a_list_changed_in_place_is_kept_unchanged(shared: Bench, go: Path) -> None:
    wait = flow("WaitUntil", file=go, at=[0, 1, 2])
    edges = "z.in__items > append.items, z.index > append.item, append.list > wait > z.next__items"
    document = workflow(looped(loop("items: ARRAY = []", count=4), append=flow("AppendInPlace"), wait=wait), edges)
    cut = await cut_off(shared, document, lambda run: state(run, "z").iterations == 2)
    go.touch()

    assert output(await resumed(shared, cut.id), "z", "out__items") == [0, 1, 2, 3]


async def test_a_retried_loop_resumes_from_its_last_try(shared: Bench, file: Path, go: Path) -> None:
    """The first try fails in its third iteration, the second waits in its second and is interrupted there."""
    zone = policy(loop("n: INTEGER = 0", each="call: INTEGER", count=4), retry=1)
    bad, wait = flow("FailOnCall", file=file, call=3), flow("WaitUntil", file=go, at=5)
    nodes = looped(zone, add="Add", bad=bad, wait=wait)
    document = workflow(nodes, COUNTING, "add.sum > bad > wait > z.each__call")
    cut = await cut_off(shared, document, lambda run: len(notes(file)) == 5 and state(run, "z").iterations == 1)
    go.touch()

    run = await resumed(shared, cut.id)

    assert (output(run, "z", "list__call"), output(run, "z", "out__n")) == ([4, 6, 7, 8], 4)


async def test_an_inner_loop_begins_anew_on_resume(shared: Bench, file: Path, go: Path) -> None:
    nodes = {
        "a": loop("sum: INTEGER = 0", count=2),
        "b": inside("a", loop("sum: INTEGER", count=3)),
        "add": inside("b", "Add"),
        "note": inside("b", flow("NoteAlways", file=file)),
        "wait": inside("b", flow("WaitUntil", file=go, at=5)),
    }
    way_in, way_out = "a.in__sum > b.in__sum, b.in__sum > add.a", "wait > b.next__sum, b.out__sum > a.next__sum"
    document = workflow(nodes, way_in, "add.sum > note, note > wait", way_out)
    cut = await cut_off(shared, document, lambda run: len(notes(file)) == 5)
    go.touch()

    assert output(await resumed(shared, cut.id), "a", "out__sum") == 6
    assert notes(file) == ["1", "2", "3", "4", "5", "4", "5", "6"]


async def test_only_carried_values_must_be_kept(shared: Bench) -> None:
    zone, wait = loop("o: WILDCARD", "n: INTEGER = 0", count=3), flow("Sleep", seconds=0.04)
    nodes = looped(zone, opaque=flow("Opaque"), real=flow("Real"), wait=wait)
    edges = "z.index > opaque.number, opaque > real, real > wait, wait > z.next__n"
    assert (await shared.run(workflow(nodes, edges))).not_resumable is None
    assert (await shared.run(workflow(nodes, edges, "opaque > z.next__o"))).not_resumable is not None


async def kept_rows(bench: Bench, run_id: str) -> list[Any]:
    store = bench.host.services.get(RUN_STORE)
    return await read_rows(await store.batches(run_id), logging.getLogger())


async def test_what_is_kept_of_a_loop_grows_linearly(shared: Bench, file: Path) -> None:
    run = await shared.run(counted(file, 40))
    kept = [row.outputs for row in await kept_rows(shared, run.id) if row.iteration is not None]

    assert len(kept) > 2
    values = [value for outputs in kept for value in outputs["each"].get("n", [])]
    assert values == list(range(len(values)))


async def test_quick_iterations_are_kept_together(shared: Bench) -> None:
    document = workflow({"z": loop("n: INTEGER = 0", count=2000, maxIterations=2000), "add": ADD}, COUNTING)

    assert len(await kept_rows(shared, (await shared.run(document)).id)) < 1000
