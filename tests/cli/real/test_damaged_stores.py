"""`tavern serve` on a project with a damaged database, and with one of the operator's."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.serve_process import SECONDS, Serving, serving

RUNS = 5
PAGE = 4096


def _echo(text: str) -> dict[str, Any]:
    nodes = [{"id": "w", "fullType": "core:Wait", "inputs": {"value": text, "seconds": 0}}]
    return {
        "nodes": nodes,
        "edges": [],
        "outputInterfaceMappings": {"text": {"sourceNodeId": "w", "sourceSlotKey": "value"}},
    }


async def _complete(site: Serving, run: str) -> Any:
    async with asyncio.timeout(SECONDS):
        while (found := await site.get(f"/api/prompt/{run}"))["status"] in ("queued", "running"):
            await asyncio.sleep(0.05)
    return found


async def _warnings(site: Serving, *names: str) -> list[str]:
    """Return the warnings of /readyz, once it names these files."""
    async with asyncio.timeout(SECONDS):
        while True:
            await site.get("/api/runs")
            found = (await site.get("/readyz")).get("warnings", [])
            if all(any(name in line for line in found) for name in names):
                return sorted(found)
            await asyncio.sleep(0.05)


def _damage(path: Path, name: str) -> None:
    """Overwrite the first page of a table or of an index, in which the table's rows are not."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchall()
    content = bytearray(path.read_bytes())
    content[(page - 1) * PAGE : page * PAGE] = b"\xa5" * PAGE
    path.write_bytes(content)


async def _moved_aside(path: Path) -> None:
    async with asyncio.timeout(SECONDS):
        while not list(path.parent.glob(f"{path.name}.damaged-*")):
            await asyncio.sleep(0.05)


async def test_a_server_goes_on_with_what_damaged_databases_hold(tmp_path: Path, operator_folders: Path) -> None:
    project = tmp_path / "project"
    assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
    async with serving(project) as site:
        runs = [(await site.post("/api/prompt", _echo(f"{i} {'x' * 300}")))["promptId"] for i in range(RUNS)]
        for run in runs:
            await _complete(site, run)
        ann = {"name": "ann", "password": "good evening", "role": "viewer"}
        async with site.session.post(f"{site.base}/api/users", json=ann) as answer:
            assert answer.status == 201
        await site.stop()
    (path,) = project.rglob("runs.sqlite3")
    _damage(path, "runs_by_workflow")
    accounts = operator_folders / "state" / "accounts" / "accounts.sqlite3"
    _damage(accounts, "users")

    async with serving(project, options=["--log-level", "WARNING"]) as site:
        await _moved_aside(path)
        new = (await site.post("/api/prompt", _echo("new")))["promptId"]
        assert (await _complete(site, new))["outputs"] == {"text": "new"}
        warned = await _warnings(site, "runs.sqlite3.damaged-", "accounts.sqlite3.damaged-")
        assert (await site.get("/api/users")) is not None
        left = {run["id"] for run in (await site.get(f"/api/runs?limit={2 * RUNS}"))["runs"]}
        code, _ = await site.stop()
    async with serving(project) as site:
        again = await _warnings(site, "runs.sqlite3.damaged-", "accounts.sqlite3.damaged-")
        assert again == warned, "as long as the files are there"
        await site.stop()

    assert left == {*runs, new}
    (aside,) = path.parent.glob("runs.sqlite3.damaged-*[0-9a-f]")
    (name,) = {one.name.partition(".unread")[0] for one in accounts.parent.glob("*.damaged-*[0-9a-fd]")}
    said = "project: a database was damaged, and is kept as {}; the log says more"
    assert warned == [said.format(name), said.format(aside.name)]
    log = (project / ".tavern" / "log" / "tavern.log").read_text()
    assert (code, "Traceback" in log) == (0, False)
    assert f"{path} is damaged (" in log
    assert "rows could be read of the damaged file, and are in the new one" in log
