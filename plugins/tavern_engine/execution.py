"""Carries out one plan with one set of values: gathers each node's inputs, runs it, keeps its outputs.

Order and concurrency are the drain's (`drain.py`), the account of it the record's (`record.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pydantic import JsonValue

from tavern_engine.drain import Drain
from tavern_engine.plan import Feed, Input, Plan, PlanNode, Role
from tavern_engine.record import RunRecord
from tavern_engine.values import Values
from tavern_engine.wireform import error_form, json_form
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, PluginFailure, TavernError
from tavern_host.contracts.nodes import NodeCall

_NOTHING: Any = object()


class Execution:
    """One run of a plan. `call` is the context of what its nodes do."""

    def __init__(self, plan: Plan, values: Values, call: CallContext, record: RunRecord, log: logging.Logger) -> None:
        self._plan = plan
        self._values = values
        self._call = call
        self._record = record
        self._log = log
        self._results: list[dict[str, Any] | None] = [None] * len(plan.nodes)
        self._drain = Drain(plan.waiting_for, plan.followers, self._execute, record.skipped)

    async def run(self) -> None:
        """Run all nodes; returns when none is left or `stop` was called. Cancelling stops too."""
        try:
            await self._drain.run()
        finally:
            self._record.close_nodes()
            if self._drain.stragglers:
                self._log.warning("run %s: %s", self._record.id, self._straggling())

    def stop(self) -> None:
        """Interrupt the nodes that run, in the middle of an `await` if need be, and begin no others."""
        self._drain.stop()

    def outputs(self) -> dict[str, JsonValue]:
        """Return the interface outputs that there are: those whose sources all completed."""
        found: dict[str, JsonValue] = {}
        for index, item in self._plan.outputs:
            if any(self._results[feed.source] is None for feed in item.feeds):
                continue
            try:
                value = self._value(index, item)
            except TavernError:  # told as the error of the node that carries the outputs
                continue
            if value is not _NOTHING:
                found[item.key] = json_form(value)
        return found

    async def _execute(self, index: int) -> bool:
        node = self._plan.nodes[index]
        self._record.executing(index)
        try:
            outputs = await self._outputs_of(index, node)
        except asyncio.CancelledError as cancelled:
            if self._drain.stopping:
                raise
            self._fail(index, node, PluginFailure("it was cancelled by its own code"), cause=cancelled)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a node that calls sys.exit must not end the host
            self._fail(index, node, error)
        else:
            if not self._drain.stopping:
                self._results[index] = outputs
                self._record.completed(index, outputs)
            return True
        return False

    def _fail(self, index: int, node: PlanNode, error: BaseException, cause: BaseException | None = None) -> None:
        if self._drain.stopping:
            return
        info = error_form(error, node.plugin)
        if info.code == PluginFailure.code:
            place = f"run {self._record.id}, node {node.id} ({node.type} of {node.plugin})"
            self._log.warning("%s: %s", place, info.message, exc_info=cause or error)
        self._record.failed(index, info)

    async def _outputs_of(self, index: int, node: PlanNode) -> dict[str, Any]:
        if node.role is Role.INPUT:
            return dict(self._values.interface)
        inputs = self._inputs(index, node)
        if node.runner is None:
            return {}
        instance = node.runner.open(self._values.configs[index])
        try:
            outputs: object = await instance.run(
                inputs, NodeCall(run_id=self._record.id, node_id=node.id, call=self._call)
            )
        finally:
            await instance.close()
        if not isinstance(outputs, dict):
            raise PluginFailure(f"it returned {type(outputs).__name__}, expected a dict with its outputs")
        return outputs

    def _inputs(self, index: int, node: PlanNode) -> dict[str, Any]:
        """Return a node's inputs: from edges, else as written down, else the default."""
        inputs: dict[str, Any] = {}
        missing: list[str] = []
        for item in node.inputs:
            value = self._value(index, item)
            if value is not _NOTHING:
                inputs[item.key] = value
            elif item.slot.required and node.role is Role.NODE:
                missing.append(_no_value(item, self._plan))
        if missing:
            raise InvalidInput("; ".join(missing))
        return inputs

    def _value(self, index: int, item: Input) -> Any:
        """Return the value of one input, a list for a `multi` one, or `_NOTHING`."""
        arrived = []
        for feed in item.feeds:
            outputs = self._results[feed.source]
            if outputs is not None and feed.key in outputs:
                value = outputs[feed.key]
                arrived.append(value if feed.convert is None else _convert(feed, item, value))
        if arrived:
            return arrived if item.slot.multi else arrived[0]
        written = self._values.literals[index].get(item.key, _NOTHING)
        if written is _NOTHING and item.slot.multi and not item.slot.required:
            return []
        return written

    def _straggling(self) -> str:
        count = len(self._drain.stragglers)
        nodes = "a node ignores" if count == 1 else f"{count} nodes ignore"
        return f"{nodes} being interrupted and may still be running"


def _convert(feed: Feed, item: Input, value: Any) -> Any:
    assert feed.convert is not None
    try:
        return feed.convert(value)
    except (OverflowError, ValueError) as error:
        wanted = item.slot.data_flow_type
        raise InvalidInput(f"the input {item.key!r}: the value on edge {feed.edge} is no {wanted}: {error}") from error


def _no_value(item: Input, plan: Plan) -> str:
    text = f"the required input {item.key!r} has no value"
    if not item.feeds:
        return text
    sources = ", ".join(f"{plan.nodes[feed.source].id}.{feed.key}" for feed in item.feeds)
    return f"{text}: {sources} gave none"
