"""For how long requests with a megabyte of small lists keep others of a served host waiting.

What is measured is the CPU time of the whole process between two turns of another task: a thread that reads JSON holds
the interpreter as the loop's own does. Garbage is collected as `tavern serve` does it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, longest_hold, measured
from tavern_agents.api.agents import AgentStatus
from tavern_host import Host
from tavern_host.cli.garbage import collect_in_pauses, put_off
from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served

LISTS = 300_000
"""How many lists of one number are in the workflow."""
ROUNDS = 3
LIMIT = 50.0
"""Milliseconds."""


def hold() -> list[Result]:
    """Return the longest hold of each request, beside the same one with a workflow of one node."""
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(_hold(Path(place)))


def _workflow(lists: int) -> dict[str, Any]:
    values = {"text": "hello", "many": [[number] for number in range(lists)]}
    node = {"id": "n0", "type": "core:Text", "position": {"x": 0, "y": 0}, "inputValues": values}
    return {"name": "lists", "nodes": [node], "edges": []}


async def _hold(place: Path) -> list[Result]:
    folders = Folders(*(place / name for name in ("config", "state", "data")))
    pairs: dict[str, list[tuple[float, float]]] = {}
    (place / "project" / "workflows").mkdir(parents=True)
    for lists in (1, LISTS):
        (place / "project" / "workflows" / f"lists-{lists}.json").write_text(json.dumps(_workflow(lists)))
    put_off()
    async with Host(place / "project", folders=folders) as host, served(host) as site:
        small, large = (_requests(site, lists) for lists in (1, LISTS))
        for work in (*small.values(), *large.values()):  # what answers is imported and made, what is kept is there
            await work()
        collecting = asyncio.create_task(collect_in_pauses())
        for _ in range(ROUNDS):
            for name in large:
                gc.collect()
                ours = await longest_hold(large[name], clock=time.process_time, collecting=True)
                theirs = await longest_hold(small[name], clock=time.process_time, collecting=True)
                pairs.setdefault(name, []).append((ours, theirs))
        collecting.cancel()
    size = len(json.dumps(_workflow(LISTS))) / 2**20
    options: dict[str, Any] = {"limited": "value", "unit": "ms", "scale": 1e3}
    floor = "the same with one list"
    return [
        measured(f"{name} of {size:.1f} MiB, longest hold", found, floor, LIMIT, **options)
        for name, found in pairs.items()
    ]


def _requests(site: HttpClient, lists: int) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return the functions that send each request about a workflow, by their names in the table of results."""

    def send(method: str, path: str, body: str) -> Callable[[], Awaitable[Any]]:
        async def work() -> Any:
            answer = await site.request(method, path, data=body.encode(), headers={"If-Match": "*"})
            assert answer.ok, await answer.text()
            return answer

        return work

    name, workflow = f"lists-{lists}", json.dumps(_workflow(lists))
    save = send("PUT", f"/api/workflows/{name}", workflow)
    ask = send("POST", "/api/assistant/requests", json.dumps({"workflowId": name, "message": "Explain it."}))

    async def asked() -> None:
        run = await (await ask()).json()
        while not AgentStatus(run["status"]).is_final:
            await asyncio.sleep(0.01)
            run = await (await site.get(f"/api/agent-runs/{run['id']}")).json()

    return {
        "check": send("POST", "/api/workflows/check", workflow),
        "layout": send("POST", "/api/layout", f'{{"workflow": {workflow}}}'),
        "save": save,
        "tool call": send("POST", "/api/tools/execute", f'{{"toolId": "no:tool", "arguments": {workflow}}}'),
        "assistant request": asked,
    }
