"""Nodes of a plugin in a process of its own: the host's end."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from tavern_host.contracts.errors import PluginFailure
from tavern_host.contracts.nodes import DirectCall, ItemStream, NodeCall, NodeDefinition, NodeInstance, Report
from tavern_host.runtime.codec import encode
from tavern_host.runtime.issued import hand_over
from tavern_isolation.edges import Edges
from tavern_isolation.frames import Message
from tavern_isolation.in_flight import Stream
from tavern_isolation.link import Link
from tavern_isolation.node_values import Values, packed, unpacked
from tavern_isolation.opened import Opened
from tavern_isolation.supervisor import Supervisor
from tavern_isolation.typed import Lent, received

_numbers = itertools.count(1)


class RemoteRunner:
    """Makes instances of one node type; see `contracts.nodes.NodeRunner`."""

    def __init__(
        self,
        plugin: str,
        child: Supervisor,
        lent: Lent,
        edges: Edges,
        reports: dict[int, Report],
        definition: NodeDefinition,
    ) -> None:
        self.plugin = plugin
        self.child = child
        self.lent = lent
        self.edges = edges
        self.reports = reports
        self.definition = definition
        self.number = next(_numbers)
        self._opened = Opened(f"node {definition.type}", child, self._open)

    def open(self, config: Values) -> NodeInstance:
        """Return an instance, which the child opens at its first run."""
        return _Instance(self, config)

    async def change(self, inputs: Values, config: Values) -> JsonValue:
        """Return the answer of the author's `is_changed`."""
        answer: JsonValue = json.loads(await self._both("node.change", {}, inputs, config))
        return answer

    async def act(self, action: str, inputs: Values, config: Values) -> dict[str, JsonValue]:
        """Carry out what a button asks for."""
        changed = json.loads(await self._both("node.act", {"action": action}, inputs, config))
        if not isinstance(changed, dict):
            raise PluginFailure(f"node {self.definition.type}: a button returned no input values")
        return changed

    async def _both(self, name: str, head: dict[str, Any], inputs: Values, config: Values) -> bytes:
        lines, parts = packed(inputs, self.edges, self.definition.type)
        more, others = packed(config, self.edges, self.definition.type)
        link = await self.ready()
        answer = await self.ask(link, name, {**head, "keys": lines, "config": more}, *parts, *others)
        assert isinstance(answer, tuple)
        return answer[0]

    async def ready(self) -> Link:
        """Return the link to a child that knows the node type."""
        return await self._opened.link()

    async def ask(self, link: Link, name: str, head: dict[str, Any], *parts: bytes) -> Message | Stream:
        """Ask a child that knows the node type. What has to be in the same one is asked for by the same link."""
        return await link.call(name, to_json({**head, "runner": self.number}), *parts)

    async def _open(self, link: Link) -> None:
        opening = json.dumps({"runner": self.number}).encode()
        await link.call("node.runner", opening, encode(self.definition, NodeDefinition))


class _Instance:
    """A node of the child; see `contracts.nodes.NodeInstance`."""

    direct: DirectCall | None = None

    def __init__(self, runner: RemoteRunner, config: Values) -> None:
        self._runner = runner
        self._config = config
        self._number = next(_numbers)
        self._opened = Opened(f"node {runner.definition.type}", runner.child, self._open)
        self._opened.holds = runner.definition.traits.stateful
        self.items: ItemStream | None = self._items if runner.definition.traits.streams else None

    async def run(self, inputs: Values, node_call: NodeCall | None, report: Report | None = None) -> Values:
        """Execute once."""
        with _Run(self._runner, inputs, node_call, report) as run:
            answer = await self._ask("node.run", run)
        assert isinstance(answer, tuple)
        return unpacked(answer, self._runner.edges, self._runner.definition.type)

    async def stream(
        self, inputs: Values, node_call: NodeCall | None, report: Report | None = None
    ) -> AsyncGenerator[Values, None]:
        """Execute a node that streams."""
        with _Run(self._runner, inputs, node_call, report) as run:
            answer = await self._ask("node.stream", run)
            assert isinstance(answer, Stream)
            async with aclosing(answer):
                async for parts in answer:
                    yield unpacked(parts, self._runner.edges, self._runner.definition.type)

    async def _items(
        self, inputs: Values, node_call: NodeCall | None, report: Report | None = None
    ) -> AsyncGenerator[Any, None]:
        with _Run(self._runner, inputs, node_call, report) as run:
            answer = await self._ask("node.items", run)
            assert isinstance(answer, Stream)
            async with aclosing(answer):
                async for parts in answer:
                    runner = self._runner
                    yield received(parts, runner.edges, f"node {runner.definition.type}: an item", runner.plugin)

    async def _ask(self, name: str, run: _Run) -> Message | Stream:
        link = await self._opened.link()
        return await self._runner.ask(link, name, {**run.head, "object": self._number}, *run.parts)

    async def _open(self, link: Link) -> None:
        runner = self._runner
        await runner.ready()  # in the same child, or this link has ended
        keys, parts = packed(self._config, runner.edges, runner.definition.type)
        await runner.ask(link, "node.open", {"object": self._number, "keys": keys}, *parts)

    async def close(self) -> None:
        """Release what the instance holds."""
        self._opened.let_go()
        if self._opened.is_open:
            link = await self._runner.child.link()
            await self._runner.ask(link, "node.close", {"object": self._number})


class _Run:
    """One run of a node: what is sent of it, and what is lent and reported while it runs."""

    def __init__(self, runner: RemoteRunner, inputs: Values, call: NodeCall | None, report: Report | None) -> None:
        self._reports = runner.reports
        self._inputs = inputs
        self._call = call and call.model_copy(update={"call": hand_over(call.call)})
        self._report = report
        self._lending = runner.lent.during()
        self._edges = runner.edges
        self._what = runner.definition.type
        self.head: dict[str, Any] = {}
        self.parts: list[bytes] = []

    def __enter__(self) -> _Run:
        lend = self._lending.__enter__()
        streams = {key: lend(one, self._edges) for key, one in self._inputs.items() if isinstance(one, AsyncIterator)}
        values = {key: value for key, value in self._inputs.items() if key not in streams}
        keys, parts = packed(values, self._edges, self._what)
        number = 0 if self._report is None else next(_numbers)
        if self._report is not None:
            self._reports[number] = self._report
        self.head = {"keys": keys, "streams": streams, "report": number}
        self.parts = [encode(self._call, NodeCall | None), *parts]
        return self

    def __exit__(self, *error: object) -> None:
        self._reports.pop(self.head.get("report", 0), None)
        self._lending.__exit__(None, None, None)
