"""Streams that tools give: read by handle, by their owner alone, bounded, and closed with what they come from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from context_keeper import NAME, context_of, write_keeper

from tavern_host import Host
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.toolcalls import StreamItems
from tavern_host.projects import Folders
from tavern_tools.calls.streams import CAPACITY, COLLECTED_ITEMS, MOST_STREAMS, Streams
from tavern_tools.catalog.failures import ToolFailure

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIN, MEI = Principal(kind="agent", id="lin"), Principal(kind="agent", id="mei")
UNKNOWN = "no stream has this handle: it was read to its end or closed a while ago, or never was"
CLOSED = StreamItems(finished=True, error="the stream was closed")
INK = InvalidInput("the ink is out")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    """Return a host with a plugin whose streams are closed when nobody reads them for a minute."""
    place = tmp_path_factory.mktemp("streams")
    key = "extensions.acme-keeper.streamIdleSeconds"
    option = {"key": key, "type": "number", "label": "Idle", "defaultValue": 60}
    folders, plugin = Folders(place / "c", place / "s", place / "d"), write_keeper(place, configOptions=[option])
    async with Host(place / "project", plugins=[plugin], trust=[NAME], folders=folders) as opened:
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
    given: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def items(self) -> AsyncIterator[Any]:
        try:
            while self.given < self.count:
                self.given += 1
                yield self.make(self.given)
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


async def until_sources_wait() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_items_are_read_in_order_to_their_end(streams: Streams) -> None:
    source = Source(10)
    handle = streams.open(source.items(), LIN)
    assert (await streams.read(handle, LIN, 3)).items == [1, 2, 3]
    assert (await all_of(streams, handle))[0] == [4, 5, 6, 7, 8, 9, 10]
    await source.closed.wait()
    for _ in range(2):
        assert await streams.read(handle, LIN) == StreamItems(finished=True)
    handle = streams.open(Source(2, hangs=True).items(), LIN)  # a reader gets what is there and waits for no more
    items: list[Any] = []
    while len(items) < 2:
        items += (await streams.read(handle, LIN, 100, 60)).items
    assert (items, await streams.read(handle, LIN, 100, 0.01)) == ([1, 2], StreamItems())
    handle = streams.open(Source(2_000).items(), LIN)  # several readers share the items
    parts = await asyncio.gather(*(all_of(streams, handle, max=7) for _ in range(5)))
    assert sorted(item for items, _ in parts for item in items) == list(range(1, 2_001))


async def test_why_a_stream_broke_off_is_told_last(streams: Streams) -> None:
    handle = streams.open(Source(2, fails=INK).items(), LIN)
    items, last = await all_of(streams, handle, max=1)
    assert (items, last.error) == ([1, 2], "the ink is out")
    assert await streams.read(handle, LIN) == StreamItems(finished=True, error="the ink is out")
    no_json = Source(2, make=lambda number: 1 if number == 1 else [float("nan")])
    items, last = await all_of(streams, streams.open(no_json.items(), LIN))
    assert (items, "JSON" in (last.error or "")) == ([1], True)


async def test_a_source_waits_for_its_reader(streams: Streams) -> None:
    small, large = Source(10_000), Source(50, make=lambda _: "x" * 400_000)
    handle = streams.open(small.items(), LIN)
    assert len((await streams.read(handle, LIN, 10)).items) == 10
    await until_sources_wait()
    assert CAPACITY <= small.given <= CAPACITY + 11
    assert (await all_of(streams, handle))[0] == list(range(11, 10_001))
    handle = streams.open(large.items(), LIN)
    await streams.read(handle, LIN, 1)
    await until_sources_wait()
    assert large.given <= 5
    assert len((await all_of(streams, handle))[0]) == 49


async def test_nobody_else_reads_a_stream(streams: Streams) -> None:
    handles = [streams.open(Source(1, hangs=True).items(), LIN) for _ in range(10)]
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

    handle = streams.open(late(), LIN)
    gone = asyncio.create_task(streams.read(handle, LIN, 100, 60))
    await until_sources_wait()
    gone.cancel()
    resume.set()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert (await all_of(streams, handle))[0] == ["late"]


async def test_a_stream_that_nobody_reads_is_closed(tmp_path: Path) -> None:
    key = "extensions.acme-keeper.streamIdleSeconds"
    plugin = write_keeper(
        tmp_path, configOptions=[{"key": key, "type": "number", "label": "Idle", "defaultValue": 0.1}]
    )
    async with Host(tmp_path / "project", plugins=[plugin], trust=[NAME]) as host:
        hasty = Streams(context_of(host))
        why = "the stream was closed since nobody had read it for 0.1 seconds"
        for count in (100_000, 3):  # also what had ended, whose items are told as lost
            source = Source(count)
            handle = hasty.open(source.items(), LIN)
            while not hasty._streams[handle].is_finished:  # but not until what became of it is forgotten
                await asyncio.sleep(0)
            assert await hasty.read(handle, LIN) == StreamItems(finished=True, error=why)
            await source.closed.wait()
        while handle in hasty._streams:  # which it is as well, once nobody asks
            await asyncio.sleep(0.02)
        with pytest.raises(NotFound):
            await hasty.read(handle, LIN)

        async def slow() -> AsyncIterator[Any]:
            for number in range(3):
                await asyncio.sleep(0.2)
                yield number

        assert (await all_of(hasty, hasty.open(slow(), LIN)))[0] == [0, 1, 2]  # waiting for items is reading


async def test_an_owner_has_so_many_open_streams(streams: Streams) -> None:
    handles = [streams.open(Source(1, hangs=True).items(), LIN) for _ in range(MOST_STREAMS)]
    refused = Source(1)
    items = refused.items()
    await anext(items)
    with pytest.raises(Conflict, match=f"agent:lin has {MOST_STREAMS} streams open"):
        streams.open(items, LIN)
    await refused.closed.wait()
    assert (await streams.read(handles[0], LIN)).items == [1]
    for _ in range(3 * MOST_STREAMS):  # those that were read do not count, and old ones are forgotten
        handles.append(streams.open(Source(1).items(), MEI))
        assert (await all_of(streams, handles[-1], MEI))[0] == [1]
    with pytest.raises(NotFound):
        await streams.read(handles[MOST_STREAMS], MEI)
    assert (await streams.read(handles[-1], MEI)).finished


async def test_closing_ends_sources_and_wakes_readers(host: Host) -> None:
    for is_disabled in (False, True):
        streams = Streams(context_of(host))
        hanging, full = Source(0, hangs=True), Source(10_000)
        waiting = asyncio.create_task(streams.read(streams.open(hanging.items(), LIN), LIN, 100, 60))
        handle = streams.open(full.items(), LIN)
        await until_sources_wait()
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
        assert (endless.closed.is_set(), endless.given <= COLLECTED_ITEMS + 1) == (True, True)
