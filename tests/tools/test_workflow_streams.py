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
from context_keeper import NAME, context_of, write_keeper
from helpers.given_contexts import given

from tavern_host import EXECUTION_ENGINE, CallContext, Host, PluginContext
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.toolcalls import ToolErrorType
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import TOKEN, served
from tavern_tools.calls.workflow_streams import workflow_stream
from tavern_tools.catalog.failures import ToolFailure

NODES = Path(__file__).parent.parent / "engine" / "plugins" / "acme_streams"
LIN = Principal(kind="agent", id="lin")


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

    async def failure(self, workflow: Workflow, *, deadline: float | None = None) -> tuple[list[Any], ToolFailure]:
        """Return what came before a stream broke off, and why it did."""
        found: list[Any] = []
        with pytest.raises(ToolFailure) as caught:
            async for item in self.stream(workflow, deadline=deadline):
                found.append(item)
        return found, caught.value

    async def until_it_stands(self, status: RunStatus) -> None:
        """Wait until the newest run stands so."""
        while (await self.engine.history())[0].status is not status:
            await asyncio.sleep(0.01)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    permissions = {
        "services": {"use": ["executionEngine:execute", "executionEngine:interrupt"]},
        "events": {"subscribe": ["WORKFLOW_INTERFACE_YIELD", "EXECUTION_STATUS_UPDATE"]},
    }
    plugins = [write_keeper(tmp_path, permissions=permissions), NODES]
    async with Host(tmp_path / "project", plugins=plugins, trust=[NAME, "acme-streams"]) as host:
        yield Bench(host, context_of(host))


def streaming(*types: str, data: str = "STRING", **inputs: Any) -> Workflow:
    """Return a workflow whose nodes of these types stream out: the first as `answer`, others as `answer2` …"""
    keys = ["answer", *(f"answer{n}" for n in range(2, len(types) + 1))]
    return Workflow.model_validate(
        {
            "nodes": [
                *({"id": key, "type": type, "inputValues": inputs} for key, type in zip(keys, types, strict=True)),
                {"id": "out", "type": "core:GroupOutput"},
            ],
            "edges": [
                {
                    "id": key,
                    "source": key,
                    "sourceHandle": "stream" if type.startswith("core:") else "items",
                    "target": "out",
                    "targetHandle": key,
                }
                for key, type in zip(keys, types, strict=True)
            ],
            "interfaceOutputs": {key: {"dataFlowType": data, "isStream": True} for key in keys},
        }
    )


async def test_text_comes_piece_by_piece_before_the_run_has_ended(bench: Bench) -> None:
    text = "one two three four five"
    workflow = streaming("core:TextToStream", text=text, delay=0.1)
    pieces = []
    async for piece in bench.stream(workflow):
        if not pieces:
            assert (await bench.engine.history())[0].status is RunStatus.RUNNING
        pieces.append(piece)
    assert "".join(pieces) == text
    assert len(pieces) > 2
    assert (await bench.engine.history())[0].status is RunStatus.COMPLETE


async def test_items_of_any_kind_come_one_by_one(bench: Bench) -> None:
    chunk, custom = {"type": "text_chunk", "content": "c"}, {"type": "custom", "content": 3, "x": 1}
    listed = [1, None, "a", {"b": [2]}, [], chunk, custom]
    assert await bench.items(streaming("acme-streams:Values", data="WILDCARD", listed=listed)) == [
        *(1, None, "a", {"b": [2]}, [], "c"),
        custom,
    ]


async def test_a_hundred_thousand_items_come_in_order(bench: Bench) -> None:
    workflow = streaming("acme-streams:Numbers", data="INTEGER", length=100_000)
    assert await bench.items(workflow) == list(range(100_000))


async def test_of_several_outputs_each_item_says_which(bench: Bench) -> None:
    workflow = streaming("core:TextToStream", "core:TextToStream", text="a b")
    items = await bench.items(workflow, "answer", "answer2")
    for key in ("answer", "answer2"):
        assert "".join(item["item"] for item in items if item["output"] == key) == "a b"


async def test_what_comes_by_other_outputs_or_of_other_runs_is_left_out(bench: Bench) -> None:
    workflow = streaming("core:TextToStream", "acme-streams:Pieces", text="a|b")
    pieces = await asyncio.gather(*(bench.items(workflow) for _ in range(8)))
    assert ["".join(each) for each in pieces] == ["a|b"] * 8


