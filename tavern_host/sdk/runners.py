"""Runs what `@node` marked, in this process: binds configuration when a node is opened, then calls its function.

A workflow may have thousands of trivial nodes, so all that can be known is settled when a node is opened; the most
common nodes, functions on the event loop without a context, are called without anything in between. How a function
runs in a process of its own is in `worker_process`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

from pydantic import JsonValue

from tavern_host.context import NodeContext, PluginContext
from tavern_host.contracts.errors import NotFound, PluginFailure
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import DirectCall, ItemStream, NodeCall, NodeDefinition, NodeInstance, NodeRunner
from tavern_host.runtime.codec import WireError, decode, encode
from tavern_host.runtime.source import FolderSource
from tavern_host.runtime.threads import ended, run_in_thread
from tavern_host.sdk.decorator import NodeCode, NodeFunction
from tavern_host.sdk.worker_process import run_in_process


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

    `source` is where the code of a folder plugin is, for a node that runs in a process of its own.
    """

    def __init__(self, code: NodeCode, context: PluginContext, source: FolderSource | None = None) -> None:
        self._code = code
        self._context = context
        self._source = source
        schema = code.definition.config_schema or {}
        self._defaults = {key: slot.default for key, slot in schema.items() if slot.has_default}
        self._is_same_for_all = not (code.raw or code.is_class or code.config_parameters)
        self._shared: NodeInstance | None = None

    def open(self, config: dict[str, Any]) -> NodeInstance:
        """Return an instance with these configuration values, filled up with the declared defaults."""
        if self._shared is not None:
            return self._shared
        instance = _instance_of(_NodeCalls(self._code, self._context, self._source, self._defaults | config))
        if self._is_same_for_all:
            self._shared = instance
        return instance

    async def change(self, inputs: dict[str, Any], config: dict[str, Any]) -> JsonValue:
        """Return what the author's `is_changed` returns. Raises `PluginFailure` where that is no JSON value."""
        function = self._code.change
        if function is None:
            raise NotFound(f"node {self._code.definition.type} has no is_changed")
        value: JsonValue = await self._ask(function, "is_changed", inputs, config, JsonValue)
        return value

    async def act(self, action: str, inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, JsonValue]:
        """Return what the author's function for the action returns. Raises `NotFound`, `PluginFailure`."""
        actions = self._code.actions
        if action not in actions:
            name = self._code.definition.type
            raise NotFound(f"node {name} has no action {action!r}{did_you_mean(action, actions)}")
        changed = await self._ask(actions[action], f"action {action!r}", inputs, config, dict[str, JsonValue] | None)
        return changed or {}

    async def _ask(
        self, function: NodeFunction, what: str, inputs: dict[str, Any], config: dict[str, Any], expected: Any
    ) -> Any:
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


# --- calls of an open node ---

_NEVER_AWAITED = frozenset({str, int, float, bool, type(None), dict, list, bytes})


class _Run(Protocol):
    async def __call__(self, inputs: dict[str, Any], node_call: NodeCall | None) -> dict[str, Any]: ...


class _Stream(Protocol):
    def __call__(self, inputs: dict[str, Any], node_call: NodeCall | None) -> AsyncGenerator[dict[str, Any], None]: ...


class _Instance:
    """A `NodeInstance` made of functions."""

    __slots__ = ("direct", "items", "run", "stream")

    def __init__(
        self, run: _Run, stream: _Stream, *, direct: DirectCall | None = None, items: ItemStream | None = None
    ) -> None:
        self.run = run
        self.stream = stream
        self.direct = direct
        self.items = items

    async def close(self) -> None:
        """Nothing is held that the garbage collector does not release."""


class _NodeCalls:
    """One node with its configuration: what its function is, how it is called, and what its results mean.

    A class node is made here, by its constructor.
    """

    def __init__(
        self, code: NodeCode, context: PluginContext, source: FolderSource | None, config: dict[str, Any]
    ) -> None:
        self.code = code
        self.what = f"node {code.definition.type}"
        self._context = context
        self._source = source
        self._config = config
        self._placement = code.definition.traits.placement
        self.bound = {key: config[key] for key in code.config_parameters if key in config}
        self.target = self._opened() if code.is_class else code.target

    def _opened(self) -> Callable[..., Any]:
        known = inspect.signature(self.code.target).parameters
        try:
            made = self.code.target(**{key: value for key, value in self._config.items() if key in known})
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(self.what, error) from error
        return made.run  # type: ignore[no-any-return]

    def arguments(
        self, inputs: dict[str, Any], node_call: NodeCall | None
    ) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
        """Return what the function is called with, by position and by name."""
        code = self.code
        named: dict[str, Any] = {}
        if not code.raw:
            named.update((key, inputs[key]) for key in code.parameters if key in inputs)
            named.update(self.bound)
        if code.context_parameter is not None:
            assert node_call is not None, "a node with a context needs its call"
            named[code.context_parameter] = NodeContext(
                plugin=self._context,
                run_id=node_call.run_id,
                node_id=node_call.node_id,
                call=node_call.call,
                iteration=node_call.iteration,
            )
        return ((inputs, dict(self._config)) if code.raw else ()), named

    async def call(self, inputs: dict[str, Any], node_call: NodeCall | None) -> Any:
        """Return what the function returns, wherever it runs."""
        arguments, named = self.arguments(inputs, node_call)
        placement = self._placement
        if placement == "process":
            return await run_in_process(self.code.definition.handler, self._source, arguments, named, what=self.what)
        if placement == "thread":
            return await run_in_thread(partial(self.target, *arguments, **named), what=self.what)
        try:
            result = self.target(*arguments, **named)
            may_be_awaited = type(result) not in _NEVER_AWAITED
            return await result if may_be_awaited and inspect.isawaitable(result) else result
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(self.what, error) from error

    def outputs(self, result: Any) -> dict[str, Any]:
        """Return what the function returned, or one thing that it yielded, by output slot. Raises `PluginFailure`."""
        if self.code.single_output is not None:
            return {self.code.single_output: result}
        if type(result) is dict:
            return result.copy()
        if isinstance(result, Mapping):
            return dict(result)
        if result is None and not self.code.raw and not self.code.definition.outputs:
            return {}
        does = "yielded" if self.code.definition.traits.streams else "returned"
        expected = ", ".join(self.code.definition.outputs) or "none"
        raise PluginFailure(
            f"{self.what} {does} {type(result).__name__}, expected a dict with its outputs ({expected})"
        )

    def streams(self) -> frozenset[str]:
        """Return which outputs are streams."""
        outputs = self.code.definition.slots(self._config)[1]
        return frozenset(key for key, slot in outputs.items() if slot.is_stream)


