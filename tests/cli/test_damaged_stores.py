"""`tavern serve` on a project with a damaged database."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.serve_process import SECONDS, Serving, serving

RUNS = 30
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


async def _warnings(site: Serving, name: str) -> list[str]:
    """Return what /readyz warns of, once it names a file."""
    async with asyncio.timeout(SECONDS):
        while True:
            await site.get("/api/runs")
            found = (await site.get("/readyz")).get("warnings", [])
            if any(name in line for line in found):
                return list(found)
            await asyncio.sleep(0.05)


def _damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for page in (len(content) // PAGE // 3, len(content) // PAGE // 2):
        content[page * PAGE : (page + 1) * PAGE] = random.Random(page).randbytes(PAGE)
    path.write_bytes(content)


async def test_a_server_goes_on_with_what_a_damaged_database_holds(tmp_path: Path) -> None:
    project = tmp_path / "project"
    assert (await asyncio.to_thread(tavern, "init", project)).code == 0
    async with serving(project) as site:
        runs = [(await site.post("/api/prompt", _echo(f"{i} {'x' * 300}")))["promptId"] for i in range(RUNS)]
        for run in runs:
            await _complete(site, run)
        await site.stop()
    (path,) = project.rglob("runs.sqlite3")
    _damage_middle(path)

    async with serving(project) as site:
        assert (await site.get("/readyz"))["status"] == "ready"
        new = (await site.post("/api/prompt", _echo("new")))["promptId"]
        assert (await _complete(site, new))["outputs"] == {"text": "new"}
        (warned,) = await _warnings(site, "runs.sqlite3.damaged-")
        left = {run["id"] for run in (await site.get(f"/api/runs?limit={2 * RUNS}"))["runs"]}
        code, err = await site.stop()

    assert new in left
    assert len(left & set(runs)) > RUNS / 3, "two pages were damaged"
    (aside,) = path.parent.glob("runs.sqlite3.damaged-*[0-9a-f]")
    assert warned == f"project: a database was damaged, and is kept as {aside.name}; the log says more"
    assert (code, "Traceback" in err) == (0, False)
    assert f"{path} is damaged (" in err
    assert "rows could be read of the damaged file, and are in the new one" in err
