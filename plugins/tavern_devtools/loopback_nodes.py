"""Runners of nodes behind the loopback boundary: values on edges and configuration are encoded and decoded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import JsonValue

from tavern_devtools.loopback import CarriedStream, Crossing, loose_trip, passed_on, round_trip
from tavern_host.contracts.nodes import (
    DirectCall,
    ItemStream,
    NodeCall,
    NodeDefinition,
    NodeInstance,
    NodeProgress,
    NodeRunner,
    Report,
)

Values = dict[str, Any]
"""Values by the key of their slot."""


def transport_runner(runner: NodeRunner, plugin: str, definition: NodeDefinition) -> NodeRunner:
    """Return the runner of a node type of a plugin, behind the boundary."""
    return _Runner(runner, Crossing(plugin, f"node {definition.type}", log=False))  # the engine logs it


class _Runner:
    """A `NodeRunner` behind the boundary."""

    def __init__(self, inner: NodeRunner, crossing: Crossing) -> None:
        self._inner = inner
        self._crossing = crossing

    def open(self, config: Values) -> NodeInstance:
        with self._crossing:
            return _Instance(self._inner.open(loose_trip(config)), self._crossing)

    async def change(self, inputs: Values, config: Values) -> JsonValue:
        with self._crossing:
            value = await self._inner.change(loose_trip(inputs), loose_trip(config))
        return self._crossing.answer(value, JsonValue)  # type: ignore[no-any-return]

    async def act(self, action: str, inputs: Values, config: Values) -> dict[str, JsonValue]:
        with self._crossing:
            changed = await self._inner.act(action, loose_trip(inputs), loose_trip(config))
        return self._crossing.answer(changed, dict[str, JsonValue])  # type: ignore[no-any-return]


class _Instance:
    """A `NodeInstance` behind the boundary. Of values on edges, those without a codec stay in memory (rule 8)."""

    direct: DirectCall | None = None

    def __init__(self, inner: NodeInstance, crossing: Crossing) -> None:
        self._inner = inner
        self._crossing = crossing
        self.items: ItemStream | None = self._items if inner.items is not None else None

    async def run(self, inputs: Values, node_call: NodeCall | None, report: Report | None = None) -> Values:
        with self._crossing:
            outputs = await self._inner.run(*_sent(inputs, node_call, report))
        return loose_trip(outputs)  # type: ignore[no-any-return]

    def stream(self, inputs: Values, node_call: NodeCall | None, report: Report | None = None) -> AsyncIterator[Values]:
        sent = _sent(inputs, node_call, report)
        return passed_on(lambda: self._inner.stream(*sent), loose_trip, self._crossing)

    def _items(self, inputs: Values, node_call: NodeCall | None, report: Report | None = None) -> AsyncIterator[Any]:
        assert self._inner.items is not None
        items, sent = self._inner.items, _sent(inputs, node_call, report)
        return passed_on(lambda: items(*sent), loose_trip, self._crossing)

    async def close(self) -> None:
        with self._crossing:
            await self._inner.close()


def _sent(
    inputs: Values, node_call: NodeCall | None, report: Report | None
) -> tuple[Values, NodeCall | None, Report | None]:
    """Return the arguments of a node's run as they are across a boundary; the items of a stream as they are read."""
    values = {
        key: CarriedStream(value, loose_trip) if isinstance(value, AsyncIterator) else loose_trip(value)
        for key, value in inputs.items()
    }
    carried = None if report is None else lambda progress: report(round_trip(progress, NodeProgress))
    return values, round_trip(node_call, NodeCall | None), carried
