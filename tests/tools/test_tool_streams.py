"""Streams that tools and workflows give: read by handle, by their owner alone, bounded, closed with their source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from context_keeper import NAME, context_of, write_keeper
from helpers.held_time import HeldClock
from helpers.issued_contexts import issued
from helpers.waiting import until, until_idle
from helpers.workflow_documents import workflow_document

from tavern_host import EXECUTION_ENGINE, CallContext, Host
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders
from tavern_host.testing.http import TOKEN, served
from tavern_tools.api.toolcalls import StreamItems, ToolErrorType
from tavern_tools.calls.streams import CAPACITY, COLLECTED_ITEMS, MOST_STREAMS, Streams
from tavern_tools.calls.workflow_streams import workflow_stream
from tavern_tools.catalog.failures import ToolFailure

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = Path(__file__).parent.parent / "engine" / "plugins" / "acme_streams"
LIN, MEI = Principal(kind="agent", id="lin"), Principal(kind="agent", id="mei")
BY_LIN, BY_MEI = (CallContext(principal=LIN), "list"), (CallContext(principal=MEI), "list")
UNKNOWN = "no stream has this handle: it was read to its end or closed a while ago, or never was"
CLOSED = StreamItems(finished=True, error="the stream was closed")
INK = InvalidInput("the ink is out")
IDLE = 60
WORDS, OTHERS = "one two three four five", "six seven eight nine ten"


def keeper(folder: Path) -> Path:
    """Write a plugin that may follow runs, whose streams are closed when nobody reads them for `IDLE` seconds."""
    key = "extensions.acme-keeper.streamIdleSeconds"
    permissions = {
        "services": {"use": ["executionEngine:execute", "executionEngine:interrupt", "executionEngine:read"]},
        "events": {"subscribe": ["WORKFLOW_INTERFACE_YIELD", "EXECUTION_STATUS_UPDATE"]},
    }
    option = {"key": key, "type": "number", "label": "Idle", "defaultValue": IDLE}
    return write_keeper(folder, permissions=permissions, configOptions=[option])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    place = tmp_path_factory.mktemp("streams")
    plugins, folders = [keeper(place), NODES], Folders(place / "c", place / "s", place / "d")
    async with Host(place / "project", plugins=plugins, trust=[NAME, "acme-streams"], folders=folders) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def streams(host: Host) -> AsyncIterator[Streams]:
    made = Streams(context_of(host))
    yield made
    await made.close()


@dataclass
class Source:
    """Items to read, and what became of who gives them. It waits after `count` items if it `hangs`."""

    count: int = 3
    hangs: bool = False
    fails: Exception | None = None
    make: Callable[[int], Any] = lambda number: number
    yielded: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def items(self) -> AsyncIterator[Any]:
        try:
            while self.yielded < self.count:
                self.yielded += 1
                yield self.make(self.yielded)
            if self.fails is not None:
                raise self.fails
            if self.hangs:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.closed.set()


async def all_of(
    streams: Streams, handle: str, owner: Principal = LIN, max: int = 100
) -> tuple[list[Any], StreamItems]:
    """Return all items of a stream, and what told of its end."""
    items: list[Any] = []
    while not (read := await streams.read(handle, owner, max, 60)).finished:
        items += read.items
    return items + read.items, read


async def test_items_are_read_in_order_to_their_end(streams: Streams) -> None:
    source = Source(10)
    handle = streams.open(source.items(), *BY_LIN)
    assert (await streams.read(handle, LIN, 3)).items == [1, 2, 3]
    assert (await all_of(streams, handle))[0] == [4, 5, 6, 7, 8, 9, 10]
    await source.closed.wait()
    for _ in range(2):
        assert await streams.read(handle, LIN) == StreamItems(finished=True)
    handle = streams.open(Source(2, hangs=True).items(), *BY_LIN)  # a reader gets what is there and waits for no more
    items: list[Any] = []
    while len(items) < 2:
        items += (await streams.read(handle, LIN, 100, 60)).items
    assert (items, await streams.read(handle, LIN, 100, 0.01)) == ([1, 2], StreamItems())
    handle = streams.open(Source(2_000).items(), *BY_LIN)  # several readers share the items
    parts = await asyncio.gather(*(all_of(streams, handle, max=7) for _ in range(5)))
    assert sorted(item for items, _ in parts for item in items) == list(range(1, 2_001))


async def test_why_a_stream_broke_off_is_told_last(streams: Streams) -> None:
    handle = streams.open(Source(2, fails=INK).items(), *BY_LIN)
    items, last = await all_of(streams, handle, max=1)
    assert (items, last.error) == ([1, 2], "the ink is out")
    assert await streams.read(handle, LIN) == StreamItems(finished=True, error="the ink is out")
    no_json = Source(2, make=lambda number: 1 if number == 1 else [float("nan")])
    items, last = await all_of(streams, streams.open(no_json.items(), *BY_LIN))
    assert items == [1]
    assert "JSON" in (last.error or "")


async def test_a_source_waits_for_its_reader(streams: Streams) -> None:
    small, large = Source(10_000), Source(50, make=lambda _: "x" * 400_000)
    handle = streams.open(small.items(), *BY_LIN)
    assert len((await streams.read(handle, LIN, 10)).items) == 10
    await until_idle()
    assert CAPACITY <= small.yielded <= CAPACITY + 11
    assert (await all_of(streams, handle))[0] == list(range(11, 10_001))
    handle = streams.open(large.items(), *BY_LIN)
    await streams.read(handle, LIN, 1)
    await until_idle()
    assert large.yielded <= 5
    assert len((await all_of(streams, handle))[0]) == 49


async def test_nobody_else_reads_a_stream(streams: Streams) -> None:
    handles = [streams.open(Source(1, hangs=True).items(), *BY_LIN) for _ in range(10)]
    assert (len({handle[:12] for handle in handles}), all(len(handle) >= 32 for handle in handles)) == (10, True)
    strangers = [MEI, Principal(kind="user", id="lin"), Principal(kind="plugin", id="lin")]
    guesses = [(guess, LIN) for guess in ("", "stream_", handles[0][:-1], handles[0].swapcase())]
    for handle, owner in [*((handles[0], stranger) for stranger in strangers), *guesses]:
        with pytest.raises(NotFound, match=UNKNOWN):
            await streams.read(handle, owner)
    assert (await streams.read(handles[0], LIN)).items == [1]


async def test_a_reader_that_leaves_loses_nothing(streams: Streams) -> None:
    resume = asyncio.Event()

    async def late() -> AsyncIterator[Any]:
        await resume.wait()
        yield "late"

    handle = streams.open(late(), *BY_LIN)
    gone = asyncio.create_task(streams.read(handle, LIN, 100, 60))
    await until_idle()
    gone.cancel()
    resume.set()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert (await all_of(streams, handle))[0] == ["late"]


async def test_a_stream_that_nobody_reads_is_closed(streams: Streams, held_clock: HeldClock) -> None:
    why = f"the stream was closed since nobody had read it for {IDLE} seconds"
    for count in (100_000, 3):  # also what had ended, whose items are told as lost
        source = Source(count)
        handle = streams.open(source.items(), *BY_LIN)
        await until_idle()
        held_clock.advance(IDLE)
        await source.closed.wait()
        await until_idle()
        assert await streams.read(handle, LIN) == StreamItems(finished=True, error=why)
    held_clock.advance(IDLE)  # what became of it is forgotten as well, once nobody asks
    await until_idle()
    with pytest.raises(NotFound):
        await streams.read(handle, LIN)

    async def slow() -> AsyncIterator[Any]:
        for number in range(3):
            held_clock.advance(2 * IDLE)
            await asyncio.sleep(0)
            yield number

    assert (await all_of(streams, streams.open(slow(), *BY_LIN)))[0] == [0, 1, 2]  # waiting for items is reading


async def test_an_owner_has_so_many_open_streams(streams: Streams) -> None:
    handles = [streams.open(Source(1, hangs=True).items(), *BY_LIN) for _ in range(MOST_STREAMS)]
    refused = Source(1)
    items = refused.items()
    await anext(items)
    with pytest.raises(Conflict, match=f"agent:lin has {MOST_STREAMS} streams open"):
        streams.open(items, *BY_LIN)
    await refused.closed.wait()
    assert (await streams.read(handles[0], LIN)).items == [1]
    for _ in range(3 * MOST_STREAMS):  # those that were read do not count, and old ones are forgotten
        handles.append(streams.open(Source(1).items(), *BY_MEI))
        assert (await all_of(streams, handles[-1], MEI))[0] == [1]
    with pytest.raises(NotFound):
        await streams.read(handles[MOST_STREAMS], MEI)
    assert (await streams.read(handles[-1], MEI)).finished


async def test_closing_ends_sources_and_wakes_readers(host: Host) -> None:
    for is_disabled in (False, True):
        streams = Streams(context_of(host))
        hanging, full = Source(0, hangs=True), Source(10_000)
        waiting = asyncio.create_task(streams.read(streams.open(hanging.items(), *BY_LIN), LIN, 100, 60))
        handle = streams.open(full.items(), *BY_LIN)
        await until_idle()
        await (host.disable(NAME) if is_disabled else streams.close())
        assert (hanging.closed.is_set(), full.closed.is_set(), await waiting) == (True, True, CLOSED)
        if not is_disabled:
            with pytest.raises(NotFound):
                await streams.read(handle, LIN)
    await host.enable(NAME)


# --- collecting -----------------------------------------------------------------------------------


async def test_texts_are_joined_and_other_items_listed(streams: Streams) -> None:
    rows: Any = [(["one ", "two"], "one two"), ([1, 2], [1, 2]), (["a", {"b": 1}], ["a", {"b": 1}]), ([], [])]
    for items, collected in rows:
        source = Source(len(items), make=lambda number, items=items: items[number - 1])
        assert await streams.collect(source.items()) == collected
    failing = Source(3, fails=INK)
    with pytest.raises(InvalidInput, match="the ink is out"):
        await streams.collect(failing.items())
    assert failing.closed.is_set()
    for piece in (1, "x" * 100_000):
        endless = Source(10**9, make=lambda _, piece=piece: piece)
        with pytest.raises(ToolFailure, match="which is the most that is collected"):
            await streams.collect(endless.items())
        assert endless.closed.is_set()
        assert endless.yielded <= COLLECTED_ITEMS + 1


# --- streams of workflows ---------------------------------------------------------------------------


class Bench:
    """The host, and the context of the plugin that may follow runs."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.context = context_of(host)
        self.engine = host.services.get(EXECUTION_ENGINE)

    def stream(self, workflow: Workflow, *keys: str, deadline: float | None = None) -> AsyncIterator[Any]:
        call = CallContext(principal=LIN)
        call = issued(call if deadline is None else call.child(timeout=deadline))
        return workflow_stream(self.context, RunRequest(workflow=workflow), call, keys or ("answer",))

    async def items(self, workflow: Workflow, *keys: str) -> list[Any]:
        return [item async for item in self.stream(workflow, *keys)]

    async def newest(self) -> Any:
        return (await self.engine.history())[0]

    async def until_interrupted(self) -> None:
        """Wait until the newest run was interrupted."""

        async def is_interrupted() -> bool:
            return (await self.newest()).status is RunStatus.INTERRUPTED

        await until(is_interrupted, "the run was interrupted")


@pytest.fixture
def bench(host: Host) -> Bench:
    return Bench(host)


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
    assert "".join(pieces) == WORDS
    assert len(pieces) > 2
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
    items = bench.stream(streaming("core:TextToStream", text="a " * 300, delay=0.2))
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
    assert "".join(pieces) == OTHERS
    assert len(pieces) > 2
    assert [result["status"] for result in results] == ["done", "error"]
