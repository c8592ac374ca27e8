"""`tavern serve` that is told to stop: what it still takes, what it waits for, and what goes on at the next start."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.serve_process import SECONDS, Serving, serving

RUNS = 10


def _waits(seconds: float) -> dict[str, Any]:
    nodes = [{"id": "w", "fullType": "core:Wait", "inputs": {"value": "done", "seconds": seconds}}]
    output = {"text": {"sourceNodeId": "w", "sourceSlotKey": "value"}}
    return {"nodes": nodes, "edges": [], "outputInterfaceMappings": output}


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    assert (await asyncio.to_thread(tavern, "init", tmp_path / "project")).code == 0
    return tmp_path / "project"


async def _ended(site: Serving, runs: list[str]) -> list[Any]:
    """Return the runs once all have ended."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = [await site.get(f"/api/prompt/{run}") for run in runs]
            if all(run["status"] not in ("queued", "running") for run in found):
                return found
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
async def test_ten_accepted_runs_end_ten_however_the_host_went(project: Path, how: signal.Signals) -> None:
    async with serving(project, options=["--drain", "0"]) as site:
        runs = [(await site.post("/api/prompt", _waits(0.5)))["promptId"] for _ in range(RUNS)]
        await site.stop(how)
    async with serving(project) as site:
        ended = await _ended(site, runs)
        assert [(run["status"], run["outputs"]) for run in ended] == [("complete", {"text": "done"})] * RUNS
        assert len((await site.get("/api/runs"))["runs"]) == RUNS
        await site.stop()


async def test_a_run_that_was_interrupted_on_request_is_not_taken_up(project: Path) -> None:
    async with serving(project, options=["--drain", "0"]) as site:
        run, other = [(await site.post("/api/prompt", _waits(60)))["promptId"] for _ in range(2)]
        await site.delete(f"/api/interrupt/{run}")
        await _ended(site, [run])
        await site.stop()
    async with serving(project, options=["--drain", "0"]) as site:
        assert (await site.get(f"/api/prompt/{run}"))["status"] == "interrupted"
        await _runs_again(site, other)
        await site.stop()


async def _runs_again(site: Serving, run: str) -> None:
    async with asyncio.timeout(SECONDS):
        while run not in {one["promptId"] for one in (await site.get("/api/executions"))["running"]}:
            await asyncio.sleep(0.05)


async def test_new_work_is_refused_while_what_is_in_flight_ends(project: Path) -> None:
    async with serving(project) as site:
        run = (await site.post("/api/prompt", _waits(3)))["promptId"]
        site.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            while True:
                async with site.session.post(f"{site.base}/api/prompt", json=_waits(0)) as answer:
                    problem = await answer.json()
                    if answer.status == 503:
                        break
        assert (problem["code"], int(answer.headers["Retry-After"]) > 0) == ("stopping", True)
        assert (await site.get(f"/api/prompt/{run}"))["promptId"] == run, "reading goes on"
        _, err = await asyncio.wait_for(site.process.communicate(), SECONDS)
    assert site.process.returncode == 0, err
    told = await asyncio.to_thread(tavern, "--project", project, "runs", "show", run, "--json")
    assert told.json()["status"] == "complete", "it had the time that it needed"


async def test_a_second_signal_stops_at_once(project: Path) -> None:
    async with serving(project, options=["--drain", "600"], as_json=False) as site:
        run = (await site.post("/api/prompt", _waits(300)))["promptId"]
        await _runs_again(site, run)
        site.process.send_signal(signal.SIGINT)
        assert site.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while b"once more stops at once" not in (line := await site.process.stderr.readline()):
                assert line, "it ended"
        assert site.process.returncode is None
        code, _ = await site.stop(signal.SIGINT)
    assert code == 0


async def test_a_project_has_one_server_at_a_time(project: Path) -> None:
    other = project.parent / "other"
    assert (await asyncio.to_thread(tavern, "init", other)).code == 0
    async with serving(project) as site:
        refused = await asyncio.to_thread(tavern, "--project", project, "serve", "--port", "0")
        assert (refused.code, refused.out) == (2, "")
        assert f"is served already by process {site.process.pid} at {site.base};" in refused.error
        async with site.session.post(f"{site.base}/api/projects", json={"path": str(other)}) as answer:
            assert answer.status == 200
        beside = await asyncio.to_thread(tavern, "--project", other, "serve", "--port", "0")
        assert beside.code == 2 and f"by process {site.process.pid}" in beside.error
        assert (await asyncio.to_thread(tavern, "--project", project, "runs", "list")).code == 0
        await site.stop(signal.SIGKILL)
    async with serving(project) as site:
        assert (await site.get("/readyz")) == {"status": "ready", "problems": []}
        await site.stop()
