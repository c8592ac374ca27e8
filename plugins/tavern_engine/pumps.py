"""Runs a node that streams: moves what it yields into its streams, waits for slow readers, ends it when all left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from tavern_engine.streams import Stream
from tavern_host.contracts.errors import PluginFailure

_CHECK = 64
"""After how many items without a pause the time is looked at."""


class Pump:
    """One running node that streams. `told` is called with the output and the item, for each item."""

    def __init__(self, streams: dict[str, Stream], told: Callable[[str, Any], None], *, may_stop: bool) -> None:
        self.streams = streams
        self.batch: dict[str, Any] = {}
        self.has_begun = False
        self._told = told
        self._task = asyncio.current_task()
        self._may_stop = may_stop
        self._is_deserted = False
        self._is_waiting = False
        if may_stop and streams and any(stream.readers for stream in streams.values()):
            for stream in streams.values():
                stream.on_deserted = self._deserted

    @property
    def is_deserted(self) -> bool:
        """Whether all readers left before the end."""
        return self._is_deserted

    def _deserted(self) -> None:
        """Be told that nobody reads one of the streams any more."""
        if self._is_deserted or not all(stream.is_deserted for stream in self.streams.values()):
            return
        self._is_deserted = True
        if self._is_waiting and self._task is not None:
            self._task.cancel()

    async def put(self, key: str, item: Any) -> None:
        """Hand on an item of a stream, or take a value of another output."""
        stream = self.streams.get(key)
        if stream is None:
            self.batch[key] = item
            return
        self.has_begun = True
        self._told(key, item)
        if stream.put(item):
            await stream.room()

    async def drain(self, source: AsyncIterator[dict[str, Any]], limit: float) -> None:
        """Move all that `source` yields; gives way to others after `limit` seconds without a pause."""
        streams, told, clock = self.streams, self._told, time.perf_counter
        count, pause_at = 0, clock() + limit
        self._is_waiting = True
        try:
            async for chunk in source:
                self._is_waiting = False
                if chunk.__class__ is not dict:
                    raise PluginFailure(f"it yielded {type(chunk).__name__}, expected a dict by output")
                for key, item in chunk.items():
                    stream = streams.get(key)
                    if stream is None:
                        self.batch[key] = item
                        continue
                    self.has_begun = True
                    told(key, item)
                    if stream.put(item):
                        await stream.room()
                        pause_at = clock() + limit
                if self._is_deserted:
                    return
                count += 1
                if not count % _CHECK and clock() > pause_at:
                    await asyncio.sleep(0)
                    pause_at = clock() + limit
                self._is_waiting = True
        except asyncio.CancelledError:
            if not self._is_deserted or self._task is None:
                raise
            self._task.uncancel()
        finally:
            self._is_waiting = False
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    def end(self, error: str | None = None) -> None:
        """End all streams."""
        for stream in self.streams.values():
            stream.on_deserted = None
            stream.end(error)

    def outputs(self) -> dict[str, Any]:
        """Return what the node gave: of each stream the list of its items."""
        return {**{key: stream.items for key, stream in self.streams.items()}, **self.batch}

    @property
    def is_whole(self) -> bool:
        """Whether all items of all streams are there, so that they can stand for the node another time."""
        return not self._is_deserted and not any(stream.is_cut for stream in self.streams.values())
