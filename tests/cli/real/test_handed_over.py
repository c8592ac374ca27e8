"""Commands that the server of a project carries out for the terminal."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from helpers.command_line import Ran, tavern
from helpers.repetition import Failures
from helpers.serve_process import Serving, serving

WAITS = {"nodes": [{"id": "a", "type": "core:Wait", "inputValues": {"value": "ale", "seconds": 0}}], "edges": []}


async def _tavern(project: Path, *words: str | Path, **how: Any) -> Ran:
    return await asyncio.to_thread(tavern, "--project", project, *words, **how)


async def _statuses(server: Serving) -> list[str]:
    return [run["status"] for run in (await server.get("/api/runs"))["runs"]]


async def _until(server: Serving, statuses: list[str]) -> None:
    async with asyncio.timeout(60):
        while await _statuses(server) != statuses:
            await asyncio.sleep(0.02)


async def test_the_server_carries_out_runs_of_the_terminal(tmp_path: Path) -> None:
    project, beside = tmp_path / "inn", tmp_path / "beside"
    assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    beside.mkdir()
    (beside / "quick.json").write_text(json.dumps(WAITS))
    endless = json.loads(json.dumps(WAITS))
    endless["nodes"][0]["inputValues"]["seconds"] = 600
    (project / "workflows" / "endless.json").write_text(json.dumps(endless))
    async with serving(project) as server:
        told = f"Run by the server at {server.base} (process {server.process.pid})"
        with Failures() as failures:
            with failures.row("a file of the folder that the user stands in"):
                ran = await _tavern(project, "workflow", "run", "quick.json", cwd=beside)
                assert (ran.code, told in ran.err, "(core:Wait) done" in ran.err) == (0, True, True)
                (run,) = (await server.get("/api/runs"))["runs"]
            with failures.row("JSON"):
                ran = await _tavern(project, "runs", "retry", run["id"], "--json")
                assert (ran.json()["status"], len(await _statuses(server))) == ("complete", 2)
            with failures.row("a mistake"):
                ran = await _tavern(project, "workflow", "run", "absent", "--json")
                assert (ran.code, ran.json()["code"]) == (2, "not_found")
            with failures.row("here"):
                for words, how in ((["--here"], {}), (["--inputs", "-"], {"stdin": "{}"})):
                    ran = await _tavern(project, "workflow", "run", "quick.json", *words, cwd=beside, **how)
                    assert (ran.code, told in ran.err) == (0, False)
            with failures.row("other plugins than the server's"):
                ran = await _tavern(project, "--no-plugins", "workflow", "run", beside / "quick.json")
                assert (ran.code, told in ran.err) == (0, False)
        await _wrong_requests(server)
        done = await _statuses(server)

        url = f"{server.base}/api/commands/workflow%20run"
        async with server.session.post(url, json={"workflow": "endless"}) as answer:
            await answer.content.readuntil(b"\n\n")
            await _until(server, ["running", *done])
        await _until(server, ["interrupted", *done])  # the client is gone

        running = asyncio.create_task(_tavern(project, "workflow", "run", "endless"))
        await _until(server, ["running", "interrupted", *done])
        await server.stop(signal.SIGKILL)
        ran = await running
        assert (ran.code, ran.error.partition(") ")[2]) == (
            1,
            "has stopped; `tavern runs list` shows what became of its runs",
        )
    ran = await _tavern(project, "workflow", "run", beside / "quick.json")
    assert (ran.code, told in ran.err) == (0, False)


async def _wrong_requests(server: Serving) -> None:
    """A server carries out no other commands, and takes no other arguments."""
    rows = [
        ("absent", {}, 404, "there is no command 'absent' that a server carries out"),
        ("runs list", {}, 404, "there is no command 'runs list' that a server carries out"),
        ("runs retry", {"ruin": "x"}, 400, "runs retry has no parameter 'ruin'"),
        ("runs retry", {}, 400, "run: a value is missing"),
        ("runs retry", {"run": 5}, 400, "run: expected a text"),
        ("workflow run", {"workflow": "quick", "input": "x"}, 400, "input: expected a list, each item a text"),
        ("runs retry", [], 400, "the body must be a JSON object, not an array"),
    ]
    with Failures() as failures:
        for name, body, status, message in rows:
            with failures.row(message):
                async with server.session.post(f"{server.base}/api/commands/{name}", json=body) as answer:
                    assert (answer.status, (await answer.json())["error"]) == (status, message)
