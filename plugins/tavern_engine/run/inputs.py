"""Resolves the inputs of a node: from edges, else its written values; and finds nodes on a dead path, which are
skipped."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from operator import getitem
from typing import Any

from tavern_engine.cache.cache import copied
from tavern_engine.compile.plan import InEdge, Input, Level, PlanNode, Role
from tavern_engine.run.streams import ListStream, Stream, reader_of
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.nodes import DataFlowType
from tavern_workflows.api.dataflow import collected

MISSING: Any = object()


class Outcome(IntEnum):
    """What a node came to, for its followers."""

    OK = 0
    FAILED = 1
    """It failed, or a node before it did: its followers do not run."""
    DEAD = 2
    """Dead path: its branch was not taken; other edges may bring a value in its place."""
    ROUTED = 3
    """It failed, and only its output `error` gives something."""


class InputResolver:
    """Resolves inputs from the results of a level. `outcomes[i]` is what node `i` came to, `streams[i]` the streams
    that it has opened, by output."""

    def __init__(self, level: Level, written: list[dict[str, Any]], results: list[dict[str, Any] | None]) -> None:
        self._level = level
        self._written = written
        self._results = results
        self.outcomes = bytearray(len(level.nodes))
        self.streams: dict[int, dict[str, Stream]] = {}

    def inputs(self, index: int, node: PlanNode) -> tuple[dict[str, Any], Outcome]:
        """Return a node's inputs, or why it must not run. Raises `InvalidInput` for inputs without a value or with
        one that does not fit."""
        inputs: dict[str, Any] = copied(self._written[index])  # a node may change them; the next run needs them
        missing: list[str] = []
        alive = dead = 0
        must_skip = False
        for item in node.inputs:
            value, here, gone, failed = self._resolve(item)
            if failed:
                return {}, Outcome.FAILED
            alive += here
            dead += gone
            if value is not MISSING:
                inputs[item.key] = value
            elif gone and not here and item.slot.required:
                must_skip = True
            elif item.key not in inputs:
                if item.slot.multi and not item.slot.required:
                    inputs[item.key] = []
                elif item.slot.is_stream and not item.slot.required:
                    inputs[item.key] = ListStream([])
                elif item.slot.required:
                    missing.append(self._no_value(item))
        if node.role is not Role.OUTPUT and (must_skip or (dead and not alive)):
            return {}, Outcome.DEAD
        if missing and node.role in (Role.NODE, Role.LOOP):
            raise InvalidInput("; ".join(missing))
        if node.role is Role.NODE:
            _stream_written_values(node, inputs)
        return inputs, Outcome.OK

    def _resolve(self, item: Input) -> tuple[Any, int, int, bool]:
        """Return the value that edges bring to an input, how many are alive, how many are dead, and whether one
        failed."""
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
        for edge in item.edges:
            outcome = self.outcomes[edge.source]
            if outcome == Outcome.FAILED:
                return MISSING, 0, 0, True
            outputs = results[edge.source]
            if outcome == Outcome.DEAD or outputs is None:
                dead += 1
            elif edge.key in outputs:
                alive += 1
                values.append(_edge_value(edge, item, outputs[edge.key]))
            elif edge.is_branch or outcome == Outcome.ROUTED:
                dead += 1
            else:
                alive += 1  # it ran, and gave nothing here
        if not values:
            return MISSING, alive, dead, False
        return (values if item.slot.multi else values[0]), alive, dead, False

    def value(self, item: Input) -> Any:
        """Return the value of one input, or `MISSING`; for interface outputs."""
        try:
            value, _, _, failed = self._resolve(item)
        except InvalidInput:  # reported as the error of the output node
            return MISSING
        return MISSING if failed else value

    def leave_streams(self, index: int) -> None:
        """Stop reading the streams that a node reads: it has ended, or will not run."""
        for stream, edge in self._read_by(index):
            stream.readers[edge.reader].leave()

    def has_read(self, index: int) -> bool:
        """Return whether a node has consumed items of a stream, which a retry would not get again."""
        return any(stream.readers[edge.reader].has_read for stream, edge in self._read_by(index))

    def broken(self, index: int) -> Outcome | None:
        """Return the outcome of a node whose input streams broke off; None where none did."""
        outcomes = [self.outcomes[edge.source] for stream, edge in self._read_by(index) if stream.error is not None]
        if not outcomes:
            return None
        return Outcome.FAILED if Outcome.FAILED in outcomes else Outcome.DEAD

    def _read_by(self, index: int) -> Iterator[tuple[Stream, InEdge]]:
        """Return the streams that a node reads, and by which edges."""
        for item in self._level.nodes[index].inputs if self.streams else ():
            for edge in item.edges:
                if edge.reader >= 0:
                    stream = self.streams.get(edge.source, {}).get(edge.key)
                    if stream is not None:
                        yield stream, edge

    def _no_value(self, item: Input) -> str:
        text = f"the required input {item.key!r} has no value"
        if not item.edges:
            return text
        sources = [(self._level.nodes[edge.source], edge.key) for edge in item.edges]
        names = [node.id if node.role is Role.RELAY else f"{node.id}.{key}" for node, key in sources]
        return f"{text}: {', '.join(names)} gave none"


def _edge_value(edge: InEdge, item: Input, value: Any) -> Any:
    """Return the value that an edge brings from its source."""
    if edge.reader >= 0:
        what = f"the input {item.key!r}"
        return reader_of(value, edge, what) if isinstance(value, Stream) else ListStream(value, edge.convert, what)
    if edge.collects:
        items = value.kept if isinstance(value, Stream) else value if isinstance(value, list) else [value]
        makes_list = item.slot.data_flow_type is DataFlowType.ARRAY  # whatever its items are
        try:
            items = items if edge.convert is None or makes_list else [edge.convert(each) for each in items]
        except (OverflowError, ValueError) as error:
            raise _unfit(edge, item, error) from error
        return collected(list(items), item.slot)
    if edge.convert is None:
        return value
    try:
        return edge.convert(value)
    except (OverflowError, ValueError) as error:
        raise _unfit(edge, item, error) from error


def _unfit(edge: InEdge, item: Input, error: Exception) -> InvalidInput:
    wanted = item.slot.data_flow_type
    return InvalidInput(f"the input {item.key!r}: the value on edge {edge.id} is no {wanted}: {error}")


def _stream_written_values(node: PlanNode, inputs: dict[str, Any]) -> None:
    """Make streams of the written values of stream inputs."""
    if node.node_type is None:
        return
    slots = node.kind.inputs if node.kind is not None else node.node_type.definition.inputs
    for key, value in inputs.items():
        slot = slots.get(key)
        if slot is not None and slot.is_stream and not hasattr(value, "__anext__"):
            inputs[key] = ListStream(value)
