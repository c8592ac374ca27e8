"""Gathers what a node gets: from edges, else as written down; and says when it cannot run since a branch is dead."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from enum import IntEnum
from operator import getitem
from typing import Any

from tavern_engine.compile.plan import Feed, Input, Level, PlanNode, Role
from tavern_engine.run.streams import Listed, Stream, reader_of
from tavern_host.contracts.dataflow import collected
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.nodes import DataFlowType

NOTHING: Any = object()


class Fate(IntEnum):
    """What has become of a node, for those that follow it."""

    WELL = 0
    FAILED = 1
    """It failed, or something before it did: nothing that follows runs."""
    DEAD = 2
    """It was not run since its branch was not taken: others may take its place."""
    ROUTED = 3
    """It failed, and only its output `error` gives something."""


class Gatherer:
    """Gathers inputs from the results of a level. `fates[i]` is what became of node `i`, `streams[i]` the streams that
    it has opened, by output."""

    def __init__(self, level: Level, written: list[dict[str, Any]], results: list[dict[str, Any] | None]) -> None:
        self._level = level
        self._written = written
        self._results = results
        self.fates = bytearray(len(level.nodes))
        self.streams: dict[int, dict[str, Stream]] = {}

    def inputs(self, index: int) -> tuple[dict[str, Any], Fate]:
        """Return a node's inputs, or why it must not run. Raises `InvalidInput` for inputs without a value or with
        one that does not fit."""
        node = self._level.nodes[index]
        written = self._written[index]
        if any(isinstance(value, list | dict) for value in written.values()):
            written = copy.deepcopy(written)  # what a node does to them must not reach the next run
        inputs = dict(written)
        missing: list[str] = []
        alive = dead = 0
        must_skip = False
        for item in node.inputs:
            value, here, gone, failed = self._arrived(item)
            if failed:
                return {}, Fate.FAILED
            alive += here
            dead += gone
            if value is not NOTHING:
                inputs[item.key] = value
            elif gone and not here and item.slot.required:
                must_skip = True
            elif item.key not in inputs:
                if item.slot.multi and not item.slot.required:
                    inputs[item.key] = []
                elif item.slot.is_stream and not item.slot.required:
                    inputs[item.key] = Listed([])
                elif item.slot.required:
                    missing.append(self._no_value(item))
        if node.role is not Role.OUTPUT and (must_skip or (dead and not alive)):
            return {}, Fate.DEAD
        if missing and node.role in (Role.NODE, Role.LOOP):
            raise InvalidInput("; ".join(missing))
        if node.role is Role.NODE:
            _list_streams(node, inputs)
        return inputs, Fate.WELL

    def _arrived(self, item: Input) -> tuple[Any, int, int, bool]:
        """Return what edges bring to an input, how many of them live, how many are dead, and whether one failed."""
        results = self._results
        if item.direct is not None:
            sources, keys = item.direct
            try:
                brought: list[Any] = list(map(getitem, map(results.__getitem__, sources), keys))  # type: ignore[arg-type]
                return brought, len(brought), 0, False
            except (KeyError, TypeError):  # one of them gave nothing
                pass
        values = []
        alive = dead = 0
        for feed in item.feeds:
            fate = self.fates[feed.source]
            if fate == Fate.FAILED:
                return NOTHING, 0, 0, True
            outputs = results[feed.source]
            if fate == Fate.DEAD or outputs is None:
                dead += 1
            elif feed.key in outputs:
                alive += 1
                values.append(_brought(feed, item, outputs[feed.key]))
            elif feed.is_branch or fate == Fate.ROUTED:
                dead += 1
            else:
                alive += 1  # it ran, and gave nothing here
        if not values:
            return NOTHING, alive, dead, False
        return (values if item.slot.multi else values[0]), alive, dead, False

    def value(self, item: Input) -> Any:
        """Return the value of one input as far as there is one, or `NOTHING`; for outputs of the interface."""
        try:
            value, _, _, failed = self._arrived(item)
        except InvalidInput:  # told as the error of the node that carries the outputs
            return NOTHING
        return NOTHING if failed else value

    def leave_streams(self, index: int) -> None:
        """Stop reading whatever streams a node reads: it has ended, or will not run."""
        for stream, feed in self._read_by(index):
            stream.readers[feed.reader].leave()

    def has_read(self, index: int) -> bool:
        """Return whether a node has taken items of a stream already, which it would not get another time."""
        return any(stream.readers[feed.reader].has_read for stream, feed in self._read_by(index))

    def broken(self, index: int) -> Fate | None:
        """Return the fate of a node by the streams that it reads and that broke off; None where none did."""
        fates = [self.fates[feed.source] for stream, feed in self._read_by(index) if stream.error is not None]
        if not fates:
            return None
        return Fate.FAILED if Fate.FAILED in fates else Fate.DEAD

    def _read_by(self, index: int) -> Iterator[tuple[Stream, Feed]]:
        """Return the streams that a node reads, and by which edges."""
        for item in self._level.nodes[index].inputs:
            for feed in item.feeds:
                if feed.reader >= 0:
                    stream = self.streams.get(feed.source, {}).get(feed.key)
                    if stream is not None:
                        yield stream, feed

    def _no_value(self, item: Input) -> str:
        text = f"the required input {item.key!r} has no value"
        if not item.feeds:
            return text
        sources = [(self._level.nodes[feed.source], feed.key) for feed in item.feeds]
        names = [node.id if node.role is Role.RELAY else f"{node.id}.{key}" for node, key in sources]
        return f"{text}: {', '.join(names)} gave none"


def _brought(feed: Feed, item: Input, value: Any) -> Any:
    """Return what an edge brings of the value at its source."""
    if feed.reader >= 0:
        what = f"the input {item.key!r}"
        return reader_of(value, feed, what) if isinstance(value, Stream) else Listed(value, feed.convert, what)
    if feed.collects:
        items = value.kept if isinstance(value, Stream) else value if isinstance(value, list) else [value]
        makes_list = item.slot.data_flow_type is DataFlowType.ARRAY  # whatever its items are
        try:
            items = items if feed.convert is None or makes_list else [feed.convert(each) for each in items]
        except (OverflowError, ValueError) as error:
            raise _unfit(feed, item, error) from error
        return collected(list(items), item.slot)
    if feed.convert is None:
        return value
    try:
        return feed.convert(value)
    except (OverflowError, ValueError) as error:
        raise _unfit(feed, item, error) from error


def _unfit(feed: Feed, item: Input, error: Exception) -> InvalidInput:
    wanted = item.slot.data_flow_type
    return InvalidInput(f"the input {item.key!r}: the value on edge {feed.edge} is no {wanted}: {error}")


def _list_streams(node: PlanNode, inputs: dict[str, Any]) -> None:
    """Make streams of values that were written down for stream inputs."""
    if node.node_type is None:
        return
    slots = node.kind.inputs if node.kind is not None else node.node_type.definition.inputs
    for key, value in inputs.items():
        slot = slots.get(key)
        if slot is not None and slot.is_stream and not hasattr(value, "__anext__"):
            inputs[key] = Listed(value)
