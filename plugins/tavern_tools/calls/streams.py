"""Streams that calls of tools gave, until they are read: each by a handle, for the principal that made the call alone.

A source waits while its items are not read; a stream that is not read is closed after a while, and its source with it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import SettledWork
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import Conflict, NotFound, TavernError, describe
from tavern_tools.api.toolcalls import StreamItems, ToolErrorType
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.tasks.tasks import IsMeant
from tavern_workflows.api.dataflow import collected

IDLE = "streamIdleSeconds"
"""The setting with how long an unread stream is kept, in seconds."""

DEFAULT_IDLE = 300.0

CAPACITY = 256
"""How many items wait to be read before the source waits."""

CAPACITY_BYTES = 2**20
"""How many bytes, roughly, of items wait before the source waits; one item may be larger."""

MOST_STREAMS = 32
"""How many streams one principal may have that are not read to their end."""

COLLECTED_ITEMS = 100_000
"""How many items `collect` takes."""

COLLECTED_BYTES = 8 * 2**20
"""How many bytes, roughly, `collect` takes."""


class Streams:
    """The streams of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._streams: dict[str, _Stream] = {}

    def open(self, source: AsyncIterator[JsonValue], call: CallContext, tool_id: str) -> str:
        """Take the source of a tool's call over and return the handle by which its items are read; the source is closed
        in any case.

        Raises `Conflict` where the owner has too many streams.
        """
        owner = call.principal
        own = [stream for stream in self._streams.values() if stream.owner == owner]
        if sum(not stream.is_finished for stream in own) >= MOST_STREAMS:
            self._context.tasks.spawn(_close(source), name="close a stream")
            raise Conflict(f"{owner} has {MOST_STREAMS} streams open; read them to their end first")
        for stream in [stream for stream in own if stream.is_finished][:-MOST_STREAMS]:
            self._forget(stream)
        stream = _Stream(f"stream_{secrets.token_urlsafe(24)}", call, tool_id)
        stream.task = self._context.tasks.spawn(stream.fill(source), name=f"stream of {owner}")
        stream.task.add_done_callback(lambda _: stream.end("the stream was closed"))
        self._streams[stream.handle] = stream
        self._watch(stream)
        return stream.handle

    async def read(self, handle: str, owner: Principal, max: int = 100, wait: float = 10.0) -> StreamItems:
        """Return the next items, at most `max`, as soon as there is one or the stream has ended; none where none came
        within `wait` seconds. The end is returned again for as long as an unread stream is kept. Raises `NotFound`."""
        stream = self._streams.get(handle)
        if stream is None or stream.owner != owner:  # the same words, so that nobody learns whose handles there are
            raise NotFound("no stream has this handle: it was read to its end or closed a while ago, or never was")
        stream.readers += 1
        self._watch(stream)
        try:
            return await stream.take(max, wait)
        finally:
            stream.readers -= 1
            self._watch(stream)

    async def collect(self, source: AsyncIterator[JsonValue]) -> JsonValue:
        """Return all items of a source as one value: of texts all text, else the list of the items.

        Raises `ToolFailure` for more than `COLLECTED_ITEMS` or `COLLECTED_BYTES`, and what the source raises; closes
        the source.
        """
        items: list[JsonValue] = []
        size = 0
        try:
            async for item in source:
                items.append(item)
                size += _size(item)
                if len(items) > COLLECTED_ITEMS or size > COLLECTED_BYTES:
                    limit = f"{COLLECTED_ITEMS:,} items and {COLLECTED_BYTES:,} bytes"
                    message = f"the stream gave more than {limit}, which is the most that is collected; read it instead"
                    raise ToolFailure(ToolErrorType.RESOURCE, message)
        finally:
            await _close(source)
        result: JsonValue = collected(items)
        return result

    def leave(self, handle: str, owner: Principal) -> None:
        """Close a stream that its owner will not read further, and its source; nothing where it is closed already."""
        stream = self._streams.get(handle)
        if stream is not None and stream.owner == owner:
            self._forget(stream)

    async def end_work(self, is_meant: IsMeant, by: CallContext) -> SettledWork:
        """Close the sources that are meant; return how many there were."""
        stopped = 0
        for stream in [one for one in self._streams.values() if one.is_filled]:
            if await is_meant(stream.tool_id, stream.call) and stream.is_filled:
                stream.stop(f"the stream was stopped by {by.principal}")
                stopped += 1
        return SettledWork(kind="streams", stopped=stopped)

    async def close(self) -> None:
        """Close all streams and their sources."""
        streams = list(self._streams.values())
        for stream in streams:
            self._forget(stream)
        tasks = [stream.task for stream in streams if stream.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _watch(self, stream: _Stream) -> None:
        """Count the time that a stream is not read from now on."""
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None
        if not stream.readers and stream.handle in self._streams:
            loop = asyncio.get_running_loop()
            seconds = float(self._context.settings.get(IDLE, DEFAULT_IDLE))
            stream.timer = loop.call_later(seconds, self._left, stream, seconds)

    def _left(self, stream: _Stream, seconds: float) -> None:
        """Close a stream that is not read, and forget it if its end is not asked for either."""
        if stream.is_finished:
            self._forget(stream)
            return
        stream.stop(f"the stream was closed since nobody had read it for {seconds:g} seconds")
        self._watch(stream)

    def _forget(self, stream: _Stream) -> None:
        self._streams.pop(stream.handle, None)
        stream.stop("the stream was closed")
        if stream.timer is not None:
            stream.timer.cancel()


class _Stream:
    """One stream: the items of its source that are not read yet."""

    def __init__(self, handle: str, call: CallContext, tool_id: str) -> None:
        self.handle = handle
        self.tool_id = tool_id
        self.call = call
        self.owner = call.principal
        self.readers = 0
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._items: deque[tuple[JsonValue, int]] = deque()
        self._bytes = 0
        self._has_ended = False
        self._error: str | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def is_filled(self) -> bool:
        """Whether its source may give more."""
        return not self._has_ended

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is to be read."""
        return self._has_ended and not self._items

    async def fill(self, source: AsyncIterator[JsonValue]) -> None:
        """Take items of the source while there is room for them, to its end; then close it."""
        try:
            async for item in source:
                size = _size(item)
                self._items.append((item, size))
                self._bytes += size
                self._news.set()
                while len(self._items) >= CAPACITY or self._bytes >= CAPACITY_BYTES:
                    self._room.clear()
                    await self._room.wait()
            self.end(None)
        except ToolFailure as failure:
            self.end(failure.message)
        except TavernError as error:
            self.end(error.message)
        except Exception as error:
            self.end(describe(error))
            raise  # for the log: it is no error of the host
        finally:
            await _close(source)

    async def take(self, most: int, wait: float) -> StreamItems:
        """Return items, after a wait where there are none yet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait if wait > 0 else 0):
                while not self._items and not self._has_ended:
                    self._news.clear()
                    await self._news.wait()
        taken: list[JsonValue] = []
        while self._items and len(taken) < max(most, 1):
            item, size = self._items.popleft()
            self._bytes -= size
            taken.append(item)
        self._room.set()
        error = self._error if self.is_finished else None
        return StreamItems(items=taken, finished=self.is_finished, error=error)

    def end(self, error: str | None) -> None:
        """Say that no further item comes, and why where it is not the source's end. The first word counts."""
        if not self._has_ended:
            self._has_ended = True
            self._error = error
            self._news.set()

    def stop(self, why: str) -> None:
        """Drop what was not read and close the source."""
        if self._items:
            self._items.clear()
            self._bytes = 0
            self._error = why
        self.end(why)
        if self.task is not None:
            self.task.cancel()


def _size(item: JsonValue) -> int:
    """Return roughly how many bytes an item takes. Raises `ValueError` or `TypeError` for what is no JSON."""
    if isinstance(item, str):
        return len(item) + 50
    if item is None or isinstance(item, int):
        return 32
    return len(json.dumps(item, ensure_ascii=False, allow_nan=False)) + 50


async def _close(source: Any) -> None:
    """Close a source that can be closed."""
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()
