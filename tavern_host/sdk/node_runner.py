"""Turns what `@node` marked into a `NodeRunner`: binds configuration when an instance is opened, then calls.

How one call is made as cheap as can be is in `nodecalls`; how a function runs in a process of its own, in
`nodeprocess`.
"""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import NotFound, PluginFailure
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import NodeInstance
from tavern_host.runtime.codec import WireError, decode, encode
from tavern_host.runtime.threads import ended
from tavern_host.sdk.decorator import NodeCode, NodeFunction
from tavern_host.sdk.node_calls import NodeCalls, instance_of
from tavern_host.sdk.node_process import FolderSource


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
        instance = instance_of(NodeCalls(self._code, self._context, self._source, self._defaults | config))
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
