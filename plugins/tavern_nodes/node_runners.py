"""Runs what `@node` marked, in this process: binds configuration when a node is opened, then calls its function.

A workflow may have thousands of trivial nodes, so all that can be known is worked out when a node is opened; the most
common nodes, functions on the event loop without a context, are called without anything in between. How a function
runs in a process of its own is in `worker_process`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from pydantic import JsonValue

from tavern_host.context import NodeContext, PluginContext
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import NotFound, PluginFailure
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import (
    DirectCall,
    ItemStream,
    NodeCall,
    NodeDefinition,
    NodeInstance,
    NodeRunner,
    Report,
)
from tavern_host.contracts.wire import WireError
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.issued import hand_over
from tavern_host.runtime.source import FolderSource
from tavern_host.runtime.threads import ended, run_in_thread
from tavern_host.sdk.decorator import NodeCode, NodeFunction
from tavern_nodes.worker_process import Request, run_in_process

Values = dict[str, Any]
"""Values by the key of their slot."""


def open_node(
    target: Any, definition: NodeDefinition, context: PluginContext, source: FolderSource | None
) -> NodeRunner:
    """Return the runner of the `@node` object that a definition names. Raises `NotFound` for another object."""
    code = getattr(target, "__tavern_node__", None)
    if not isinstance(code, NodeCode):
        raise NotFound(f"{context.plugin}: {definition.handler!r} is not a @node")
    return InProcessNodeRunner(code, context, source)


class InProcessNodeRunner:
    """Makes instances of one node type in this process; see `contracts.nodes.NodeRunner`.

    `source` is where the code of a folder plugin is, for a node that runs in another process.
    """

    def __init__(self, code: NodeCode, context: PluginContext, source: FolderSource | None = None) -> None:
        self._code = code
        self._context = context
        self.source = source
        schema = code.definition.config_schema or {}
        self._defaults = {key: slot.default for key, slot in schema.items() if slot.has_default}
        self._is_same_for_all = not (code.raw or code.is_class or code.config_parameters)
        self._shared: NodeInstance | None = None

    def open(self, config: Values) -> NodeInstance:
        """Return an instance with these configuration values, filled up with the declared defaults."""
        if self._shared is not None:
            return self._shared
        instance = _Instance(self._code, self._context, self.source, self._defaults | config)
        if self._is_same_for_all:
            self._shared = instance
        return instance

    async def change(self, inputs: Values, config: Values) -> JsonValue:
        """Return the result of the author's `is_changed`. Raises `PluginFailure` where that is no JSON value."""
        function = self._code.change
        if function is None:
            raise NotFound(f"node {self._code.definition.type} has no is_changed")
        value: JsonValue = await self._ask(function, "is_changed", inputs, config, JsonValue)
        return value

    async def act(self, action: str, inputs: Values, config: Values) -> dict[str, JsonValue]:
        """Return the changes that the author's function for the action returns. Raises `NotFound`, `PluginFailure`."""
        actions = self._code.actions
        if action not in actions:
            name = self._code.definition.type
            raise NotFound(f"node {name} has no action {action!r}{did_you_mean(action, actions)}")
        changed = await self._ask(actions[action], f"action {action!r}", inputs, config, dict[str, JsonValue] | None)
        return changed or {}

    async def _ask(self, function: NodeFunction, what: str, inputs: Values, config: Values, expected: Any) -> Any:
        place = f"{what} of node {self._code.definition.type}"
        context = {} if function.context_parameter is None else {function.context_parameter: self._context}
        try:
            result = function.target(inputs, self._defaults | config, **context)
            if inspect.isawaitable(result):
                result = await result
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(place, error) from error
        try:
            return decode(encode(result, expected), expected)
        except WireError as error:
            raise PluginFailure(f"{place} returned what it may not: {error}") from None


# --- an open node ---


