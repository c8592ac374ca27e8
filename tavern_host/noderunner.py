"""Turns what `@node` marked into a `NodeRunner`: binds slots to parameters once, then calls."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tavern_host.authoring import NodeCode
from tavern_host.context import NodeContext, PluginContext
from tavern_host.contracts.errors import PluginFailure
from tavern_host.contracts.nodes import NodeCall, NodeInstance
from tavern_host.threads import ended, run_in_thread


class InProcessNodeRunner:
    """Makes instances of one node type in this process."""

    def __init__(self, code: NodeCode, context: PluginContext) -> None:
        self._code = code
        self._context = context

    def open(self, config: dict[str, Any]) -> NodeInstance:
        """Return an instance with these configuration values, filled up with the declared defaults."""
        schema = self._code.definition.config_schema or {}
        values = {key: slot.default for key, slot in schema.items() if slot.has_default} | config
        if self._code.raw:
            return _RawInstance(self._code, self._context, values)
        return _SlotInstance(self._code, self._context, values)


class _RawInstance:
    """A node called as `run(inputs, config)`."""

    def __init__(self, code: NodeCode, context: PluginContext, config: dict[str, Any]) -> None:
        self._code = code
        self._config = config

    async def run(self, inputs: dict[str, Any], node_call: NodeCall) -> dict[str, Any]:
        """Execute once."""
        result = await _call(self._code, self._code.target, inputs, self._config)
        if not isinstance(result, Mapping):
            raise _wrong_result(self._code, result)
        return dict(result)

    async def close(self) -> None:
        """Nothing is held."""


class _SlotInstance:
    """A node called with one argument per slot; a class node is made anew for each run."""

    def __init__(self, code: NodeCode, context: PluginContext, config: dict[str, Any]) -> None:
        self._code = code
        self._context = context
        self._arguments = {key: config[key] for key in code.config_parameters if key in config}
        self._target = code.target
        if code.is_class:
            known = inspect.signature(code.target).parameters
            self._target = code.target(**{key: value for key, value in config.items() if key in known}).run

    async def run(self, inputs: dict[str, Any], node_call: NodeCall) -> dict[str, Any]:
        """Execute once."""
        code = self._code
        arguments = {key: inputs[key] for key in code.parameters if key in inputs}
        arguments.update(self._arguments)
        if code.context_parameter is not None:
            arguments[code.context_parameter] = NodeContext(
                plugin=self._context, run_id=node_call.run_id, node_id=node_call.node_id, call=node_call.call
            )
        result = await _call(code, self._target, **arguments)
        if code.single_output is not None:
            return {code.single_output: result}
        if isinstance(result, Mapping):
            return dict(result)
        if result is None and not code.definition.outputs:
            return {}
        raise _wrong_result(code, result)

    async def close(self) -> None:
        """Nothing is held that the garbage collector does not release."""


async def _call(code: NodeCode, target: Any, *args: Any, **kwargs: Any) -> Any:
    if code.blocking:
        return await run_in_thread(lambda: target(*args, **kwargs), what=f"node {code.definition.type}")
    try:
        result = target(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result
    except (SystemExit, KeyboardInterrupt) as error:
        raise ended(f"node {code.definition.type}", error) from error


def _wrong_result(code: NodeCode, result: Any) -> PluginFailure:
    outputs = ", ".join(code.definition.outputs) or "none"
    return PluginFailure(
        f"node {code.definition.type} returned {type(result).__name__}, expected a dict with its outputs ({outputs})"
    )
