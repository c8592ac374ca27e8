"""Streams from node to node: one source, several readers at their own speed, bounded between them.

The items are in one list that all readers share. Back-pressure: the source waits when its slowest reader has `CAPACITY`
unread items, and resumes when that one has read half of them, so that neither side is woken for every item. A stream
whose readers have all left ends early.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tavern_engine.cache.cache import size_of
from tavern_engine.compile.plan import InEdge
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_workflows.api.dataflow import Converter

CAPACITY = 16
"""How many items a reader may be behind before its source waits for it."""

KEPT_ITEMS = 100_000
"""How many items of a stream are kept to be shown and reused, where no reader needs all of them."""

KEPT_BYTES = 8 * 2**20
"""How much memory, roughly, these items may take."""

PAUSE = 0.003
"""Seconds that a stream is moved or read without letting the event loop do something else."""

_TAKEN = CAPACITY // 2
_LOOK = 64
"""After how many items at most a source without a slow reader checks the time."""
_DROPPED = 256
"""How many consumed items are dropped at a time."""
_ODD_SIZE = 200


class StreamBroken(TavernError):
    """The source of a stream failed before its end; raised to its readers."""

    code = "stream_broken"


class Stream:
    """One stream of a running node. `readers` says of each reader whether it may be behind without limit, or None
    for one that will never read. `keeps_all`: all of its items are needed as one value.

    `items` are those that are still there, after `dropped` others. `watchers` are called, once, when there is a further
    item or an end. `published` is how many of `items` clients have, where it is published at all.
    """

    __slots__ = (
        "_bounded", "_bytes", "_drop_at", "_here", "_kept", "_loop", "_measured", "_room", "dropped", "error",
        "is_ended", "items", "keeps_all", "on_abandoned", "published", "readers", "watchers",
    )  # fmt: skip

    def __init__(self, readers: Sequence[bool | None], *, keeps_all: bool) -> None:
        self.items: list[Any] = []
        self.dropped = 0
        self.watchers: list[Callable[[], None]] = []
        self.published: int | None = None
        self.keeps_all = keeps_all
        self.is_ended = False
        self.error: str | None = None
        self.on_abandoned: Callable[[], None] | None = None
        self._kept: list[Any] | None = None
        self._bytes = self._measured = 0
        self._drop_at: float = float("inf") if keeps_all else _DROPPED
        self._loop = asyncio.get_running_loop()
        self._room: asyncio.Future[None] | None = None
        self.readers = [Reader(self, is_bounded=not is_unbounded) for is_unbounded in readers]
        for reader, is_unbounded in zip(self.readers, readers, strict=True):
            reader.has_left = is_unbounded is None
        self._here = sum(not reader.has_left for reader in self.readers)
        self._bounded = [reader for reader in self.readers if reader.is_bounded and not reader.has_left]

    @property
    def count(self) -> int:
        """How many items there were."""
        return self.dropped + len(self.items)

    @property
    def kept(self) -> list[Any]:
        """The items that are kept; not to be changed."""
        return self.items if self._kept is None else self._kept

    @property
    def is_cut(self) -> bool:
        """Whether there were more items than are kept."""
        return self.count > len(self.kept)

    @property
    def is_abandoned(self) -> bool:
        """Whether it has no reader left and its items are not needed."""
        return not self._here and not self.keeps_all

    def put(self, item: Any) -> None:
        """Append an item; the caller waits for room before the next one."""
        self.items.append(item)
        if self.watchers:
            self.notify()

    def notify(self) -> None:
        """Call the watchers."""
        watchers = self.watchers
        while watchers:
            watchers.pop()()

    def room(self) -> int:
        """Return how many items may be put before this must be asked again; 0 while a reader is too far behind."""
        if len(self.items) >= self._drop_at:
            self._drop()
        behind = self._behind()
        return _LOOK if behind is None else CAPACITY - behind if behind < CAPACITY else 0

    async def more_room(self) -> int:
        """Wait until every reader has read enough, and return what `room` does; for use where that was 0."""
        while True:
            self._room = self._loop.create_future()
            await self._room
            room = self.room()
            if room:
                return room

    def wake_source(self) -> None:
        """Wake a source that waits for room, where the slowest reader has read enough or left."""
        if self._room is not None and (self._behind() or 0) <= CAPACITY - _TAKEN:
            room, self._room = self._room, None
            if not room.done():
                room.set_result(None)

    def end(self, error: str | None = None) -> None:
        """End the stream; with an error where its source failed."""
        self.is_ended = True
        self.error = error
        self.notify()

    def left(self, reader: Reader) -> None:
        """Remove a reader that has left."""
        self._here -= 1
        if reader.is_bounded:
            self._bounded.remove(reader)
        self.wake_source()
        if self.is_abandoned and not self.is_ended and self.on_abandoned is not None:
            self.on_abandoned()

    def _behind(self) -> int | None:
        """Return how many items the slowest of the bounded readers has not read; None where there are none."""
        bounded = self._bounded
        if not bounded:
            return None
        first = bounded[0].position if len(bounded) == 1 else min(reader.position for reader in bounded)
        return len(self.items) - first

    def _drop(self) -> None:
        """Drop items that are not kept and that all readers have read."""
        items = self.items
        if self._kept is None:
            self._bytes += (len(items) - self._measured) * _about(items[-1])
            self._measured = len(items)
            if len(items) > KEPT_ITEMS or self._bytes > KEPT_BYTES:
                self._kept = items[:KEPT_ITEMS]
        if self._kept is not None:
            here = [reader for reader in self.readers if not reader.has_left]
            first = min(
                [len(items) if self.published is None else self.published, *(reader.position for reader in here)]
            )
            del items[:first]
            self.dropped += first
            for reader in here:
                reader.position -= first
            if self.published is not None:
                self.published -= first
        self._drop_at = len(items) + _DROPPED


class Reader:
    """One reader of a stream: an async iterator over its items, converted on the way.

    `async for` reads from an async generator, since nothing else hands an item over as quickly. `position` is how
    many of the stream's `items` it has read: it takes some at a time, and counts them when it gives the last.
    """

    __slots__ = (
        "_generator", "_stream", "_waiter", "convert", "has_left", "has_read", "is_bounded", "position", "what",
    )  # fmt: skip

    def __init__(self, stream: Stream, *, is_bounded: bool) -> None:
        self._stream = stream
        self._generator: AsyncGenerator[Any, None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.is_bounded = is_bounded
        self.convert: Converter | None = None
        self.has_left = False
        self.has_read = False
        self.position = 0
        self.what = ""

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        if self._generator is None:
            self._generator = self._read()
        return self._generator

    async def __anext__(self) -> Any:
        return await anext(self.__aiter__())

    async def aclose(self) -> None:
        """Leave before the end."""
        self.leave()

    def leave(self) -> None:
        """Leave; items that were not read are dropped."""
        if self.has_left:
            return
        self.has_left = True
        self._wake()
        generator, self._generator = self._generator, None
        if generator is not None:
            with suppress(StopIteration, RuntimeError):  # it has ended, or is being read and will see it
                generator.aclose().send(None)
        self._stream.left(self)

    async def _read(self) -> AsyncGenerator[Any, None]:
        stream = self._stream
        items, convert = stream.items, None if self.convert is None else partial(_converted, self.convert, self.what)
        taken_at_once = 0
        while not self.has_left:
            taken = items[self.position : self.position + _TAKEN]
            if taken:
                self.has_read = True
                count, last = len(taken), taken.pop()
                for item in taken if convert is None else map(convert, taken):
                    yield item
                self.position += count
                stream.wake_source()
                yield last if convert is None else convert(last)
                taken_at_once += 1
                if taken_at_once > _LOOK:
                    taken_at_once = 0
                    await asyncio.sleep(0)
            elif not stream.is_ended:
                taken_at_once = 0
                self._waiter = asyncio.get_running_loop().create_future()
                stream.watchers.append(self._wake)
                await self._waiter
            elif stream.error is not None:
                raise StreamBroken(f"the stream broke off: {stream.error}")
            else:
                return

    def _wake(self) -> None:
        """Wake the reader that waits for an item."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def reader_of(stream: Stream, edge: InEdge, what: str) -> Reader:
    """Return the reader that an edge has."""
    reader = stream.readers[edge.reader]
    reader.convert = edge.convert
    reader.what = what
    return reader


