"""Streams that tools give: read by handle, by their owner alone, bounded, and closed with what they come from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from context_keeper import NAME, context_of, write_keeper

from tavern_host import Host, PluginContext
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.toolcalls import StreamItems
from tavern_tools.calls.streams import CAPACITY, COLLECTED_ITEMS, MOST_STREAMS, Streams
from tavern_tools.catalog.failures import ToolFailure

LIN, MEI = Principal(kind="agent", id="lin"), Principal(kind="agent", id="mei")


async def opened(tmp_path: Path, idle: float) -> AsyncIterator[tuple[Host, PluginContext]]:
    option = {
        "key": "extensions.acme-keeper.streamIdleSeconds",
        "type": "number",
        "label": "Idle",
        "defaultValue": idle,
    }
    plugin = write_keeper(tmp_path, configOptions=[option])
    async with Host(tmp_path / "project", plugins=[plugin], trust=[NAME]) as host:
        yield host, context_of(host)


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[tuple[Host, PluginContext]]:
    async for pair in opened(tmp_path, 60):
        yield pair


@pytest.fixture
def streams(keeper: tuple[Host, PluginContext]) -> Streams:
    return Streams(keeper[1])


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Streams]:
    """Return streams that are closed when nobody reads them for a tenth of a second."""
    async for _, context in opened(tmp_path, 0.1):
        yield Streams(context)


@dataclass
class Source:
    """Items to read, and what became of who gives them. It waits after `count` items if it `hangs`."""

    count: int = 3
    hangs: bool = False
    fails: Exception | None = None
    given: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def items(self) -> AsyncIterator[Any]:
        try:
            while self.given < self.count:
                self.given += 1
                yield self.given
            if self.fails is not None:
                raise self.fails
            if self.hangs:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.closed.set()


async def texts(*pieces: str) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece


Read = tuple[list[Any], StreamItems]
"""All items of a stream, and what told of its end."""


async def all_of(streams: Streams, handle: str, owner: Principal = LIN, max: int = 100) -> Read:
    items: list[Any] = []
    while True:
        read = await streams.read(handle, owner, max, 5)
        items += read.items
        if read.finished:
            return items, read


async def test_items_are_read_in_order_to_the_end_which_is_told_again(streams: Streams) -> None:
    source = Source(10)
    handle = streams.open(source.items(), LIN)
    assert (await streams.read(handle, LIN, 3)).items == [1, 2, 3]
    assert (await all_of(streams, handle))[0] == [4, 5, 6, 7, 8, 9, 10]
    await source.closed.wait()
    for _ in range(2):
        assert await streams.read(handle, LIN) == StreamItems(finished=True)


async def test_a_reader_gets_what_is_there_and_does_not_wait_for_more(streams: Streams) -> None:
    handle = streams.open(Source(2, hangs=True).items(), LIN)
    read = await streams.read(handle, LIN, 100, 5)
    if len(read.items) == 1:
        read = StreamItems(items=[*read.items, *(await streams.read(handle, LIN, 100, 5)).items])
    assert read == StreamItems(items=[1, 2])
    assert await streams.read(handle, LIN, 100, 0.01) == StreamItems()


async def test_why_a_stream_broke_off_is_told_after_its_last_item(streams: Streams) -> None:
    handle = streams.open(Source(2, fails=InvalidInput("the ink is out")).items(), LIN)
    items, last = await all_of(streams, handle, max=1)
    assert (items, last.error) == ([1, 2], "the ink is out")
    assert await streams.read(handle, LIN) == StreamItems(finished=True, error="the ink is out")


async def test_what_is_no_json_ends_the_stream(streams: Streams) -> None:
    async def bad() -> AsyncIterator[Any]:
        yield 1
        yield [float("nan")]

    items, last = await all_of(streams, streams.open(bad(), LIN))
    assert items == [1]
    assert "JSON" in (last.error or "")


async def test_a_source_waits_for_its_reader(streams: Streams) -> None:
    source = Source(10_000)
    handle = streams.open(source.items(), LIN)
    assert len((await streams.read(handle, LIN, 10)).items) == 10
    for _ in range(50):
        await asyncio.sleep(0)
    assert CAPACITY <= source.given <= CAPACITY + 11
    items, _ = await all_of(streams, handle)
    assert items == list(range(11, 10_001))


async def test_a_source_of_large_items_waits_earlier(streams: Streams) -> None:
    made = 0

    async def large() -> AsyncIterator[Any]:
        nonlocal made
        while made < 50:
            made += 1
            yield "x" * 400_000

    handle = streams.open(large(), LIN)
    await streams.read(handle, LIN, 1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert made <= 5
    assert len((await all_of(streams, handle))[0]) == 49


async def test_several_readers_share_the_items(streams: Streams) -> None:
    handle = streams.open(Source(2_000).items(), LIN)
    parts = await asyncio.gather(*(all_of(streams, handle, max=7) for _ in range(5)))
    assert sorted(item for items, _ in parts for item in items) == list(range(1, 2_001))


async def test_nobody_else_reads_a_stream_and_its_handle_cannot_be_guessed(streams: Streams) -> None:
    handles = [streams.open(Source(1, hangs=True).items(), LIN) for _ in range(10)]
    assert len({handle[:12] for handle in handles}) == 10
    assert all(len(handle) >= 32 for handle in handles)
    unknown = "no stream has this handle: it was read to its end or closed a while ago, or never was"
    strangers = [MEI, Principal(kind="user", id="lin"), Principal(kind="plugin", id="lin")]
    for owner in strangers:
        with pytest.raises(NotFound, match=unknown):
            await streams.read(handles[0], owner)
    for guess in ("", "stream_", handles[0][:-1], handles[0].swapcase()):
        with pytest.raises(NotFound, match=unknown):
            await streams.read(guess, LIN)
    assert (await streams.read(handles[0], LIN)).items == [1]


async def test_a_reader_that_goes_away_loses_nothing_for_the_next(streams: Streams) -> None:
    go_on = asyncio.Event()

    async def late() -> AsyncIterator[Any]:
        await go_on.wait()
        yield "late"

    handle = streams.open(late(), LIN)
    gone = asyncio.create_task(streams.read(handle, LIN, 100, 30))
    await asyncio.sleep(0.01)
    gone.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert (await all_of(streams, handle))[0] == ["late"]


async def left_unread(streams: Streams, handle: str) -> None:
    """Wait until a stream is closed since nobody reads it, but not until what became of it is forgotten."""
    while not streams._streams[handle].is_finished:
        await asyncio.sleep(0)


async def test_a_stream_that_nobody_reads_is_closed_with_its_source(hasty: Streams) -> None:
    source = Source(100_000)
    handle = hasty.open(source.items(), LIN)
    await left_unread(hasty, handle)
    why = "the stream was closed since nobody had read it for 0.1 seconds"
    assert await hasty.read(handle, LIN) == StreamItems(finished=True, error=why)
    await source.closed.wait()
    while True:  # what became of it is forgotten as well, once nobody asks
        await asyncio.sleep(0.3)
        try:
            await hasty.read(handle, LIN)
        except NotFound:
            return


async def test_items_of_a_finished_stream_that_nobody_reads_are_told_as_lost(hasty: Streams) -> None:
    source = Source(3)
    handle = hasty.open(source.items(), LIN)
    await left_unread(hasty, handle)
    read = await hasty.read(handle, LIN)
    assert (read.items, read.finished) == ([], True)
    assert "closed since nobody had read it" in (read.error or "")


async def test_waiting_for_items_is_reading(hasty: Streams) -> None:
    async def slow() -> AsyncIterator[Any]:
        for number in range(3):
            await asyncio.sleep(0.2)
            yield number

    assert (await all_of(hasty, hasty.open(slow(), LIN)))[0] == [0, 1, 2]


async def test_one_owner_has_only_so_many_open_streams(streams: Streams) -> None:
    handles = [streams.open(Source(1, hangs=True).items(), LIN) for _ in range(MOST_STREAMS)]
    refused = Source(1)
    items = refused.items()
    await anext(items)
    with pytest.raises(Conflict, match=f"agent:lin has {MOST_STREAMS} streams open"):
        streams.open(items, LIN)
    await refused.closed.wait()
    assert (await all_of(streams, streams.open(Source(1).items(), MEI), MEI))[0] == [1]
    assert (await streams.read(handles[0], LIN)).items == [1]


async def test_streams_that_were_read_do_not_count_and_old_ones_are_forgotten(streams: Streams) -> None:
    handles = []
    for _ in range(3 * MOST_STREAMS):
        handles.append(streams.open(Source(1).items(), LIN))
        assert (await all_of(streams, handles[-1]))[0] == [1]
    with pytest.raises(NotFound):
        await streams.read(handles[0], LIN)
    assert (await streams.read(handles[-1], LIN)).finished


async def test_closing_ends_sources_and_wakes_readers(streams: Streams) -> None:
    hanging, full = Source(0, hangs=True), Source(10_000)
    waiting = asyncio.create_task(streams.read(streams.open(hanging.items(), LIN), LIN, 100, 30))
    handle = streams.open(full.items(), LIN)
    await asyncio.sleep(0.01)
    await streams.close()
    assert hanging.closed.is_set()
    assert full.closed.is_set()
    assert await waiting == StreamItems(finished=True, error="the stream was closed")
    with pytest.raises(NotFound):
        await streams.read(handle, LIN)


async def test_streams_end_with_the_plugin(keeper: tuple[Host, PluginContext], streams: Streams) -> None:
    host, _ = keeper
    source = Source(0, hangs=True)
    reading = asyncio.create_task(streams.read(streams.open(source.items(), LIN), LIN, 100, 30))
    await asyncio.sleep(0.01)
    await host.disable("acme-keeper") if hasattr(host, "disable") else await host.close()
    assert source.closed.is_set()
    assert (await reading).error == "the stream was closed"


# --- collecting -----------------------------------------------------------------------------------


async def test_texts_are_collected_as_one_and_other_items_as_a_list(streams: Streams) -> None:
    assert await streams.collect(texts("one ", "two")) == "one two"
    assert await streams.collect(Source(3).items()) == [1, 2, 3]

    async def mixed() -> AsyncIterator[Any]:
        yield "a"
        yield {"b": 1}

    assert await streams.collect(mixed()) == ["a", {"b": 1}]
    assert await streams.collect(texts()) == []


@pytest.mark.parametrize("piece", [1, "x" * 100_000])
async def test_an_endless_stream_is_not_collected(streams: Streams, piece: Any) -> None:
    closed, count = [], 0

    async def endless() -> AsyncIterator[Any]:
        nonlocal count
        try:
            while True:
                count += 1
                yield piece
        finally:
            closed.append(True)

    with pytest.raises(ToolFailure, match="which is the most that is collected"):
        await streams.collect(endless())
    assert closed == [True]
    assert count <= COLLECTED_ITEMS + 1


async def test_what_a_source_raises_is_raised_to_who_collects(streams: Streams) -> None:
    source = Source(3, fails=InvalidInput("the ink is out"))
    with pytest.raises(InvalidInput, match="the ink is out"):
        await streams.collect(source.items())
    assert source.closed.is_set()
