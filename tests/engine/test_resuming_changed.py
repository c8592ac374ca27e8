"""Resuming runs with another document: what of their results is valid still, and what the record says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, group, output, slot, state, workflow
from helpers.repetition import Failures
from helpers.waiting import until
from loops_bench import flow, inside, loop, looped, notes

from tavern_engine.api.executions import Resumed
from tavern_engine.api.runs import RUN_STORE
from tavern_host import WORKFLOW_MANAGER
from tavern_host.common.redaction import MASK
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import HttpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
EDGES = "first > second > bad > last"


def steps(file: Path, *, bad: Any = None, edges: str = EDGES, **values: Any) -> Workflow:
    """Return nodes in a row that note when they run and are never cached, one of which fails unless it is given."""
    nodes = {name: flow("NoteAlways", file=file / name) for name in ("second", "last", "beside")}
    nodes["first"] = flow("NoteAlways", file=file / "first", value="first")
    nodes["beside"]["inputValues"]["value"] = "beside"
    for name, value in values.items():
        nodes[name]["inputValues"]["value"] = value
    return workflow({**nodes, "bad": bad or "Boom"}, edges)


async def changed(bench: Bench, run_id: str, document: Workflow, **other: Any) -> tuple[Resumed, Run]:
    """Resume a run with another document, and return the answer and the run in the end."""
    answer = await bench.engine.resume(run_id, changed=RunRequest(workflow=document, **other))
    return answer, await bench.engine.wait(answer.run_id)


def counts(file: Path) -> dict[str, int]:
    return {name: len(notes(file / name)) for name in ("first", "second", "last", "beside")}


async def test_a_repaired_node_runs_with_the_results_before_it(shared: Bench, tmp_path: Path) -> None:
    failed = await shared.run(steps(tmp_path))

    answer, run = await changed(shared, failed.id, steps(tmp_path, bad=flow("NoteAlways", file=tmp_path / "bad")))

    assert answer.kept == ["beside", "first", "second"]
    assert (run.status, output(run, "last")) == ("complete", "first")
    assert counts(tmp_path) == {"first": 1, "second": 1, "last": 1, "beside": 1}
    assert [state(run, name).cached for name in ("first", "second", "last")] == [True, True, False]


async def test_what_changed_runs_again_with_all_that_follows(shared: Bench, tmp_path: Path) -> None:
    """Nodes that are never cached too; what changes nothing of that, such as a name, changes no result."""
    good = flow("NoteAlways", file=tmp_path / "bad")
    cases: dict[str, tuple[Workflow, list[str]]] = {
        "value": (steps(tmp_path, bad=good, first="other"), ["beside"]),
        "edge": (steps(tmp_path, bad=good, edges="beside > second > bad > last"), ["beside", "first"]),
        "end of an edge": (steps(tmp_path, bad=good, second="x", edges="second > bad > last"), ["beside", "first"]),
        "name": (steps(tmp_path, bad=good).model_copy(update={"name": "renamed"}), ["beside", "first", "second"]),
    }  # fmt: skip
    with Failures() as failures:
        for name, (document, kept) in cases.items():
            with failures.row(name):
                failed = await shared.run(steps(tmp_path))
                answer, run = await changed(shared, failed.id, document)
                assert (answer.kept, run.status) == (kept, "complete")


async def test_results_of_an_earlier_document_do_not_come_back(shared: Bench, tmp_path: Path) -> None:
    """Where the second change takes the first back, nothing is used of before."""
    failed = await shared.run(steps(tmp_path))
    blocked = steps(tmp_path, first="other")
    first = await shared.engine.resume(failed.id, changed=RunRequest(workflow=blocked))
    again = await shared.engine.wait(first.run_id)
    answer, run = await changed(shared, first.run_id, steps(tmp_path, bad=flow("NoteAlways", file=tmp_path / "bad")))

    assert (first.kept, again.status, answer.kept) == (["beside"], "error", ["beside"])
    assert (run.status, output(run, "last")) == ("complete", "first")


async def test_the_record_says_what_was_carried_out(shared: Bench, tmp_path: Path) -> None:
    failed = await shared.run(steps(tmp_path))
    answer, run = await changed(shared, failed.id, steps(tmp_path, bad=flow("NoteAlways", file=tmp_path / "bad")))
    store = shared.host.services.get(RUN_STORE)
    before, after = await store.get(failed.id), await store.get(answer.run_id)

    assert (run.continues, after.request.continues, before.workflow != after.workflow) == (failed.id, failed.id, True)
    assert before.not_resumable == f"it was continued by the run {answer.run_id}"
    assert (await shared.engine.get(failed.id)).not_resumable == before.not_resumable
    with pytest.raises(Conflict, match="cannot be resumed: it was continued by the run"):
        await shared.engine.resume(failed.id)
    assert (await shared.engine.wait(await shared.engine.rerun(run.id))).continues is None


async def test_a_continued_run_survives_its_host_with_what_it_kept(open_host: OpenHost, tmp_path: Path) -> None:
    go = tmp_path / "go"
    counted = looped(loop("n: INTEGER = 0", count=3), add="Add", note=flow("NoteAlways", file=tmp_path / "in"))
    edges = "first > second > bad > last, z.in__n > add.a, add.sum > z.next__n, z.index > note"
    async with open_host("acme_flow") as bench:
        named = {node.id: node.to_json() for node in steps(tmp_path).nodes}
        failed = await bench.run(workflow({**named, **counted}, edges))
        wait = {**named, **counted, "bad": flow("WaitUntil", file=go)}
        answer = await bench.engine.resume(failed.id, changed=RunRequest(workflow=workflow(wait, edges)))
        await bench.until("NODE_EXECUTING", nodeId="bad", promptId=answer.run_id)
    go.touch()
    async with open_host("acme_flow") as bench:
        shown = await bench.engine.get(answer.run_id)
        await bench.engine.resume(answer.run_id)
        run = await bench.engine.wait(answer.run_id)

    assert (state(shown, "first").cached, state(shown, "first").output) == (True, {"value": "first"})
    assert (run.status, output(run, "last"), output(run, "z", "out__n")) == ("complete", "first", 3)
    assert counts(tmp_path) == {"first": 1, "second": 1, "last": 1, "beside": 1}
    assert notes(tmp_path / "in") == ["0", "1", "2"]


async def test_a_loop_goes_on_where_only_other_nodes_changed(shared: Bench, tmp_path: Path, go: Path) -> None:
    zone = looped(loop(each="n: INTEGER", count=4), note=flow("NoteAlways", file=tmp_path / "in"))
    zone["wait"] = inside("z", flow("WaitUntil", file=go, at=2))
    edges = "z.index > note, note > wait, wait > z.each__n"
    run_id = await shared.start(workflow({**zone, "beside": flow("Note", file=tmp_path / "beside", value=1)}, edges))

    async def has_two() -> bool:
        return (await shared.engine.get(run_id)).nodes["z"].iterations == 2

    await until(has_two)
    await shared.interrupted(run_id)
    go.touch()
    other = {**zone, "beside": flow("Note", file=tmp_path / "beside", value=2)}
    _, run = await changed(shared, run_id, workflow(other, edges))

    assert (run.status, output(run, "z", "list__n")) == ("complete", [0, 1, 2, 3])
    assert notes(tmp_path / "in") == ["0", "1", "2", "2", "3"]


async def test_inputs_and_given_outputs_may_be_others(shared: Bench, tmp_path: Path) -> None:
    failed = await shared.run(steps(tmp_path))

    answer = await shared.engine.resume(failed.id, changed=RunRequest(overrides={"bad": {"value": "pinned"}}))
    run = await shared.engine.wait(answer.run_id)

    assert (run.status, output(run, "last"), answer.kept) == ("complete", "pinned", ["beside", "first", "second"])


async def test_of_many_who_resume_with_a_document_one_succeeds(shared: Bench, tmp_path: Path) -> None:
    failed = await shared.run(steps(tmp_path))
    document = steps(tmp_path, bad=flow("NoteAlways", file=tmp_path / "bad"))
    request = RunRequest(workflow=document)

    asked = [shared.engine.resume(failed.id, changed=request) for _ in range(3)]
    answers = await asyncio.gather(*asked, shared.engine.resume(failed.id), return_exceptions=True)

    [started] = [answer for answer in answers if isinstance(answer, Resumed)]
    assert sum(isinstance(answer, Conflict) for answer in answers) == 3
    assert (await shared.engine.wait(started.run_id)).status == "complete"
    assert notes(tmp_path / "bad") == ["first"]


async def test_a_run_can_be_resumed_after_a_document_was_refused(shared: Bench, tmp_path: Path) -> None:
    failed = await shared.run(steps(tmp_path))

    with pytest.raises(InvalidInput, match="Nowhere"):
        await changed(shared, failed.id, workflow({"n": "Nowhere"}))
    with pytest.raises(InvalidInput, match="keeps a secret only where it was"):
        await changed(shared, failed.id, steps(tmp_path, first=MASK))
    answer, run = await changed(shared, failed.id, steps(tmp_path, bad=flow("NoteAlways", file=tmp_path / "bad")))

    assert (run.status, len(answer.kept)) == ("complete", 3)


async def test_a_document_is_sent_as_to_a_run(shared: Bench, site: HttpClient, tmp_path: Path) -> None:
    failed = await shared.run(steps(tmp_path))
    document = steps(tmp_path, bad=flow("NoteAlways", file=tmp_path / "bad"))
    wrong = await site.post(f"/api/runs/{failed.id}/resume", json={"nodes": 3})
    answer = await site.post(f"/api/runs/{failed.id}/resume", json=document.to_json())
    body = await answer.json()
    run = await shared.engine.wait(body["runId"])

    assert (wrong.status, answer.status, body["kept"]) == (400, 200, ["beside", "first", "second"])
    assert (run.status, run.continues, body["runId"] != failed.id) == ("complete", failed.id, True)


async def test_a_mask_in_the_document_is_the_secret_that_it_stands_for(open_host: OpenHost, tmp_path: Path) -> None:
    secret = "whsec-7b1e42-0c4f91"
    async with open_host("acme_flow", settings={"extensions.tavern-operations.webhookSecret": secret}) as bench:
        failed = await bench.run(steps(tmp_path, first=secret))
        shown = steps(tmp_path, bad=flow("NoteAlways", file=tmp_path / "bad"), first=MASK)
        answer, run = await changed(bench, failed.id, shown)

    assert (answer.kept, run.status, notes(tmp_path / "last")) == (["beside", "first", "second"], "complete", [secret])


async def test_a_changed_group_runs_again_and_one_that_is_the_same_does_not(
    open_host: OpenHost, tmp_path: Path
) -> None:
    """The workflow that a group stands for is that of now; the results of its nodes have the ids `instance/node`."""
    inner = {"note": flow("NoteAlways", file=tmp_path / "inner", value="inside")}
    nodes = {"g": group("inner"), "beside": flow("NoteAlways", file=tmp_path / "beside", value="b")}
    good = flow("NoteAlways", file=tmp_path / "bad")
    async with open_host("acme_flow") as bench:
        manager = bench.host.services.get(WORKFLOW_MANAGER)
        gives = {"value": slot()}
        stored = workflow({**inner, "out": "core:GroupOutput"}, "note > out", interfaceOutputs=gives, name="Inner")
        await manager.save("inner", stored)
        failed = await bench.run(workflow({**nodes, "bad": "Boom"}, "g > bad"))
        same, run = await changed(
            bench, failed.id, workflow({**nodes, "bad": "Boom", "more": good}, "g > bad, g > more")
        )
        inner["note"]["inputValues"]["value"] = "other"
        stored = workflow({**inner, "out": "core:GroupOutput"}, "note > out", interfaceOutputs=gives, name="Inner")
        await manager.save("inner", stored)
        other, last = await changed(bench, same.run_id, workflow({**nodes, "bad": good}, "g > bad"))

    assert ("g/note" in same.kept, run.status, "g/note" in other.kept, other.kept) == (True, "error", False, ["beside"])
    assert (last.status, notes(tmp_path / "inner"), notes(tmp_path / "beside")) == (
        "complete",
        ["inside", "other"],
        ["b"],
    )
