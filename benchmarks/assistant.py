"""What a patch of a workflow costs: applied and checked, and with places for its new nodes (docs/performance.md).

All of it is work of the processor, in whichever thread, so the process's CPU time is measured.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import ROUNDS, Result, frozen, longest_hold, measured
from tavern_assistant.api.assistant import ASSISTANT, PatchResult
from tavern_assistant.patches.findings import Findings
from tavern_assistant.patches.operations import MAX_COPIED
from tavern_assistant.patches.workflow import apply_to_workflow
from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import Host
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders
from tavern_workflows.api.workflows import WORKFLOW_MANAGER
from tavern_workflows.layout import lay_out

SIZE, LARGER = 500, 2000
PLACED = 1000
"""How many nodes are laid out."""
TIMES = 5
LIMIT = 10.0
"""Milliseconds for applying and checking 15 operations on 500 nodes."""


def workflow(nodes: int) -> dict[str, Any]:
    """Return a workflow of rows of 25 nodes, each fed by the one before it."""
    made: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for at in range(nodes):
        place = {"x": 300 * (at % 25), "y": 200 * (at // 25)}
        if at % 25 == 0:
            made.append({"id": f"n{at}", "type": "core:Text", "position": place, "inputValues": {"text": "hello"}})
            continue
        made.append({"id": f"n{at}", "type": "core:TextMerge", "position": place, "inputValues": {"separator": ", "}})
        output = "text" if at % 25 == 1 else "merged_text"
        ends = {"source": f"n{at - 1}", "sourceHandle": output, "target": f"n{at}", "targetHandle": "text_inputs__0"}
        edges.append({"id": f"e{at}", **ends})
    return {"name": f"{nodes} nodes", "nodes": made, "edges": edges}


def patch(nodes: int) -> list[Any]:
    """Return 15 operations, all over a workflow of so many nodes: nodes with their edges, values, a removal."""
    made: list[Any] = []
    for row in range(4):
        at = row * (nodes // 100) * 25
        made += [
            {"op": "add", "path": "/nodes/-", "value": {"localId": f"l{row}", "type": "core:UpperCase"}},
            {
                "op": "add",
                "path": "/edges/-",
                "value": {
                    "source": f"n{at}",
                    "sourceHandle": "text",
                    "targetLocalId": f"l{row}",
                    "targetHandle": "text",
                },
            },
            {"op": "replace", "path": f"/nodes/n{at + 2}/inputValues/separator", "value": "; "},
        ]
    return [
        *made,
        {"op": "remove", "path": f"/nodes/n{nodes - 1}"},
        {"op": "add", "path": "/interfaceInputs/name", "value": {"dataFlowType": "STRING"}},
        {"op": "replace", "path": "/name", "value": "changed"},
    ]


async def _cpu(work: Callable[[], Awaitable[object]]) -> float:
    """Return the CPU seconds that one of a few runs takes."""
    began = time.process_time()
    for _ in range(TIMES):
        await work()
    return (time.process_time() - began) / TIMES


@asynccontextmanager
async def _host() -> AsyncIterator[Host]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        (root / "workflows").mkdir(parents=True)
        (root / "workflows" / "large.json").write_text(json.dumps(workflow(SIZE)))
        folders = Folders(*(Path(folder) / name for name in ("config", "state", "data")))
        async with Host(root, folders=folders) as host:
            yield host


def patches() -> list[Result]:
    """Measure a patch of 15 operations on a workflow of 500 nodes, as a ratio to its check alone, and its growth."""
    return asyncio.run(_patches())


async def _patches() -> list[Result]:
    async with _host() as host:
        with frozen():
            return await _compared(host)


async def _compared(host: Host) -> list[Result]:
    manager, assistant = host.services.get(WORKFLOW_MANAGER), host.services.get(ASSISTANT)
    types = {one.full_type: one for one in await host.services.get(NODE_MANAGER).list_nodes()}

    def of(size: int) -> Callable[[], Awaitable[object]]:
        document, operations = workflow(size), patch(size)

        async def work() -> None:
            patched = apply_to_workflow(document, operations, types)
            found = await manager.check(patched.document)
            assert Findings(document, patched, types).problems(found, []) == patched.problems == []

        return work

    small, large, alone = of(SIZE), of(LARGER), workflow(SIZE)
    pairs, growth, proposed = [], [], []
    for _ in range(ROUNDS):
        ours, floor = await _cpu(small), await _cpu(lambda: manager.check(alone))
        pairs.append((ours, floor))
        growth.append((await _cpu(large), ours * LARGER / SIZE))
        proposed.append((await _cpu(lambda: assistant.propose_patch(patch(SIZE), id="large")), floor))
    name = "15 operations on 500 nodes, applied and checked"
    ms: dict[str, Any] = {"unit": "ms", "scale": 1e3}
    return [
        measured(name, pairs, "the check of the workflow", LIMIT, limited="value", **ms),
        measured("the same on 2,000 nodes", growth, "four times as long", 1.2, **ms),
        measured("proposed for a stored workflow, new nodes placed", proposed, "the check of the workflow", **ms),
    ]


def hold() -> list[Result]:
    """Return how long patches at their limits keep the event loop from its turn, beside a small one."""
    return asyncio.run(_hold())


async def _hold() -> list[Result]:
    part: list[Any] = [[] for _ in range(500)]
    copied = MAX_COPIED // len(json.dumps(part)) - 1
    document = {"nodes": [], "edges": [], "part": part}
    copies: list[Any] = [{"op": "copy", "from": "/part", "path": f"/copy{at}"} for at in range(copied)]
    added: list[Any] = [{"op": "add", "path": "/added", "value": json.loads(json.dumps([part] * (2 * copied)))}]
    cases = (("copies of 1 MiB", document, copies), ("a value of 2 MiB", document, added))
    async with _host() as host:
        assistant = host.services.get(ASSISTANT)

        def propose(document: dict[str, Any], operations: list[Any]) -> Callable[[], Awaitable[object]]:
            async def work() -> PatchResult:
                result = await assistant.propose_patch(operations, document=document)
                assert result.applied
                return result

            return work

        pairs: dict[str, list[tuple[float, float]]] = {}
        for _ in range(ROUNDS):
            least = await longest_hold(propose(document, added[:0]))
            for name, *arguments in (*cases, (f"15 operations on {LARGER:,} nodes", workflow(LARGER), patch(LARGER))):
                pairs.setdefault(name, []).append((await longest_hold(propose(*arguments)), least))
    limits: dict[str, Any] = {"limited": "value", "unit": "ms", "scale": 1e3}
    floor = "a patch of nothing"
    return [measured(f"{name}, longest hold of the loop", pairs[name], floor, 50, **limits) for name in pairs]


def layout() -> list[Result]:
    """Measure placing 1,000 nodes with long edges, and 999 beside one that stays; the floor is reading the document."""
    chance = random.Random(1)
    document = workflow(PLACED)
    for at in range(PLACED // 2):
        source, target = sorted(chance.sample(range(PLACED), 2))
        ends = {"source": f"n{source}", "sourceHandle": "o", "target": f"n{target}", "targetHandle": "i"}
        document["edges"].append({"id": f"far{at}", **ends})
    read = Workflow.model_validate(document)
    results = []
    for name, keep in (("1,000 nodes placed", ()), ("999 nodes placed beside one", ("n0",))):
        pairs = []
        for _ in range(ROUNDS):
            began = time.process_time()
            lay_out(read, {}, keep)
            between = time.process_time()
            Workflow.model_validate(document)
            pairs.append((between - began, time.process_time() - between))
        limits: dict[str, Any] = {"limited": "value", "unit": "ms", "scale": 1e3}
        results.append(measured(name, pairs, "reading the workflow", 500, **limits))
    return results


FIGURES = {"patches": patches, "hold": hold, "layout": layout}
