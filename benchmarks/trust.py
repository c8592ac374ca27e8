"""The promises that have a size: what a run costs beyond its node, what hostile text costs, how long anything keeps the
event loop, what a look for calls costs where there are many tools (docs/performance.md)."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Result, frozen, longest_hold, measured
from benchmarks.trustsubject import WORKFLOW, served, server
from tavern_host import Host
from tavern_host.projects import Folders
from tavern_tools.api.tools import TOOL_MANAGER


@dataclass(frozen=True)
class Sizes:
    """How much each figure is measured with."""

    runs: int = 500
    characters: int = 900_000
    nodes: int = 20_000
    items: int = 1_000_000
    tools: int = 3000
    parses: int = 20
    output_characters: int = 200_000_000
    values: int = 20


SIZES = Sizes()

_NODE = {"type": "core:TextMerge", "inputValues": {"text_inputs": ["a"]}}


async def _run() -> list[Result]:
    """Measure a run of one node over HTTP: the CPU time of all threads of the server."""
    kinds: dict[str, Callable[[int], dict[str, Any]]] = {
        "a stored workflow": lambda number: {"workflowId": WORKFLOW},
        "one that is sent, with a new value": lambda number: {
            "nodes": [{"id": "n", "fullType": "core:TextMerge", "inputs": {"text_inputs": [f"text {number}"]}}]
        },
    }
    rounds = min(5, harness.ROUNDS)
    results = []
    async with server() as subject:
        for about, body in kinds.items():
            pairs = []
            if await subject.status(await subject.run(body(-1))) == "error":
                raise AssertionError("the run failed")
            for round in range(rounds):
                spent = []
                for work in (
                    lambda number, body=body, round=round: subject.run(body(number + SIZES.runs * round)),
                    lambda number: subject.read(),
                ):
                    await subject.until_idle()
                    began = subject.cpu_seconds()
                    for number in range(SIZES.runs):
                        await work(number)
                    await subject.until_idle()
                    spent.append((subject.cpu_seconds() - began) / SIZES.runs)
                pairs.append((spent[0], spent[1]))
            name, floor = f"a run of one node over HTTP, {about}", "a request that only reads"
            results.append(measured(name, pairs, floor, 1, limited="value", unit="ms", scale=1e3))
    return results


async def _parse(text: str, tools: int, times: int = 1) -> tuple[float, float]:
    """Return the CPU seconds that a look for calls in a text takes, done some times, and the longest hold of the loop
    meanwhile, in a project with this many tool files."""

    async def parse() -> None:
        for _ in range(times):
            await manager.parse_text(text)

    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        folder = root / "project" / "tools"
        folder.mkdir(parents=True)
        for number in range(tools):
            about = {"id": f"bench:T{number}", "implementation": {"type": "node", "nodeType": "core:UpperCase"}}
            (folder / f"t{number}.tool.json").write_text(json.dumps(about))
        async with Host(root / "project", folders=Folders(root / "c", root / "s", root / "d")) as host:
            manager = host.services.get(TOOL_MANAGER)
            await manager.parse_text("once")  # finds the tools
            listed = sum(tool.id.startswith("bench:") for tool in await manager.list_tools())
            if listed != tools:
                raise AssertionError(f"{listed} of {tools} tools are listed")
            began = time.process_time()
            await parse()
            spent = (time.process_time() - began) / times
            return spent, await longest_hold(parse)


async def _hostile() -> list[Result]:
    """Measure the worst text known: its CPU time per character, and the longest time that it holds the loop."""
    text = "<|[REQUEST_TOOL]|>" + "「始」" * (SIZES.characters // 3)
    found = [(await _parse(text, 0), await _parse(text[: len(text) // 10], 0)) for _ in range(min(3, harness.ROUNDS))]
    spent = [(whole[0] / len(text), tenth[0] / (len(text) // 10)) for whole, tenth in found]
    holds = [(whole[1], tenth[1]) for whole, tenth in found]
    name = f"{len(text):,} characters of repeated 「始」"
    floor = "a tenth of it"
    return [
        measured(f"{name}, a character", spent, floor, 1.5, limited="value"),
        measured(f"{name}, longest hold of the loop", holds, floor, 10, limited="value", unit="ms", scale=1e3),
    ]


async def _tools() -> list[Result]:
    """Measure the search of a text for calls with many tool files, as a ratio to that without any."""
    text = "She said nothing. " * 50
    times, pairs = SIZES.parses, []
    for _ in range(min(3, harness.ROUNDS)):
        many, none = await _parse(text, SIZES.tools, times), await _parse(text, 0, times)
        pairs.append((many[0], none[0]))
    return [measured(f"reading 900 characters, with {SIZES.tools:,} tool files", pairs, "without", 2)]


async def _accept() -> list[Result]:
    """Return for how long accepting a large workflow over HTTP keeps the loop."""
    count = SIZES.nodes
    nodes: list[dict[str, Any]] = [{"id": f"n{i}", "fullType": "core:TextMerge"} for i in range(count)]
    nodes[0]["inputs"] = {"text_inputs": ["a"]}
    edges = [
        {"sourceNodeId": f"n{(i - 1) // 2}", "sourceHandle": "merged_text", "targetNodeId": f"n{i}",
            "targetHandle": "text_inputs__0"} for i in range(1, count)
    ]  # fmt: skip
    pairs = []
    async with served() as subject:
        for round in range(min(3, harness.ROUNDS)):
            body = json.dumps({"name": f"large {round}", "nodes": nodes, "edges": edges}).encode()
            small = json.dumps({"name": f"small {round}", "nodes": nodes[:1]}).encode()
            ids: list[str] = []

            async def submit(body: bytes = body, ids: list[str] = ids) -> None:
                ids.append(await subject.submit(body))

            with frozen():
                ours = await longest_hold(submit)
                await subject.ended(ids[0])
                theirs = await longest_hold(lambda small=small: subject.submit(small))  # type: ignore[misc]
            pairs.append((ours, theirs))
    name = f"accepting {count:,} nodes, longest hold of the loop"
    return [measured(name, pairs, "accepting one", 50, limited="value", unit="ms", scale=1e3)]


async def _stream() -> list[Result]:
    """Return for how long a stream that goes out over the interface keeps the loop, from its beginning to its end."""
    pairs = []
    async with served() as subject:

        async def through(items: int) -> None:
            nodes = [{"id": "n", "fullType": "tool-desk:Count", "inputs": {"items": items}}]
            body = {
                "nodes": nodes,
                "outputInterfaceMappings": {"out": {"sourceNodeId": "n", "sourceSlotKey": "items"}},
                "interfaceOutputs": {"out": {"dataFlowType": "INTEGER", "isStream": True}},
            }
            await subject.ended(await subject.submit(json.dumps(body).encode()))

        for _ in range(min(3, harness.ROUNDS)):
            with frozen():
                ours = await longest_hold(lambda: through(SIZES.items))
                pairs.append((ours, await longest_hold(lambda: through(10))))
    name = f"{SIZES.items:,} items over an interface, longest hold of the loop"
    return [measured(name, pairs, "10 items", 50, limited="value", unit="ms", scale=1e3)]


async def _answers() -> list[Result]:
    """Return for how long requests about a large workflow keep the loop."""
    workflow = {"name": "large", "nodes": [{**_NODE, "id": f"n{i}"} for i in range(SIZES.nodes)]}
    body = json.dumps(workflow).encode()
    message = json.dumps({"type": "PROMPT_REQUEST", "payload": {**workflow, "edges": []}})
    found: dict[str, list[tuple[float, float]]] = {}
    runs: list[str] = []
    async with served() as subject, subject.session.ws_connect("/ws", max_msg_size=0) as socket:

        async def ask(method: str, path: str, data: bytes | None = None) -> None:
            headers = {"Content-Type": "application/json", "If-Match": tag}
            async with subject.session.request(method, path, data=data, headers=headers) as answer:
                assert answer.status in (200, 201), await answer.text()
                await answer.read()

        async def run() -> None:
            await socket.send_str(message)
            async for reply in socket:
                assert '"error"' not in reply.data[:20], reply.data
                if "PROMPT_ACCEPTED_RESPONSE" in reply.data[:200]:
                    runs.append(json.loads(reply.data)["payload"]["promptId"])
                    return

        tag = ""
        for _ in range(min(3, harness.ROUNDS)):
            async with subject.session.get("/api/workflows/large") as known:
                tag = known.headers.get("ETag", "")
            for name, work in (
                ("keeping", lambda: ask("PUT", "/api/workflows/large", body)),
                ("reading", lambda: ask("GET", "/api/workflows/large")),
                ("running over /ws", run),
            ):
                with frozen():
                    ours = await longest_hold(work)
                    theirs = await longest_hold(lambda: ask("GET", "/api/executions"))
                found.setdefault(name, []).append((ours, theirs))
            await subject.ended(runs[-1])
    return [
        measured(f"{name} {SIZES.nodes:,} nodes, longest hold of the loop", pairs, "asking for the queue", 50,
            limited="value", unit="ms", scale=1e3)
        for name, pairs in found.items()
    ]  # fmt: skip


async def _large() -> list[Result]:
    """Return for how long 200 MB that a run gave keep the loop: while it runs, is shown, and its outputs are sent."""
    size, pairs = SIZES.output_characters // SIZES.values, []
    nodes = [{"id": f"n{i}", "fullType": "tool-desk:Text", "inputs": {"characters": size}} for i in range(SIZES.values)]
    mappings = {f"out{i}": {"sourceNodeId": f"n{i}", "sourceSlotKey": "text"} for i in range(SIZES.values)}
    async with served() as subject:

        async def through(count: int) -> None:
            body = {"nodes": nodes[:count], "outputInterfaceMappings": dict(list(mappings.items())[:count])}
            run = await subject.submit(json.dumps(body).encode())
            await subject.ended(run)
            for path in ("", *(f"/outputs/{key}" for key in body["outputInterfaceMappings"])):
                async with subject.session.get(f"/api/runs/{run}{path}") as answer:
                    assert answer.status == 200, await answer.text()
                    async for _ in answer.content.iter_chunked(1 << 16):
                        pass

        for _ in range(min(3, harness.ROUNDS)):
            with frozen():
                pairs.append(
                    (await longest_hold(lambda: through(SIZES.values)), await longest_hold(lambda: through(1)))
                )
    name = f"{SIZES.output_characters:,} characters that a run gives, longest hold of the loop"
    return [measured(name, pairs, "one text of them", 50, limited="value", unit="ms", scale=1e3)]


def _figure(measure: Callable[[], Coroutine[Any, Any, list[Result]]]) -> Callable[[], list[Result]]:
    return lambda: asyncio.run(measure())


FIGURES: dict[str, Callable[[], list[Result]]] = {
    "run": _figure(_run),
    "hostile": _figure(_hostile),
    "tools": _figure(_tools),
    "accept": _figure(_accept),
    "answers": _figure(_answers),
    "stream": _figure(_stream),
    "large": _figure(_large),
}
"""A part that another promise needs is another entry here."""
