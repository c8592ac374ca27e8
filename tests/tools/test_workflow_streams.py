"""What workflows give by the streams of their interface, item by item, while they run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from context_keeper import NAME, context_of, write_keeper
from helpers.given_contexts import given
from helpers.workflow_documents import workflow_document

from tavern_host import EXECUTION_ENGINE, CallContext, Host, PluginContext
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.toolcalls import ToolErrorType
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders
from tavern_host.testing.http import TOKEN, served
from tavern_tools.calls.workflow_streams import workflow_stream
from tavern_tools.catalog.failures import ToolFailure

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = Path(__file__).parent.parent / "engine" / "plugins" / "acme_streams"
LIN = Principal(kind="agent", id="lin")
WORDS, OTHERS = "one two three four five", "six seven eight nine ten"


class Bench:
    """A host, and the context of a plugin that may follow runs."""

    def __init__(self, host: Host, context: PluginContext) -> None:
        self.host = host
        self.context = context
        self.engine = host.services.get(EXECUTION_ENGINE)

    def stream(self, workflow: Workflow, *keys: str, deadline: float | None = None) -> AsyncIterator[Any]:
        call = CallContext(principal=LIN)
        call = given(call if deadline is None else call.child(timeout=deadline))
        return workflow_stream(self.context, RunRequest(workflow=workflow), call, keys or ("answer",))

    async def items(self, workflow: Workflow, *keys: str) -> list[Any]:
        return [item async for item in self.stream(workflow, *keys)]

    async def newest(self) -> Any:
        return (await self.engine.history())[0]

    async def until_interrupted(self) -> None:
        """Wait until the newest run was interrupted."""
        async with asyncio.timeout(60):
            while (await self.newest()).status is not RunStatus.INTERRUPTED:
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    place = tmp_path_factory.mktemp("streams")
    permissions = {
        "services": {"use": ["executionEngine:execute", "executionEngine:interrupt"]},
        "events": {"subscribe": ["WORKFLOW_INTERFACE_YIELD", "EXECUTION_STATUS_UPDATE"]},
    }
    plugins, folders = (
        [write_keeper(place, permissions=permissions), NODES],
        Folders(place / "c", place / "s", place / "d"),
    )
    async with Host(place / "project", plugins=plugins, trust=[NAME, "acme-streams"], folders=folders) as host:
        yield Bench(host, context_of(host))


def streaming(*types: str, data: str = "STRING", **inputs: Any) -> Workflow:
    """Return a workflow whose nodes of these types stream out: the first as `answer`, others as `answer2` …"""
    keys = ["answer", *(f"answer{n}" for n in range(2, len(types) + 1))]
    nodes: Any = {key: {"type": type, "inputValues": inputs} for key, type in zip(keys, types, strict=True)}
    edges = [f"{key}.{'stream' if nodes[key]['type'].startswith('core:') else 'items'} > out.{key}" for key in keys]
    gives = {key: {"dataFlowType": data, "isStream": True} for key in keys}
    return Workflow.model_validate(
        workflow_document({**nodes, "out": "core:GroupOutput"}, *edges, interfaceOutputs=gives)
    )


async def test_items_come_one_by_one_while_it_runs(bench: Bench) -> None:
    pieces = await bench.items(streaming("core:TextToStream", text=WORDS, delay=0.1))
    assert ("".join(pieces), len(pieces) > 2) == (WORDS, True)
    assert (await bench.newest()).status is RunStatus.COMPLETE
    chunk, custom = {"type": "text_chunk", "content": "c"}, {"type": "custom", "content": 3, "x": 1}
    listed = [1, None, "a", {"b": [2]}, [], chunk, custom]
    found = await bench.items(streaming("acme-streams:Values", data="WILDCARD", listed=listed))
    assert found == [1, None, "a", {"b": [2]}, [], "c", custom]
    numbers = streaming("acme-streams:Numbers", data="INTEGER", length=20_000)
    assert await bench.items(numbers) == list(range(20_000))


async def test_outputs_and_runs_are_kept_apart(bench: Bench) -> None:
    workflow = streaming("core:TextToStream", "core:TextToStream", text="a b")
    items = await bench.items(workflow, "answer", "answer2")
    for key in ("answer", "answer2"):
        assert "".join(item["item"] for item in items if item["output"] == key) == "a b"
    workflow = streaming("core:TextToStream", "acme-streams:Pieces", text="a|b")
    pieces = await asyncio.gather(*(bench.items(workflow) for _ in range(8)))
    assert ["".join(each) for each in pieces] == ["a|b"] * 8


async def test_a_run_that_breaks_off_ends_the_stream(bench: Bench) -> None:
    ticks = streaming("acme-streams:Ticks", data="INTEGER")
    rows: Any = [
        # a workflow, its deadline, the items that come, the error
        (
            streaming("acme-streams:Breaks", data="INTEGER", after=3),
            None,
            [0, 1, 2],
            ToolErrorType.EXECUTION,
            "the source gave up",
        ),
        (ticks, None, [0], ToolErrorType.INTERRUPTED, "interrupted"),
        (ticks, 0.3, None, ToolErrorType.TIMEOUT, None),
    ]
    for workflow, deadline, expected, kind, said in rows:
        found: list[Any] = []
        with pytest.raises(ToolFailure, match=said) as caught:
            async for item in bench.stream(workflow, deadline=deadline):
                found.append(item)
                if kind is ToolErrorType.INTERRUPTED:
                    await bench.engine.interrupt((await bench.newest()).id)
        assert (caught.value.type, found) == (kind, found if expected is None else expected)
        assert kind is not ToolErrorType.EXECUTION or caught.value.details["runId"]
    with pytest.raises(InvalidInput, match="Nope"):  # a run that is refused is told
        await bench.items(Workflow.model_validate({"nodes": [{"id": "a", "type": "acme-streams:Nope"}]}))
    async with aclosing(bench.stream(ticks)) as items:  # leaving early interrupts the run
        assert (await anext(items), (await bench.newest()).status) == (0, RunStatus.RUNNING)
    await bench.until_interrupted()


async def test_items_that_were_lost_are_told(bench: Bench) -> None:
    items = bench.stream(streaming("core:TextToStream", text="a b c", delay=0.2))
    first = await anext(items)
    for _ in range(120):  # so much of other runs that what waits to be read is dropped
        payload = {"promptId": "run_other", "interfaceOutputKey": "x", "yieldedContent": "y" * 500_000}
        bench.host.events.publish("WORKFLOW_INTERFACE_YIELD", payload)
    with pytest.raises(ToolFailure, match="were lost: the stream was read too slowly") as caught:
        async for _ in items:
            pass
    assert (first[0], caught.value.type) == ("a", ToolErrorType.RESOURCE)
    await bench.until_interrupted()


async def test_streams_come_over_http_while_they_run(bench: Bench) -> None:
    folder = bench.host.project.folder("workflows")
    folder.mkdir(exist_ok=True)
    for name, text in (("slow", OTHERS), ("slower", "word " * 200)):
        (folder / f"{name}.json").write_text(json.dumps(streaming("core:TextToStream", text=text, delay=0.1).to_json()))
    events: list[str] = []
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    async with served(bench.host) as site, aiohttp.ClientSession(headers=headers) as client:
        address = f"http://127.0.0.1:{site.port}/api/tools/execute"
        for body in ({"toolId": "workflow:slow"}, {"toolId": "absent"}, {"text": "no call"}):
            async with client.post(address, json=body) as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                events += [line.strip().decode() async for line in answer.content if line.strip()]
        for mistake in ({"tool": "x"}, {"text": "", "protocols": ["absent"]}):
            assert (await client.post(address, json=mistake)).status == 400
        async with client.post(address, json={"toolId": "workflow:slower"}) as answer:
            assert (await answer.content.readline()).startswith(b"event: item")
            assert (await bench.newest()).status is RunStatus.RUNNING
        await bench.until_interrupted()  # a client that leaves ends the run
    pieces = [json.loads(events[n + 1][6:]) for n, line in enumerate(events) if line == "event: item"]
    results = [json.loads(events[n + 1][6:]) for n, line in enumerate(events) if line == "event: result"]
    assert ("".join(pieces), len(pieces) > 2) == (OTHERS, True)
    assert [result["status"] for result in results] == ["done", "error"]