class ListStream:
    """An async iterator over items that are there already."""

    def __init__(self, items: Any, convert: Converter | None = None, what: str = "") -> None:
        self._all: Iterable[Any] = items if isinstance(items, list | tuple) else [items]
        self._items = iter(self._all)
        self._convert = convert
        self._what = what
        self._count = 0
        self._pause_at = time.perf_counter() + PAUSE

    def restarted(self) -> ListStream:
        """Return the same from its beginning."""
        return ListStream(self._all, self._convert, self._what)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        self._count += 1
        if not self._count % _LOOK and time.perf_counter() > self._pause_at:
            await asyncio.sleep(0)
            self._pause_at = time.perf_counter() + PAUSE
        try:
            item = next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None
        return item if self._convert is None else _converted(self._convert, self._what, item)

    async def aclose(self) -> None:
        """Leave before the end."""
        self._items = iter(())


def _converted(convert: Converter, what: str, item: Any) -> Any:
    try:
        return convert(item)
    except (OverflowError, ValueError) as error:
        raise InvalidInput(f"{what}: an item of the stream does not fit: {error}") from error


def _about(item: Any) -> int:
    """Return roughly how much memory an item takes."""
    kind = item.__class__
    if kind is int or kind is float or kind is bool or item is None:
        return 32
    if kind is str or kind is bytes:
        return len(item) + 50
    size = size_of(item)
    return _ODD_SIZE if size is None else size
