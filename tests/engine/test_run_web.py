"""The routes of the run history, on a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, workflow

from tavern_host.testing.http import HttpClient, served


@pytest.fixture
async def site(open_host: OpenHost) -> AsyncIterator[HttpClient]:
    settings = {"extensions.tavern-engine.maxConcurrentRuns": 2}
    async with open_host(settings=settings) as bench, served(bench.host) as site:
        yield site


@pytest.fixture
def bench(site: HttpClient) -> Bench:
    return Bench(site.host)


async def get(site: HttpClient, path: str) -> Any:
    answer = await site.get(path)
    assert answer.status == 200, await answer.text()
    return await answer.json()


async def refusal(site: HttpClient, method: str, path: str) -> tuple[int, str]:
    answer = await site.request(method, path)
    return answer.status, (await answer.json())["error"]


async def test_runs_are_listed_newest_first_page_by_page(site: HttpClient, bench: Bench) -> None:
    ids = [(await bench.run(workflow({"g": give(n)}, name=f"W{n}"))).id for n in range(3)]

    first = await get(site, "/api/runs?limit=2")
    second = await get(site, "/api/runs?limit=2&offset=2")

    assert [run["id"] for run in first["runs"]] == [ids[2], ids[1]]
    assert (first["limit"], first["offset"]) == (2, 0)
    assert [(run["id"], run["status"], run["workflowName"]) for run in second["runs"]] == [(ids[0], "complete", "W0")]


async def test_runs_are_listed_by_what_is_asked_for(site: HttpClient, bench: Bench) -> None:
    good = (await bench.run(workflow({"g": give(1)}, id="one", name="Good"))).id
    bad = (await bench.run(workflow({"b": "Boom"}, id="two"))).id

    async def ids(query: str) -> list[str]:
        return [run["id"] for run in (await get(site, f"/api/runs?{query}"))["runs"]]

    assert await ids("status=error") == [bad]
    assert await ids("status=error,complete") == [bad, good]
    assert await ids("workflowId=one") == [good]
    assert await ids("text=good") == [good]
    assert await ids("since=1h&until=2999-01-01T00:00:00Z") == [bad, good]
    assert await ids("until=2020-01-01") == await ids("since=2999-01-01") == []


async def test_a_run_is_shown_with_its_nodes(site: HttpClient, bench: Bench) -> None:
    run = await bench.run(workflow({"g": give(1)}, name="Give"))

    shown = await get(site, f"/api/runs/{run.id}")

    assert (shown["id"], shown["status"], shown["workflowName"]) == (run.id, "complete", "Give")
    assert shown["nodes"]["g"]["output"] == {"value": 1}
    assert {"submittedAt", "startedAt", "finishedAt", "principal"} <= shown.keys()


async def test_a_run_is_run_once_more(site: HttpClient, bench: Bench) -> None:
    document = workflow({"in": "core:GroupInput"}, interfaceInputs={"n": {"dataFlowType": "INTEGER"}})
    first = await bench.run(document, n=5)

    answer = await site.post(f"/api/runs/{first.id}/rerun")
    again = await bench.engine.wait((await answer.json())["runId"])

    assert answer.status == 200
    assert again.id != first.id
    assert (again.inputs, again.nodes["in"].output) == ({"n": 5}, {"n": 5})
    assert str(again.principal).startswith("user:")


async def test_only_an_interrupted_run_is_resumed(site: HttpClient, bench: Bench) -> None:
    document = workflow({"g": give(1), "h": "Hang"}, "g > h")
    run_id = await bench.start(document)
    await bench.until("NODE_EXECUTING", nodeId="h")
    await bench.engine.interrupt(run_id)
    await bench.engine.wait(run_id)

    answer = await site.post(f"/api/runs/{run_id}/resume")
    running = await refusal(site, "POST", f"/api/runs/{run_id}/resume")
    while (await bench.engine.get(run_id)).nodes["h"].status != "running":
        await asyncio.sleep(0.01)
    await bench.engine.interrupt(run_id)
    resumed = await bench.engine.wait(run_id)

    assert (answer.status, await answer.json()) == (200, {"runId": run_id})
    assert running[0] == 409
    assert (resumed.attempt, resumed.nodes["g"].status) == (2, "complete")
    run = await bench.run(workflow({"g": give(1)}))
    asked = [("POST", run.id, "/resume", 409), ("GET", "run_0", "", 404), ("POST", "run_0", "/resume", 404)]
    for method, asked_for, action, expected in (*asked, ("POST", "run_0", "/rerun", 404)):
        status, error = await refusal(site, method, f"/api/runs/{asked_for}{action}")
        assert status == expected
        assert asked_for in error


async def test_the_state_of_the_queue_is_told(site: HttpClient, bench: Bench) -> None:
    assert await get(site, "/api/system_stats") == {
        "maxConcurrentWorkflows": 2,
        "runningExecutions": 0,
        "pendingExecutions": 0,
        "auditLogProblem": None,
    }
    ids = [await bench.start(workflow({"h": "Hang"})) for _ in range(3)]
    for run_id in ids[:2]:
        await bench.until("NODE_EXECUTING", promptId=run_id)

    busy = await get(site, "/api/system_stats")
    for run_id in ids:
        await bench.engine.interrupt(run_id)

    assert (busy["runningExecutions"], busy["pendingExecutions"]) == (2, 1)


async def test_the_workflow_of_a_run_is_there_as_it_was(site: HttpClient, bench: Bench) -> None:
    drawn = workflow({"g": give(1)}, id="one", name="Good")
    run = await bench.run(drawn)
    kept = await get(site, f"/api/runs/{run.id}/workflow")
    assert (kept["name"], [node["id"] for node in kept["nodes"]]) == ("Good", ["g"])
    assert await refusal(site, "GET", "/api/runs/none/workflow") == (404, "there is no run 'none'")
