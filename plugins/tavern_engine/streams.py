"""Streams from node to node: one source, several readers at their own speed, bounded between them.

The source waits when its slowest reader has `CAPACITY` items that it has not read yet, and goes on when that one has
read half of them, so that neither side is woken for every item. A stream whose readers have all left ends early.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tavern_engine.plan import Feed
from tavern_host.contracts.dataflow import Converter
from tavern_host.contracts.errors import InvalidInput, TavernError

CAPACITY = 16
"""How many items a reader may be behind before its source waits for it."""

KEPT_ITEMS = 100_000
"""How many items of a stream are kept to be shown and used again, where nobody needs all of them."""


class StreamBroken(TavernError):
    """The source of a stream failed before its end; raised to its readers."""

    code = "stream_broken"


class Stream:
    """One stream of a running node. `readers` says of each reader whether it may hold items without limit, or None
    for one that will never read. `keeps_all`: somebody needs all of its items as one value."""

    __slots__ = (
        "_here",
        "_loop",
        "_room",
        "error",
        "is_cut",
        "is_ended",
        "items",
        "keeps_all",
        "on_deserted",
        "readers",
    )

    def __init__(self, readers: Sequence[bool | None], *, keeps_all: bool) -> None:
        self.items: list[Any] = []
        self.is_cut = False
        self.keeps_all = keeps_all
        self.is_ended = False
        self.error: str | None = None
        self.on_deserted: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._room: asyncio.Future[None] | None = None
        self.readers = [Reader(self, self._loop, unbounded=bool(is_unbounded)) for is_unbounded in readers]
        self._here = 0
        for reader, is_unbounded in zip(self.readers, readers, strict=True):
            reader.has_left = is_unbounded is None
            self._here += not reader.has_left

    @property
    def is_deserted(self) -> bool:
        """Whether nobody reads it or needs its items; so is one that never had a reader."""
        return not self._here and not self.keeps_all

    def put(self, item: Any) -> bool:
        """Hand an item to all readers; return whether the source must wait for one of them."""
        items = self.items
        if len(items) < KEPT_ITEMS or self.keeps_all:
            items.append(item)
        else:
            self.is_cut = True
        is_full = False
        for reader in self.readers:
            if not reader.has_left:
                waiting = reader.waiting
                waiting.append(item)
                waiter = reader.waiter
                if waiter is not None:
                    reader.waiter = None
                    if not waiter.done():
                        waiter.set_result(None)
                if len(waiting) >= reader.capacity:
                    is_full = True
        return is_full

    async def room(self) -> None:
        """Wait until every reader has read enough."""
        while any(len(r.waiting) >= r.capacity and not r.has_left for r in self.readers):
            self._room = self._loop.create_future()
            for reader in self.readers:
                reader.is_slow = len(reader.waiting) >= reader.capacity
            await self._room

    def end(self, error: str | None = None) -> None:
        """Say that no further item comes; with an error, that the source failed."""
        self.is_ended = True
        self.error = error
        for reader in self.readers:
            reader.wake()

    def made_room(self) -> None:
        """Be told that a slow reader has read enough, or left."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def left(self) -> None:
        """Be told that a reader has left."""
        self._here -= 1
        self.made_room()
        if self.is_deserted and not self.is_ended and self.on_deserted is not None:
            self.on_deserted()


class Reader:
    """One reader of a stream: an async iterator over its items, converted on the way."""

    __slots__ = ("_loop", "_stream", "capacity", "convert", "has_left", "is_slow", "waiter", "waiting", "what")

    def __init__(self, stream: Stream, loop: asyncio.AbstractEventLoop, *, unbounded: bool) -> None:
        self._stream = stream
        self._loop = loop
        self.waiting: deque[Any] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self.capacity: float = float("inf") if unbounded else CAPACITY
        self.convert: Converter | None = None
        self.has_left = False
        self.is_slow = False
        self.what = ""

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> Any:
        waiting = self.waiting
        while not waiting:
            stream = self._stream
            if self.has_left:
                raise StopAsyncIteration
            if stream.is_ended:
                if stream.error is not None:
                    raise StreamBroken(f"the stream broke off: {stream.error}")
                raise StopAsyncIteration
            if self.is_slow:
                self.is_slow = False
                stream.made_room()
            self.waiter = self._loop.create_future()
            await self.waiter
        item = waiting.popleft()
        if self.is_slow and len(waiting) * 2 <= self.capacity:
            self.is_slow = False
            self._stream.made_room()
        if self.convert is None:
            return item
        try:
            return self.convert(item)
        except (OverflowError, ValueError) as error:
            raise InvalidInput(f"{self.what}: an item of the stream does not fit: {error}") from error

    async def aclose(self) -> None:
        """Leave before the end."""
        self.leave()

    def leave(self) -> None:
        """Leave; items that were not read are dropped."""
        if not self.has_left:
            self.has_left = True
            self.waiting.clear()
            self.wake()
            self._stream.left()

    def wake(self) -> None:
        """Let whoever waits for an item look again."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def reader_of(stream: Stream, feed: Feed, what: str) -> Reader:
    """Return the reader that an edge has."""
    reader = stream.readers[feed.reader]
    reader.convert = feed.convert
    reader.what = what
    return reader


class Listed:
    """An async iterator over items that are there already."""

    def __init__(self, items: Any, convert: Converter | None = None) -> None:
        self._items = iter(items if isinstance(items, list | tuple) else [items])
        self._convert = convert

    def __aiter__(self) -> Listed:
        return self

    async def __anext__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None
        return item if self._convert is None else self._convert(item)

    async def aclose(self) -> None:
        """Leave before the end."""
        self._items = iter(())