def _instance_of(calls: _NodeCalls) -> NodeInstance:
    """Return the instance of an open node."""
    if calls.code.definition.traits.streams:
        stream = _streaming(calls)
        return _Instance(_collecting(stream, calls), stream, items=_items(calls))
    run = _plainly(calls) if _is_plain(calls) else _somehow(calls)
    return _Instance(run, _yielding_once(run), direct=_directly(calls))


def _is_plain(calls: _NodeCalls) -> bool:
    """Return whether the inputs can be the arguments as they are: nothing else is needed, and the function refuses
    those that it does not know before any of its code runs."""
    code = calls.code
    if code.raw or code.context_parameter is not None or code.definition.traits.placement != "loop":
        return False
    function = getattr(calls.target, "__func__", calls.target)
    return inspect.isfunction(function) and not function.__code__.co_flags & inspect.CO_VARKEYWORDS


def _directly(calls: _NodeCalls) -> DirectCall | None:
    """Return how a function is called of which its inputs are all that it needs, and its result the one output."""
    key = calls.code.single_output
    if key is None or calls.bound or calls.code.is_class or not _is_plain(calls):
        return None
    return DirectCall(calls.target, key, inspect.iscoroutinefunction(calls.target))


def _plainly(calls: _NodeCalls) -> _Run:
    target, bound, key, outputs = calls.target, calls.bound, calls.code.single_output, calls.outputs
    is_async = inspect.iscoroutinefunction(target)
    known = {*calls.code.parameters, *bound}

    async def run(inputs: dict[str, Any], node_call: NodeCall | None) -> dict[str, Any]:
        if bound:
            inputs.update(bound)
        try:
            result = target(**inputs)
            if is_async or (type(result) not in _NEVER_AWAITED and hasattr(type(result), "__await__")):
                result = await result
        except TypeError:
            if inputs.keys() <= known:
                raise
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(calls.what, error) from error
        else:
            return {key: result} if key is not None else outputs(result)
        return await run({key: value for key, value in inputs.items() if key in known}, node_call)

    return run


def _somehow(calls: _NodeCalls) -> _Run:
    async def run(inputs: dict[str, Any], node_call: NodeCall | None) -> dict[str, Any]:
        return calls.outputs(await calls.call(inputs, node_call))

    return run


def _yielding_once(run: _Run) -> _Stream:
    async def stream(inputs: dict[str, Any], node_call: NodeCall | None) -> AsyncGenerator[dict[str, Any], None]:
        yield await run(inputs, node_call)

    return stream


def _streaming(calls: _NodeCalls) -> _Stream:
    key, outputs = calls.code.single_output, calls.outputs

    async def stream(inputs: dict[str, Any], node_call: NodeCall | None) -> AsyncGenerator[dict[str, Any], None]:
        arguments, named = calls.arguments(inputs, node_call)
        items = calls.target(*arguments, **named)
        try:
            try:
                async for item in items:
                    yield {key: item} if key is not None else outputs(item)
            finally:
                await items.aclose()
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(calls.what, error) from error

    return stream


def _items(calls: _NodeCalls) -> ItemStream | None:
    """Return how a node is called that yields nothing but items of its one stream."""
    if calls.code.single_output is None:
        return None

    def items(inputs: dict[str, Any], node_call: NodeCall | None) -> AsyncIterator[Any]:
        arguments, named = calls.arguments(inputs, node_call)
        yielded: AsyncIterator[Any] = calls.target(*arguments, **named)
        return yielded

    return items


def _collecting(stream: _Stream, calls: _NodeCalls) -> _Run:
    """Return how a node that streams is run where nobody reads its streams: each of them is a list in its outputs."""
    streams = calls.streams()

    async def run(inputs: dict[str, Any], node_call: NodeCall | None) -> dict[str, Any]:
        collected: dict[str, Any] = {key: [] for key in streams}
        async with aclosing(stream(inputs, node_call)) as parts:
            async for part in parts:
                for key, value in part.items():
                    if key in streams:
                        collected[key].append(value)
                    else:
                        collected[key] = value
        return collected

    return run
