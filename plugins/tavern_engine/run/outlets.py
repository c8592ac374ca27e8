"""Opens and ends the streams of the nodes of one execution: who reads them, who needs all of them, who is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tavern_engine.compile.plan import Level, PlanNode, Role
from tavern_engine.run.pumps import Pump
from tavern_engine.run.streams import Stream
from tavern_engine.run.yields import Outputs, Yields

_SEEN = (Role.GROUP, Role.BYPASSED)


class Outlets:
    """The streams of one execution. `runs[i]` says whether node `i` runs at all (None: all do), `fates[i]` whether
    something became of it already; `interface` by which interface outputs streams go out."""

    def __init__(
        self,
        level: Level,
        runs: bytearray | None,
        fates: Sequence[int],
        yields: Yields,
        interface: Mapping[tuple[int, str], Outputs],
    ) -> None:
        self._level = level
        self._runs = runs
        self._fates = fates
        self._yields = yields
        self._interface = interface
        yields.expect(interface)

    def open(self, index: int, node: PlanNode) -> Pump | None:
        """Return what moves the streams of a node; None for one that has none, and a loop whose nobody reads."""
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
            self._yields.watch(stream, node.number, key, self._interface.get((index, key), ()))
        return Pump(streams, may_stop=may_stop)

    def end(self, pump: Pump, error: str | None = None) -> None:
        """End the streams of a node, those whose source failed with an error."""
        pump.end(error)
        for stream in pump.streams.values():
            self._yields.end(stream)

    def _stream(self, index: int, key: str) -> Stream:
        runs, fates = self._runs, self._fates
        bounds = [
            None if (runs is not None and not runs[reader]) or fates[reader] else is_unbounded
            for reader, is_unbounded in self._level.streams.get(index, {}).get(key, ())
        ]
        return Stream(bounds, keeps_all=self._is_collected(index, key))

    def _is_collected(self, index: int, key: str) -> bool:
        """Return whether somebody takes all items of a stream as one value."""
        for follower in self._level.followers[index]:
            node = self._level.nodes[follower]
            if node.role in _SEEN:
                continue
            for item in node.inputs:
                if any(feed.source == index and feed.key == key and feed.reader < 0 for feed in item.feeds):
                    return True
        return False

    def _is_needed(self, index: int) -> bool:
        """Return whether a node that runs waits for the end of a node."""
        return any(
            self._level.nodes[follower].role not in _SEEN and (self._runs is None or self._runs[follower])
            for follower in self._level.followers[index]
        )
