"""What runs that have ended take, in a process of its own (docs/performance.md).

`python -m benchmarks.finishedruns CASE` says as JSON how many bytes a host has more after each of a case's runs than
before the first, at most. Garbage is collected as `tavern serve` does it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.serving import private_memory
from tavern_engine import EngineState
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import Host
from tavern_host.cli.garbage import collect_again, put_off
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders

SHARE = 1.15
"""How much of its limit what is kept may take."""
_MEGABYTE = 2**20
_WARMING = 4
_WORK = ("tavern-engine: run_", "journal of", "end of", "tavern-engine: end of")
"""How the names of tasks begin that work for a run."""
_SETTINGS = "extensions.tavern-engine"


@dataclass(frozen=True)
class Case:
    """So many runs of one node, and how many MB of finished runs, and of outputs in the cache, may be in memory."""

    runs: int
    node: str
    values: dict[str, int]
    remembered: int
    cached: int = 0


CASES = {
    "40 finished runs with 50 MB of Chinese text": Case(40, "chinese", {"characters": 50 * _MEGABYTE // 3}, 512),
    "60 finished runs with 20,000 small objects": Case(60, "objects", {"count": 20_000}, 48),
    "12 cached outputs of 50 MB of Chinese text": Case(12, "chinese", {"characters": 50 * _MEGABYTE // 3}, 0, 256),
    "20 cached outputs of 20,000 small objects": Case(20, "objects", {"count": 20_000}, 0, 64),
}


def finished() -> list[Result]:
    """Return what each case takes, beside its limit."""
    results = []
    for name, case in CASES.items():
        command = [sys.executable, "-m", "benchmarks.finishedruns", name]
        said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        value, floor = said["bytes"] / _MEGABYTE, float(case.remembered + case.cached)
        results.append(Result(name, round(value, 1), "MiB", floor, "the limit", round(value / floor, 3), 1, SHARE))
    return results


def _workflow(case: Case, number: int) -> Workflow:
    values = {**case.values, "number": number}
    at, slots = {"x": 0, "y": 0}, {"result": {"dataFlowType": "WILDCARD"}}
    nodes = [
        {"id": "one", "type": f"tool-desk:{case.node.title()}", "position": at, "inputValues": values},
        {"id": "out", "type": "core:GroupOutput", "position": at},
    ]
    edge = {"id": "e", "source": "one", "target": "out", "sourceHandle": "result", "targetHandle": "result"}
    return Workflow.model_validate({"name": "kept", "nodes": nodes, "edges": [edge], "interfaceOutputs": slots})


async def _grown(case: Case, place: Path) -> dict[str, Any]:
    folders = Folders(*(place / name for name in ("config", "state", "data")))
    settings = {
        f"{_SETTINGS}.rememberRunsMegabytes": case.remembered,
        f"{_SETTINGS}.cacheMegabytes": case.cached,
    }
    desk = Path(__file__).parent / "tooldesk"
    options: dict[str, Any] = {"plugins": [desk], "trust": ["tool-desk"], "folders": folders, "settings": settings}
    put_off()
    async with Host(place / "project", **options) as host:
        engine = host.services.get(EXECUTION_ENGINE)

        own = host._manager.active["tavern-engine"].context.own(EngineState)

        async def run(number: int) -> str:
            ended = await engine.run(RunRequest(workflow=_workflow(case, number)))
            assert ended.status is RunStatus.COMPLETE, ended.error
            while any(task.get_name().startswith(_WORK) for task in asyncio.all_tasks()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return ended.id

        for number in range(-_WARMING, 0):  # what each such run needs for a while is there afterwards, in each thread
            first = await run(number)
            assert own.engine is not None
            own.engine._finished.forget(first)
        assert own.engine is not None
        own.engine.cache.clear()
        collect_again()
        before, most = private_memory(os.getpid()), 0
        for number in range(1, case.runs + 1):
            await run(number)
            most = max(most, private_memory(os.getpid()) - before)
        return {"bytes": most}


if __name__ == "__main__":
    put_off()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(_grown(CASES[sys.argv[1]], Path(folder)))))