class _Instance:
    """A `NodeInstance`: one node with its configuration. A class node is made here, by its constructor."""

    def __init__(self, code: NodeCode, context: PluginContext, source: FolderSource | None, config: Values) -> None:
        self._code = code
        self._what = f"node {code.definition.type}"
        self._context = context
        self._source = source
        self._config = config
        self._placement = code.definition.traits.placement
        self._bound = {key: config[key] for key in code.config_parameters if key in config}
        self._target = self._opened() if code.is_class else code.target
        self._streams = code.definition.traits.streams
        outputs = code.definition.slots(config)[1] if self._streams else {}
        self._stream_keys = frozenset(key for key, slot in outputs.items() if slot.is_stream)
        self.direct = self._direct()
        self.items: ItemStream | None = self._items if self._streams and code.single_output is not None else None

    async def run(self, inputs: Values, node_call: NodeCall | None, report: Report | None = None) -> Values:
        """Return the values by output slot; of a node that streams, each stream as a list."""
        if not self._streams:
            return self._outputs(await self._call(inputs, node_call, report))
        collected: Values = {key: [] for key in self._stream_keys}
        async with aclosing(self.stream(inputs, node_call, report)) as parts:
            async for part in parts:
                for key, value in part.items():
                    if key in self._stream_keys:
                        collected[key].append(value)
                    else:
                        collected[key] = value
        return collected

    async def stream(
        self, inputs: Values, node_call: NodeCall | None, report: Report | None = None
    ) -> AsyncGenerator[Values, None]:
        """Yield values by output slot."""
        if not self._streams:
            yield await self.run(inputs, node_call, report)
            return
        items = self._items(inputs, node_call, report)
        try:
            try:
                async for item in items:
                    yield self._outputs(item)
            finally:
                await items.aclose()
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(self._what, error) from error

    def _items(
        self, inputs: Values, node_call: NodeCall | None, report: Report | None = None
    ) -> AsyncGenerator[Any, None]:
        if self._code.binary:
            return self._items_of_fitted(inputs, node_call, report)
        arguments, named = self._arguments(inputs, node_call, report)
        items: AsyncGenerator[Any, None] = self._target(*arguments, **named)
        return items

    async def _items_of_fitted(
        self, inputs: Values, node_call: NodeCall | None, report: Report | None
    ) -> AsyncGenerator[Any, None]:
        arguments, named = self._arguments(await self._fitted(inputs), node_call, report)
        async with aclosing(self._target(*arguments, **named)) as items:
            async for item in items:
                yield item

    async def close(self) -> None:
        """Nothing is held that the garbage collector does not release."""

    def _direct(self) -> DirectCall | None:
        """Return how a function on the event loop is called that needs its inputs alone and has one output.

        It refuses inputs that it does not know before any of its code runs.
        """
        code, function = self._code, self._target
        is_simple = not (code.raw or code.is_class or self._streams or self._bound or code.context_parameter)
        if not is_simple or code.binary or code.single_output is None or self._placement != "loop":
            return None
        if not inspect.isfunction(function) or function.__code__.co_flags & inspect.CO_VARKEYWORDS:
            return None
        return DirectCall(function, code.single_output, inspect.iscoroutinefunction(function))

    def _opened(self) -> Callable[..., Any]:
        known = inspect.signature(self._code.target).parameters
        try:
            made = self._code.target(**{key: value for key, value in self._config.items() if key in known})
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(self._what, error) from error
        return made.run  # type: ignore[no-any-return]

    def _arguments(
        self, inputs: Values, node_call: NodeCall | None, report: Report | None
    ) -> tuple[tuple[Values, ...], Values]:
        """Return the arguments of the function, by position and by name."""
        code = self._code
        named: Values = {}
        if not code.raw:
            named.update((key, inputs[key]) for key in code.parameters if key in inputs)
            named.update(self._bound)
        if code.context_parameter is not None and self._placement != "process":  # which makes a context of its own
            assert node_call is not None, "a node with a context needs its call"
            named[code.context_parameter] = NodeContext(
                plugin=self._context,
                run_id=node_call.run_id,
                node_id=node_call.node_id,
                call=hand_over(node_call.call),
                iteration=node_call.iteration,
                report=report,
            )
        return ((inputs, dict(self._config)) if code.raw else ()), named

    async def _fitted(self, inputs: Values) -> Values:
        """Return inputs with the bytes of a Blob where bytes are hinted, and the other way round. Raises `NotFound`."""
        blobs, wanted = self._context.blobs, self._code.binary

        async def fitted(value: Any, kind: type) -> Any:
            if isinstance(value, list):
                return [await fitted(each, kind) for each in value]
            if kind is bytes and isinstance(value, Blob):
                return await blobs.read(value)
            return await blobs.put(value) if kind is Blob and isinstance(value, bytes) else value

        return {key: await fitted(value, wanted[key]) if key in wanted else value for key, value in inputs.items()}

    async def _call(self, inputs: Values, node_call: NodeCall | None, report: Report | None) -> Any:
        """Return the function's result, wherever it runs."""
        if self._code.binary:
            inputs = await self._fitted(inputs)
        arguments, named = self._arguments(inputs, node_call, report)
        placement = self._placement
        if placement == "process":
            parameter = self._code.context_parameter
            context = None if parameter is None or node_call is None else (parameter, node_call)
            request = Request(self._code.definition.handler, self._source, arguments, named, self._what, context)
            return await run_in_process(request, report)
        if placement == "thread":
            return await run_in_thread(partial(self._target, *arguments, **named), what=self._what)
        try:
            result = self._target(*arguments, **named)
            return await result if inspect.isawaitable(result) else result
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(self._what, error) from error

    def _outputs(self, result: Any) -> Values:
        """Return a result of the function, or one thing that it yielded, by output slot. Raises `PluginFailure`."""
        if self._code.single_output is not None:
            return {self._code.single_output: result}
        if type(result) is dict:
            return result.copy()
        if isinstance(result, Mapping):
            return dict(result)
        if result is None and not self._code.raw and not self._code.definition.outputs:
            return {}
        does = "yielded" if self._code.definition.traits.streams else "returned"
        expected = ", ".join(self._code.definition.outputs) or "none"
        raise PluginFailure(
            f"{self._what} {does} {type(result).__name__}, expected a dict with its outputs ({expected})"
        )
