"""The routes of the run history, on a server."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bench import Bench, give, workflow
from helpers.waiting import until

from tavern_host.testing.http import HttpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_SETTINGS = {"extensions.tavern-engine.maxConcurrentRuns": 2}


async def get(site: HttpClient, path: str) -> Any:
    answer = await site.get(path)
    assert answer.status == 200, await answer.text()
    return await answer.json()


async def refusal(site: HttpClient, method: str, path: str) -> tuple[int, str]:
    answer = await site.request(method, path)
    return answer.status, (await answer.json())["error"]


async def test_runs_are_listed_newest_first_as_asked(shared: Bench, site: HttpClient) -> None:
    one = (await shared.run(workflow({"g": give(1)}, id="one", name="Good"))).id
    two = (await shared.run(workflow({"b": "Boom"}, id="two", name="W2"))).id
    three = (await shared.run(workflow({"g": give(3)}, name="W3"))).id

    async def ids(query: str) -> list[str]:
        found = [run["id"] for run in (await get(site, f"/api/runs?{query}"))["runs"]]
        return [id for id in found if id in (one, two, three)]  # beside those of other tests

    first = await get(site, "/api/runs?limit=2")
    second = await get(site, "/api/runs?limit=1&offset=2")
    assert [run["id"] for run in first["runs"]] == [three, two]
    assert (first["limit"], first["offset"]) == (2, 0)
    assert [(run["id"], run["status"], run["workflowName"]) for run in second["runs"]] == [(one, "complete", "Good")]
    queries = {"status=error": [two], "status=error,complete": [three, two, one], "workflowId=one": [one]}
    queries |= {"text=good": [one], "since=1h&until=2999-01-01T00:00:00Z": [three, two, one]}
    queries |= {"until=2020-01-01": [], "since=2999-01-01": []}
    assert {query: await ids(query) for query in queries} == queries


async def test_a_run_is_shown_with_its_workflow_and_rerun(shared: Bench, site: HttpClient) -> None:
    slots = {"n": {"dataFlowType": "INTEGER"}}
    first = await shared.run(workflow({"in": "core:GroupInput"}, interfaceInputs=slots, name="Give"), n=5)

    shown = await get(site, f"/api/runs/{first.id}")
    kept = await get(site, f"/api/runs/{first.id}/workflow")
    answer = await site.post(f"/api/runs/{first.id}/rerun")
    again = await shared.engine.wait((await answer.json())["runId"])

    assert [shown[key] for key in ("id", "status", "workflowName")] == [first.id, "complete", "Give"]
    assert shown["nodes"]["in"]["output"] == {"n": 5}
    assert {"submittedAt", "startedAt", "finishedAt", "principal"} <= shown.keys()
    assert (kept["name"], [node["id"] for node in kept["nodes"]]) == ("Give", ["in"])
    assert answer.status == 200
    assert again.id != first.id
    assert (again.inputs, again.nodes["in"].output) == ({"n": 5}, {"n": 5})
    assert str(again.principal).startswith("user:")
    assert await refusal(site, "GET", "/api/runs/none/workflow") == (404, "there is no run 'none'")


async def test_only_an_interrupted_run_is_resumed(shared: Bench, site: HttpClient) -> None:
    run_id = await shared.start(workflow({"g": give(1), "h": "Hang"}, "g > h"))
    await shared.until("NODE_EXECUTING", nodeId="h")
    await shared.interrupted(run_id)

    answer = await site.post(f"/api/runs/{run_id}/resume")
    running = await refusal(site, "POST", f"/api/runs/{run_id}/resume")

    async def is_running() -> bool:
        return (await shared.engine.get(run_id)).nodes["h"].status == "running"

    await until(is_running)
    resumed = await shared.interrupted(run_id)

    assert (answer.status, await answer.json()) == (200, {"runId": run_id, "kept": ["g"]})
    assert (running[0], resumed.attempt, resumed.nodes["g"].status) == (409, 2, "complete")
    run = await shared.run(workflow({"g": give(1)}))
    asked = [("POST", run.id, "/resume", 409), ("GET", "run_0", "", 404), ("POST", "run_0", "/resume", 404)]
    for method, asked_for, action, expected in (*asked, ("POST", "run_0", "/rerun", 404)):
        status, error = await refusal(site, method, f"/api/runs/{asked_for}{action}")
        assert status == expected
        assert asked_for in error


async def test_the_state_of_the_queue_is_told(shared: Bench, site: HttpClient) -> None:
    stats = {"maxConcurrentWorkflows": 2, "runningExecutions": 0, "pendingExecutions": 0, "auditLogProblem": None}
    assert await get(site, "/api/system_stats") == stats
    ids = [await shared.start(workflow({"h": "Hang"})) for _ in range(3)]
    for run_id in ids[:2]:
        await shared.until("NODE_EXECUTING", promptId=run_id)

    assert await get(site, "/api/system_stats") == stats | {"runningExecutions": 2, "pendingExecutions": 1}
    for run_id in ids:
        await shared.interrupted(run_id)
