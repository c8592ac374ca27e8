"""Opens the streams of the nodes of one level, and writes what a node yields into its streams: waits for slow readers,
ends the node when all readers have left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from tavern_engine.compile.plan import Level, PlanNode, Role
from tavern_engine.run.json_values import carried_output, not_carried
from tavern_engine.run.stream_messages import Outputs, StreamMessages
from tavern_engine.run.streams import PAUSE, Stream
from tavern_host.contracts.errors import PluginFailure
from tavern_host.contracts.wire import WireError, wire_value

_DISPLAY_ROLES = (Role.GROUP, Role.BYPASSED)
"""Roles of nodes that only display the values of others."""

_LOOK = 64
"""After how many values that are no stream items the time is checked."""


class StreamOpener:
    """The streams of one level. `runs[i]` says whether node `i` runs at all (None: all do), `outcomes[i]` what it came
    to so far; `interface` maps streams to the interface outputs that publish them."""

    def __init__(
        self,
        level: Level,
        runs: bytearray | None,
        outcomes: Sequence[int],
        messages: StreamMessages,
        interface: Mapping[tuple[int, str], Outputs],
    ) -> None:
        self._level = level
        self._runs = runs
        self._fates = outcomes
        self._messages = messages
        self._interface = interface
        messages.expect(interface)

    def open(self, index: int, node: PlanNode) -> StreamWriter | None:
        """Return the writer of a node's streams; None for one that has none, and for a loop whose streams nobody
        reads."""
        if node.loop is not None:
            read = self._level.streams.get(index, {})
            keys = [key for key in node.outputs if key in read]
        elif node.node_type is not None and node.node_type.definition.traits.streams:
            keys = [key for key, slot in node.outputs.items() if slot.is_stream]
        else:
            return None
        if not keys and node.loop is not None:
            return None
        streams = {key: self._stream(index, key) for key in keys}
        may_stop = node.loop is None and not self._is_needed(index)
        for key, stream in streams.items():
            self._messages.watch(stream, node.number, key, self._interface.get((index, key), ()))
        return StreamWriter(streams, may_stop=may_stop)

    def end(self, writer: StreamWriter, error: str | None = None) -> None:
        """End the streams of a node; with an error where it failed."""
        writer.end(error)
        for stream in writer.streams.values():
            self._messages.end(stream)

    def _stream(self, index: int, key: str) -> Stream:
        runs, outcomes = self._runs, self._fates
        bounds = [
            None if (runs is not None and not runs[reader]) or outcomes[reader] else is_unbounded
            for reader, is_unbounded in self._level.streams.get(index, {}).get(key, ())
        ]
        return Stream(bounds, keeps_all=self._is_collected(index, key))

    def _is_collected(self, index: int, key: str) -> bool:
        """Return whether an edge collects all items of a stream into one value."""
        for follower in self._level.followers[index]:
            node = self._level.nodes[follower]
            if node.role in _DISPLAY_ROLES:
                continue
            for item in node.inputs:
                if any(edge.source == index and edge.key == key and edge.reader < 0 for edge in item.edges):
                    return True
        return False

    def _is_needed(self, index: int) -> bool:
        """Return whether a node that runs waits for the end of a node."""
        return any(
            self._level.nodes[follower].role not in _DISPLAY_ROLES and (self._runs is None or self._runs[follower])
            for follower in self._level.followers[index]
        )


class StreamWriter:
    """The streams of one running node. With `may_stop` the node is ended when all its streams are abandoned."""

    def __init__(self, streams: dict[str, Stream], *, may_stop: bool) -> None:
        self.streams = streams
        self.batch: dict[str, Any] = {}
        self._task = asyncio.current_task()
        self._is_writing = False
        self._is_abandoned = False
        self._is_cancelled = False
        self._pause_at = 0.0
        if may_stop and any(stream.readers for stream in streams.values()):
            for stream in streams.values():
                stream.on_abandoned = self._abandoned

    @property
    def has_begun(self) -> bool:
        """Whether there was an item."""
        return any(stream.count for stream in self.streams.values())

    @property
    def is_whole(self) -> bool:
        """Whether all items of all streams are kept, so that they can be reused as the node's outputs."""
        return not self._is_abandoned and not any(stream.is_cut for stream in self.streams.values())

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the node: of each stream the list of its items."""
        return {**{key: stream.kept for key, stream in self.streams.items()}, **self.batch}

    async def put(self, key: str, item: Any) -> None:
        """Write an item to a stream."""
        stream = self.streams[key]
        stream.put(item)
        await self._room(stream)

    async def write_items(self, source: AsyncIterator[Any]) -> None:
        """Write all that `source` yields to the only stream."""
        ((key, stream),) = self.streams.items()
        await self._write(source, self._items(source, key, stream))

    async def write_parts(self, source: AsyncIterator[dict[str, Any]]) -> None:
        """Write all that `source` yields, by output: items of streams, and values of the other outputs."""
        await self._write(source, self._parts(source))

    def end(self, error: str | None = None) -> None:
        """End all streams."""
        for stream in self.streams.values():
            stream.on_abandoned = None
            if not stream.is_ended:
                stream.end(error)

    # --- writing ----------------------------------------------------------------------------------

    async def _write(self, source: AsyncIterator[Any], writing: Any) -> None:
        """Await `writing`, which ends early when all readers have left; then close `source`."""
        task = self._task
        assert task is not None
        before = task.cancelling()
        self._pause_at = time.perf_counter() + PAUSE
        self._is_writing = True
        try:
            await writing
        except asyncio.CancelledError:
            if not self._is_cancelled or task.cancelling() > before + 1:
                raise
        finally:
            self._is_writing = False
            if self._is_cancelled:
                self._is_cancelled = False
                task.uncancel()
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    async def _items(self, source: AsyncIterator[Any], key: str, stream: Stream) -> None:
        # Each step in here runs once per item: what need not be checked each time waits until there is no room.
        append, watchers = stream.items.append, stream.watchers
        room = stream.room()
        async for item in source:
            append(item if item.__class__ is str and item.isascii() else carried_output(key, item))
            if watchers:
                stream.notify()
                if self._is_abandoned:
                    return
            room -= 1
            if not room:
                room = stream.room()
                if room:
                    await self._give_way()
                else:
                    room = await stream.more_room()
                if self._is_abandoned:
                    return

    async def _parts(self, source: AsyncIterator[dict[str, Any]]) -> None:
        streams, batch = self.streams, self.batch
        rooms = {key: stream.room() for key, stream in streams.items()}
        others = 0
        async for part in source:
            if part.__class__ is not dict:
                raise PluginFailure(f"it yielded {type(part).__name__}, expected a dict by output")
            for key, item in part.items():
                try:
                    item = wire_value(item)
                except WireError as error:
                    raise not_carried(key, error) from None
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
            if self._is_abandoned:
                return

    async def _room(self, stream: Stream) -> int:
        """Return how many items may be put, as soon as some may."""
        room = stream.room()
        if not room:
            return await stream.more_room()
        await self._give_way()
        return room

    async def _give_way(self) -> None:
        """Yield to the event loop after a time slice."""
        if time.perf_counter() > self._pause_at:
            await asyncio.sleep(0)
            self._pause_at = time.perf_counter() + PAUSE

    def _abandoned(self) -> None:
        """End the node when all of its streams are abandoned."""
        if self._is_abandoned or not all(stream.is_abandoned for stream in self.streams.values()):
            return
        self._is_abandoned = True
        if self._is_writing and self._task is not None:
            self._is_cancelled = True
            self._task.cancel()
        for stream in self.streams.values():  # so that code which ignores its cancellation stops at its next item
            stream.watchers.append(_nothing)


def _nothing() -> None:
    """A watcher that does nothing: its presence makes the writer check whether it was abandoned."""
