"""Nodes of the plugin in this process: runners and instances by the numbers that the host gives them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

from pydantic_core import to_json

from tavern_host.contracts.nodes import NodeCall, NodeDefinition, NodeInstance, NodeProgress, NodeRunner
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_isolation.edges import ChildEdges, Edges
from tavern_isolation.frames import Message
from tavern_isolation.link import Link
from tavern_isolation.node_values import packed, values_of
from tavern_isolation.typed import Head, borrowed, parts_of


class Nodes:
    """Runs the plugin's nodes."""

    def __init__(self, runtime: InProcessRuntime, link: Link, plugin: str) -> None:
        self._runtime = runtime
        self._link = link
        self.edges = ChildEdges(plugin)
        self._runners: dict[int, NodeRunner] = {}
        self._types: dict[int, str] = {}
        self._instances: dict[int, NodeInstance] = {}

    async def serve(self, name: str, head: Head, parts: Message) -> Message | AsyncIterator[Message]:
        """Carry out a call about a node."""
        if name == "node.runner":
            definition = decode(parts[0], NodeDefinition)
            self._types[head["runner"]] = definition.type
            self._runners[head["runner"]] = self._runtime.open(definition)
            return ()
        runner, what = self._runners[head["runner"]], self._types[head["runner"]]
        if name == "node.open":
            self._instances[head["object"]] = runner.open(self._values(head["keys"], iter(parts), what))
            return ()
        if name == "node.close":
            await self._instances.pop(head["object"]).close()
            return ()
        if name in ("node.change", "node.act"):
            rest = iter(parts)
            inputs = self._values(head["keys"], rest, what)
            config = self._values(head["config"], rest, what)
            if name == "node.change":
                return (json.dumps(await runner.change(inputs, config)).encode(),)
            return (json.dumps(await runner.act(head["action"], inputs, config)).encode(),)
        instance = self._instances[head["object"]]
        call = decode(parts[0], NodeCall | None)
        inputs = self._values(head["keys"], iter(parts[1:]), what)
        inputs |= {key: borrowed(self._link, number, self.edges) for key, number in head["streams"].items()}
        report = self._reporter(head["report"])
        if name == "node.run":
            return _sent(await instance.run(inputs, call, report), self.edges, what)
        if name == "node.stream":
            return _stream(instance.stream(inputs, call, report), self.edges, what)
        return _items(instance, inputs, call, report, self.edges)

    def _values(self, keys: list[str], parts: Iterator[bytes], what: str) -> dict[str, Any]:
        return values_of(keys, parts, self.edges, what)

    def _reporter(self, number: int) -> Any:
        if not number:
            return None
        head = to_json({"report": number})
        return lambda said: self._link.notify("progress", head, encode(said, NodeProgress))


def _sent(outputs: dict[str, Any], edges: Edges, what: str) -> Message:
    keys, parts = packed(outputs, edges, what)
    return (to_json({"keys": keys}), *parts)


async def _stream(stream: AsyncIterator[dict[str, Any]], edges: Edges, what: str) -> AsyncGenerator[Message, None]:
    try:
        async for outputs in stream:
            yield _sent(outputs, edges, what)
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


async def _items(
    instance: NodeInstance, inputs: dict[str, Any], call: NodeCall | None, report: Any, edges: Edges
) -> AsyncGenerator[Message, None]:
    if instance.items is not None:
        stream = instance.items(inputs, call, report)
        async with aclosing(stream):  # type: ignore[type-var]
            async for item in stream:
                yield parts_of(item, edges)
