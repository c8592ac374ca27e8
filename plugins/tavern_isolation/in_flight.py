"""The calls of a link that are in flight: those made here, with their streams, and those carried out here."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context
from typing import Any, Final

from tavern_isolation.frames import Malformed, Message

WINDOW: Final = 16
"""Items of a stream that may be on their way before its reader asks for more."""
WINDOW_BYTES: Final = 4_000_000
"""Bytes of such items; while there are not more, one of any size may be sent."""


class Stream:
    """A stream of messages from the other side: an iterator with one reader, and `aclose`."""

    def __init__(self, more: Callable[[int], None], stop: Callable[[], Awaitable[None]]) -> None:
        self._more = more
        self._stop = stop
        self._items: deque[Message] = deque()
        self._taken = 0
        self._taken_bytes = 0
        self._bytes = 0
        self._end: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def arrived(self, parts: Message) -> None:
        """Keep an item. Raises what ends the link for one that was not asked for."""
        if len(self._items) + self._taken >= WINDOW or self._bytes > WINDOW_BYTES:
            raise Malformed("an item for which nobody asked")
        self._bytes += sum(map(len, parts))
        self._items.append(parts)
        self._wake()

    def end(self, error: BaseException | None) -> None:
        """End the stream after the items that are there."""
        self._end = self._end or error or StopAsyncIteration()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while not self._items:
            if self._end is not None:
                raise self._end
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        parts = self._items.popleft()
        self._taken += 1
        self._taken_bytes += sum(map(len, parts))
        if self._taken >= WINDOW // 2 or self._taken_bytes > WINDOW_BYTES:
            self._more(self._taken)
            self._bytes -= self._taken_bytes
            self._taken = self._taken_bytes = 0
        return parts

    async def aclose(self) -> None:
        """End the stream on the other side, and give that a moment."""
        self._items.clear()
        self.end(None)
        await self._stop()


class Asked:
    """A call that was made here. `over` is there while somebody waits for the end of one that was cancelled."""

    __slots__ = ("answer", "context", "depth", "number", "over", "stream")

    def __init__(self, number: int, answer: asyncio.Future[Any], context: Context, depth: int) -> None:
        self.number = number
        self.depth = depth
        self.answer = answer
        self.context = context
        self.stream: Stream | None = None
        self.over: asyncio.Future[None] | None = None

    def settle(self, answer: Message | Stream | None, error: BaseException | None = None) -> None:
        """Give the caller its answer, if it still waits."""
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(answer)

    def end(self, answer: Message | None, error: BaseException | None) -> None:
        """Note that the other side is done with the call."""
        if self.stream is not None:
            self.stream.end(error)
        else:
            self.settle(answer, error)
        if self.over is not None and not self.over.done():
            self.over.set_result(None)


class Served:
    """A call that is carried out here."""

    __slots__ = ("_bytes", "_more", "_sent", "is_answered", "number", "size", "task")

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.is_answered = False
        self.task: asyncio.Task[None]
        self._sent: deque[int] = deque()
        self._bytes = 0
        self._more: asyncio.Event | None = None

    async def may_send(self, size: int) -> None:
        """Wait until the reader wants an item, of so many bytes."""
        while len(self._sent) >= WINDOW or self._bytes > WINDOW_BYTES:
            self._more = self._more or asyncio.Event()
            self._more.clear()
            await self._more.wait()
        self._sent.append(size)
        self._bytes += size

    def add_credit(self, items: int) -> None:
        """Note that so many items were read."""
        for _ in range(min(items, len(self._sent))):
            self._bytes -= self._sent.popleft()
        if self._more is not None:
            self._more.set()
