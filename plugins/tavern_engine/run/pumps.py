"""Runs a node that streams: moves what it yields into its streams, waits for slow readers, ends it when all left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from tavern_engine.run.streams import PAUSE, Stream
from tavern_host.contracts.errors import PluginFailure

_LOOK = 64
"""After how many values that are no items of a stream the time is looked at."""


class Pump:
    """One running node that streams. With `may_stop` it ends when nobody reads any of its streams any more."""

    def __init__(self, streams: dict[str, Stream], *, may_stop: bool) -> None:
        self.streams = streams
        self.batch: dict[str, Any] = {}
        self._task = asyncio.current_task()
        self._is_moving = False
        self._is_deserted = False
        self._is_cancelled = False
        self._pause_at = 0.0
        if may_stop and any(stream.readers for stream in streams.values()):
            for stream in streams.values():
                stream.on_deserted = self._deserted

    @property
    def has_begun(self) -> bool:
        """Whether there was an item."""
        return any(stream.count for stream in self.streams.values())

    @property
    def is_whole(self) -> bool:
        """Whether all items of all streams are there, so that they can stand for the node another time."""
        return not self._is_deserted and not any(stream.is_cut for stream in self.streams.values())

    def outputs(self) -> dict[str, Any]:
        """Return what the node gave: of each stream the list of its items."""
        return {**{key: stream.kept for key, stream in self.streams.items()}, **self.batch}

    async def put(self, key: str, item: Any) -> None:
        """Hand on an item of a stream."""
        stream = self.streams[key]
        stream.put(item)
        await self._room(stream)

    async def move_items(self, source: AsyncIterator[Any]) -> None:
        """Move all that `source` yields into the only stream that there is."""
        (stream,) = self.streams.values()
        await self._move(source, self._items(source, stream))

    async def move_parts(self, source: AsyncIterator[dict[str, Any]]) -> None:
        """Move all that `source` yields, by output: items of streams, and values of the other outputs."""
        await self._move(source, self._parts(source))

    def end(self, error: str | None = None) -> None:
        """End all streams."""
        for stream in self.streams.values():
            stream.on_deserted = None
            if not stream.is_ended:
                stream.end(error)

    # --- moving -----------------------------------------------------------------------------------

    async def _move(self, source: AsyncIterator[Any], moving: Any) -> None:
        """Await `moving`, which ends early when all readers have left; then close `source`."""
        task = self._task
        assert task is not None
        before = task.cancelling()
        self._pause_at = time.perf_counter() + PAUSE
        self._is_moving = True
        try:
            await moving
        except asyncio.CancelledError:
            if not self._is_cancelled or task.cancelling() > before + 1:
                raise
        finally:
            self._is_moving = False
            if self._is_cancelled:
                self._is_cancelled = False
                task.uncancel()
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    async def _items(self, source: AsyncIterator[Any], stream: Stream) -> None:
        # Every step in here is made for each item: what need not be looked at each time waits until there is no room.
        append, watchers = stream.items.append, stream.watchers
        room = stream.room()
        async for item in source:
            append(item)
            if watchers:
                stream.notify()
                if self._is_deserted:
                    return
            room -= 1
            if not room:
                room = stream.room()
                if room:
                    await self._give_way()
                else:
                    room = await stream.more_room()
                if self._is_deserted:
                    return

    async def _parts(self, source: AsyncIterator[dict[str, Any]]) -> None:
        streams, batch = self.streams, self.batch
        rooms = {key: stream.room() for key, stream in streams.items()}
        others = 0
        async for part in source:
            if part.__class__ is not dict:
                raise PluginFailure(f"it yielded {type(part).__name__}, expected a dict by output")
            for key, item in part.items():
                stream = streams.get(key)
                if stream is None:
                    batch[key] = item
                    continue
                stream.put(item)
                rooms[key] -= 1
                if not rooms[key]:
                    rooms[key] = await self._room(stream)
            others += 1
            if not others % _LOOK:
                await self._give_way()
            if self._is_deserted:
                return

    async def _room(self, stream: Stream) -> int:
        """Return how many items may be put, as soon as some may."""
        room = stream.room()
        if not room:
            return await stream.more_room()
        await self._give_way()
        return room

    async def _give_way(self) -> None:
        """Let others have their turn, where this one has taken long."""
        if time.perf_counter() > self._pause_at:
            await asyncio.sleep(0)
            self._pause_at = time.perf_counter() + PAUSE

    def _deserted(self) -> None:
        """Be told that nobody reads one of the streams any more."""
        if self._is_deserted or not all(stream.is_deserted for stream in self.streams.values()):
            return
        self._is_deserted = True
        if self._is_moving and self._task is not None:
            self._is_cancelled = True
            self._task.cancel()
        for stream in self.streams.values():  # so that code which goes on although it is cancelled gets no further
            stream.watchers.append(_nothing)


def _nothing() -> None:
    """Stand among the watchers of a stream, for whoever looks whether there are some."""
