"""`tavern serve` that is told to stop: what it still takes, what it waits for, and what goes on at the next start."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.serve_process import SECONDS, Serving, serving

RUNS, AT_ONCE = 10, 4


def _waits(seconds: float) -> dict[str, Any]:
    nodes = [{"id": "w", "fullType": "core:Wait", "inputs": {"value": "done", "seconds": seconds}}]
    output = {"text": {"sourceNodeId": "w", "sourceSlotKey": "value"}}
    return {"nodes": nodes, "edges": [], "outputInterfaceMappings": output}


async def _begun(site: Serving, count: int, seconds: float) -> list[str]:
    return [(await site.post("/api/prompt", _waits(seconds)))["promptId"] for _ in range(count)]


async def _followed(project: Path, site: Serving) -> str:
    """Begin a run that somebody follows at a terminal."""
    node = {"id": "w", "type": "core:Wait", "inputValues": {"value": "done", "seconds": 600}}
    (project / "workflows" / "long.json").write_text(json.dumps({"nodes": [node], "edges": []}))
    await site.session.post(f"{site.base}/api/commands/workflow%20run", json={"workflow": "long"})
    async with asyncio.timeout(SECONDS):
        while True:
            for run in (await site.get("/api/executions"))["running"]:
                if run.get("workflowId") == "long":
                    return str(run["promptId"])
            await asyncio.sleep(0.05)


async def _ended(site: Serving, runs: list[str]) -> list[Any]:
    """Return the runs once all have ended."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = [await site.get(f"/api/prompt/{run}") for run in runs]
            if all(run["status"] not in ("queued", "running") for run in found):
                return found
            await asyncio.sleep(0.1)


async def _running(site: Serving, run: str) -> None:
    async with asyncio.timeout(SECONDS):
        while run not in {one["promptId"] for one in (await site.get("/api/executions"))["running"]}:
            await asyncio.sleep(0.05)


async def test_accepted_runs_end_however_the_host_went(tmp_path: Path) -> None:
    project = tmp_path / "project"
    assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    async with serving(project, options=["--drain", "0"]) as site:
        (unwanted,) = await _begun(site, 1, 600)
        long = await _followed(project, site)
        await site.delete(f"/api/interrupt/{unwanted}")
        await _ended(site, [unwanted])
        runs = await _begun(site, RUNS, 0.5)
        await site.stop(signal.SIGTERM)
    async with serving(project, options=["--drain", "0"]) as site:
        assert (await site.get(f"/api/prompt/{unwanted}"))["status"] == "interrupted", "it is not taken up"
        await _running(site, long)
        await site.delete(f"/api/interrupt/{long}")
        await _no_other_server(project, site)
        runs += await _begun(site, RUNS, 0.5)
        await site.stop(signal.SIGKILL)
    async with serving(project) as site:
        ended = await _ended(site, runs)
        assert [(run["status"], run["outputs"]) for run in ended] == [("complete", {"text": "done"})] * RUNS * 2
        listed = {run["id"]: run for run in (await site.get("/api/runs"))["runs"]}
        assert listed.keys() == {unwanted, long, *runs}
        assert sum(listed[run]["attempt"] - 1 for run in runs) <= 2 * AT_ONCE, "those that only waited began once"
        assert (await site.get("/readyz")) == {"status": "ready", "problems": []}
        run = await _no_new_work(site)
        assert site.process.returncode == 0
    told = await asyncio.to_thread(tavern, "--project", project, "runs", "show", run, "--json")
    assert told.json()["status"] == "complete", "it had the time that it needed"


async def _no_other_server(project: Path, site: Serving) -> None:
    """A project has one server at a time; another that it serves too has no second one either."""
    refused = await asyncio.to_thread(tavern, "--project", project, "serve", "--port", "0")
    assert (refused.code, refused.out) == (2, "")
    assert f"is served already by process {site.process.pid} at {site.base};" in refused.error
    other = project.parent / "other"
    assert (await asyncio.to_thread(tavern, "init", "--empty", other)).code == 0
    async with site.session.post(f"{site.base}/api/projects", json={"path": str(other)}) as answer:
        assert answer.status == 200
    beside = await asyncio.to_thread(tavern, "--project", other, "serve", "--port", "0")
    assert beside.code == 2 and f"by process {site.process.pid}" in beside.error
    assert (await asyncio.to_thread(tavern, "--project", project, "runs", "list")).code == 0


async def _no_new_work(site: Serving) -> str:
    """New work is refused while what is in flight ends, and reading continues; return the run in flight."""
    (run,) = await _begun(site, 1, 8)
    site.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(SECONDS):
        while True:
            async with site.session.post(f"{site.base}/api/prompt", json=_waits(0)) as answer:
                problem = await answer.json()
                if answer.status == 503:
                    break
    assert (problem["code"], int(answer.headers["Retry-After"]) > 0) == ("stopping", True)
    assert (await site.get(f"/api/prompt/{run}"))["promptId"] == run
    await asyncio.wait_for(site.process.communicate(), SECONDS)
    return run


async def test_a_second_signal_stops_at_once(project: Path) -> None:
    async with serving(project, options=["--drain", "600"], as_json=False) as site:
        (run,) = await _begun(site, 1, 300)
        await _running(site, run)
        site.process.send_signal(signal.SIGINT)
        assert site.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while b"once more stops at once" not in (line := await site.process.stderr.readline()):
                assert line, "it ended"
        assert site.process.returncode is None
        code, _ = await site.stop(signal.SIGINT)
    assert code == 0