async def test_a_source_that_fails_ends_the_stream_with_its_reason(bench: Bench) -> None:
    items, failure = await bench.failure(streaming("acme-streams:Breaks", data="INTEGER", after=3))
    assert items == [0, 1, 2]
    assert failure.type is ToolErrorType.EXECUTION
    assert "the source gave up" in failure.message
    assert failure.details["runId"]


async def test_a_run_that_is_refused_is_told_and_nothing_is_left(bench: Bench) -> None:
    workflow = Workflow.model_validate({"nodes": [{"id": "a", "type": "acme-streams:Nope"}]})
    with pytest.raises(InvalidInput, match="Nope"):
        await bench.items(workflow)


async def test_an_interrupted_run_ends_the_stream(bench: Bench) -> None:
    items = []
    with pytest.raises(ToolFailure, match="interrupted") as caught:
        async for item in bench.stream(streaming("acme-streams:Ticks", data="INTEGER")):
            items.append(item)
            await bench.engine.interrupt((await bench.engine.history())[0].id)
    assert items == [0]
    assert caught.value.type is ToolErrorType.INTERRUPTED


async def test_a_run_past_its_deadline_ends_the_stream(bench: Bench) -> None:
    _, failure = await bench.failure(streaming("acme-streams:Ticks", data="INTEGER"), deadline=0.3)
    assert failure.type is ToolErrorType.TIMEOUT


async def test_leaving_early_interrupts_the_run(bench: Bench) -> None:
    async with aclosing(bench.stream(streaming("acme-streams:Ticks", data="INTEGER"))) as items:
        assert await anext(items) == 0
    await bench.until_it_stands(RunStatus.INTERRUPTED)


async def test_items_that_were_lost_are_told_and_not_left_out_in_silence(bench: Bench) -> None:
    items = bench.stream(streaming("core:TextToStream", text="a b c", delay=0.2))
    first = await anext(items)
    for _ in range(120):  # so much of other runs that what waits to be read is dropped
        payload = {"promptId": "run_other", "interfaceOutputKey": "x", "yieldedContent": "y" * 500_000}
        bench.host.events.publish("WORKFLOW_INTERFACE_YIELD", payload)
    with pytest.raises(ToolFailure, match="were lost: the stream was read too slowly") as caught:
        async for _ in items:
            pass
    assert first.startswith("a")
    assert caught.value.type is ToolErrorType.RESOURCE
    await bench.until_it_stands(RunStatus.INTERRUPTED)


async def test_a_stream_comes_over_http_while_it_runs(bench: Bench) -> None:
    text = "one two three four five"
    file = bench.host.project.folder("workflows") / "slow.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(streaming("core:TextToStream", text=text, delay=0.1).to_json()))
    accept, events, running = {"Accept": "text/event-stream"}, [], []
    token = {"Authorization": f"Bearer {TOKEN}"}
    async with served(bench.host) as site, aiohttp.ClientSession(headers=token) as client:
        address = f"http://127.0.0.1:{site.port}/api/tools/execute"
        for body in ({"toolId": "workflow:slow"}, {"toolId": "absent"}, {"text": "no call"}):
            async with client.post(address, json=body, headers=accept) as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                while line := (await answer.content.readline()).decode():
                    if line.startswith("event: item") and not running:
                        running.append((await bench.engine.history())[0].status)
                    events += [line.strip()] if line.strip() else []
        for mistake in ({"tool": "x"}, {"text": "", "protocols": ["absent"]}):
            assert (await client.post(address, json=mistake, headers=accept)).status == 400
    pieces = [events[n + 1] for n, line in enumerate(events) if line == "event: item"]
    results = [json.loads(events[n + 1][6:]) for n, line in enumerate(events) if line == "event: result"]
    assert running == [RunStatus.RUNNING]
    assert len(pieces) > 2 and "".join(json.loads(piece[6:]) for piece in pieces) == text
    assert [result["status"] for result in results] == ["done", "error"]


async def test_a_client_that_leaves_ends_the_run(bench: Bench) -> None:
    file = bench.host.project.folder("workflows") / "slow.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(streaming("core:TextToStream", text="word " * 200, delay=0.1).to_json()))
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    async with served(bench.host) as site, aiohttp.ClientSession(headers=headers) as client:
        address = f"http://127.0.0.1:{site.port}/api/tools/execute"
        async with client.post(address, json={"toolId": "workflow:slow"}) as answer:
            assert (await answer.content.readline()).startswith(b"event: item")
        async with asyncio.timeout(60):
            await bench.until_it_stands(RunStatus.INTERRUPTED)
