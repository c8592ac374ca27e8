"""Carries out the nodes that need more than a call: those of the interface, streams, loops, nodes with state or a
policy, and all that did not go well. When which node has its turn is decided in `execution.py`."""

from __future__ import annotations

import asyncio
import copy
import time
import weakref
from typing import Any, Protocol

from tavern_engine.cache.cache import owned
from tavern_engine.compile.plan import VALUE, Level, PlanNode, Role
from tavern_engine.run.account import State
from tavern_engine.run.attempts import try_apart
from tavern_engine.run.feed import PARTIAL
from tavern_engine.run.gather import Fate, Gatherer
from tavern_engine.run.loopdiary import Diary
from tavern_engine.run.loops import Body, run_loop
from tavern_engine.run.outlets import Outlets
from tavern_engine.run.pumps import Pump
from tavern_engine.run.scope import Scope
from tavern_engine.run.selection import Selection
from tavern_engine.run.streams import Listed, StreamBroken
from tavern_engine.run.wireform import error_form
from tavern_host.contracts.dataflow import coerce, empty_value
from tavern_host.contracts.errors import DeadlineExceeded, ErrorInfo, PluginFailure, describe
from tavern_host.contracts.nodes import NodeCall, NodeInstance, SlotDefinition
from tavern_host.contracts.workflows import ERROR_OUTPUT, NodePolicy

_NO_POLICY = NodePolicy()


class Runs(Protocol):
    """What steps need of the execution that they belong to."""

    results: list[dict[str, Any] | None]
    error: ErrorInfo | None
    stopping: bool

    def release_early(self, index: int) -> None:
        """Let those begin that read the streams of a node."""

    def child(
        self, level: Level, written: list[dict[str, Any]], selection: Selection, scope: Scope, iteration: int
    ) -> Body:
        """Return the execution of a level within this one."""


class Steps:
    """The steps of one execution. `runs[i]` says whether node `i` runs at all; None: all do. In a loop it is one
    `iteration` of it."""

    def __init__(
        self,
        execution: Runs,
        level: Level,
        written: list[dict[str, Any]],
        signatures: list[bytes | None],
        runs: bytearray | None,
        scope: Scope,
        iteration: int | None,
    ) -> None:
        self._execution: Runs = weakref.proxy(execution)  # it holds these; a cycle would wait for the collector
        self._level = level
        self._signatures = signatures
        self._runs = runs
        self._scope = scope
        self._feed = scope.feed
        self._iteration = iteration
        self._interface = scope.interface
        self._opened: set[int] = set()
        self.gatherer = Gatherer(level, written, execution.results)
        self._outlets = Outlets(level, runs, self.gatherer.fates, scope.feed.yields, scope.interface)

    async def take(self, index: int, began: float) -> dict[str, Any] | None:
        """Carry out a node and take down what became of it; return its outputs, or None where it has none."""
        node = self._level.nodes[index]
        try:
            inputs, fate = self.gatherer.inputs(index)
        except Exception as error:
            self.gatherer.leave_streams(index)
            return self.failed(index, began, error)
        if fate is not Fate.WELL:
            self._skip(index, fate)
            return None
        if node.role is Role.RELAY:
            return {VALUE: inputs[VALUE]} if VALUE in inputs else {}
        if node.role is Role.NODE or node.role is Role.LOOP:
            return await self._carry_out(index, node, inputs, began)
        if node.role is Role.OUTPUT and self._interface:
            self._tell_whole(node)
        if node.number >= 0:
            state = State.BYPASSED if node.role is Role.BYPASSED else State.DONE
            shown = {} if node.role is Role.OUTPUT else inputs
            self._record(node, began, state, shown)
        return inputs

    def odd(self, index: int, began: float, given: Any) -> dict[str, Any] | None:
        """Take a result that is no dict, or came after the run was stopped."""
        if self._execution.stopping:
            return None
        if isinstance(given, dict):
            outputs: dict[str, Any] = dict(given)
            node = self._level.nodes[index]
            self._record(node, began, State.DONE, outputs, self._signatures[index])
            return outputs
        message = f"it returned {type(given).__name__}, expected a dict with its outputs"
        return self.failed(index, began, PluginFailure(message))

    def failed(self, index: int, began: float, error: BaseException) -> dict[str, Any] | None:
        """Take down that a node failed, and do what its policy says; return the outputs that stand in, if any."""
        if self._execution.stopping:
            return None
        node = self._level.nodes[index]
        fates = self.gatherer.fates
        if _code(error) == StreamBroken.code and (fate := self.gatherer.broken(index)) is not None:
            self._skip(index, fate)  # the failure is told with the source
            return None
        info = error_form(_as_failure(error, node), node.plugin)
        if info.code == PluginFailure.code:
            place = f"run {self._scope.run_id}, node {node.id} ({node.type} of {node.plugin})"
            self._scope.log.warning("%s: %s", place, info.message, exc_info=error.__cause__ or error)
        policy = node.policy or _NO_POLICY
        outputs: dict[str, Any] | None = None
        self._taint(index)
        if policy.on_error == "fail":
            fates[index] = Fate.FAILED
            if self._execution.error is None:
                about = {**info.details, "node": node.id}
                place = f"node {node.id} ({node.label})" if node.number >= 0 else node.label or node.id
                message = f"{place}: {info.message}"
                self._execution.error = info.model_copy(update={"message": message, "details": about})
        elif policy.on_error == "skip_branch":
            fates[index] = Fate.DEAD
        elif policy.on_error == "route":
            fates[index] = Fate.ROUTED
            outputs = {ERROR_OUTPUT: info.to_json()}
        else:
            outputs = {key: _default(policy, key, slot) for key, slot in node.outputs.items()}
        if node.number >= 0:
            ended = time.perf_counter()
            self._feed.take(node.number, State.FAILED, outputs, began=began, ended=ended, error=info)
        return outputs

    def was_opened(self, index: int) -> bool:
        """Return whether the streams of a node were opened before; they are from now on."""
        if index in self._opened:
            return True
        self._opened.add(index)
        return False

    # --- running ----------------------------------------------------------------------------------

    async def _carry_out(
        self, index: int, node: PlanNode, inputs: dict[str, Any], began: float
    ) -> dict[str, Any] | None:
        """Run a node, as often as its policy allows."""
        policy = node.policy or _NO_POLICY
        attempt, delay = 1, policy.retry_delay
        self._feed.account.attempts.pop(node.number, None)  # those of the iteration before
        pump = self._outlets.open(index, node)
        if pump is not None:
            self._execution.results[index] = dict(pump.streams)
            self.gatherer.streams[index] = pump.streams
            if index in self._level.early:
                self._execution.release_early(index)
        while True:
            try:
                given = _again(inputs) if policy.retry else inputs
                outputs = await self._limited(index, node, given, pump, attempt)
            except GeneratorExit:
                raise
            except BaseException as error:  # a node that calls sys.exit must not end the host
                if self._execution.stopping:
                    if pump is not None:
                        self._outlets.end(pump, "the run was stopped")
                    raise
                has_begun = (pump is not None and pump.has_begun) or self.gatherer.has_read(index)
                if attempt <= policy.retry and not has_begun and _code(error) != StreamBroken.code:
                    attempt += 1
                    self._tried(node, attempt, delay, error)
                    await asyncio.sleep(delay)
                    delay *= 2
                    continue
                return await self._broken_off(index, node, pump, began, error)
            self.gatherer.leave_streams(index)
            return self._settled(index, node, outputs, pump, began)

    def _tried(self, node: PlanNode, attempt: int, delay: float, error: BaseException) -> None:
        """Take down that a node failed and is tried again."""
        self._feed.account.attempts[node.number] = attempt
        place, again = f"run {self._scope.run_id}, node {node.id}", f"attempt {attempt} comes in {delay:g} s"
        self._scope.log.warning("%s: %s; %s", place, error_form(error).message, again)

    def _settled(
        self, index: int, node: PlanNode, outputs: dict[str, Any], pump: Pump | None, began: float
    ) -> dict[str, Any] | None:
        """Take down what a node gave, and return it."""
        if self._execution.stopping:
            return None
        if self.gatherer.broken(index) is not None:  # it went on without the rest of a stream
            self._taint(index)
        signature = self._signatures[index]
        state = State.BYPASSED if node.loop is not None and node.loop.is_bypassed else State.DONE
        if pump is None:
            self._record(node, began, state, outputs, signature)
            return outputs
        self._outlets.end(pump)
        if node.role is Role.LOOP:  # its outputs have all items
            self._record(node, began, state, outputs, signature)
        else:
            self._record(node, began, State.DONE, outputs | pump.outputs(), signature if pump.is_whole else PARTIAL)
        return {**outputs, **pump.batch, **pump.streams}

    async def _broken_off(
        self, index: int, node: PlanNode, pump: Pump | None, began: float, error: BaseException
    ) -> dict[str, Any] | None:
        """Take down that a node failed, and end its streams; return the outputs that stand in, if any."""
        self.gatherer.leave_streams(index)
        outputs = self.failed(index, began, error)
        if pump is not None:
            stands_in = outputs is not None and not pump.has_begun and node.policy is not None
            if outputs is not None and stands_in and node.policy is not None and node.policy.on_error == "default":
                for key in pump.streams:
                    value = outputs[key]
                    for item in value if isinstance(value, list) else [value]:
                        await pump.put(key, item)
                self._outlets.end(pump)
            else:
                self._outlets.end(pump, error_form(error).message)
        return outputs

    async def _limited(
        self, index: int, node: PlanNode, inputs: dict[str, Any], pump: Pump | None, number: int
    ) -> dict[str, Any]:
        """Carry out one attempt, by its number, within the time that it may take."""
        if node.node_type is not None and node.node_type.definition.traits.placement == "process":
            async with self._scope.processes.turn():
                return await self._timed(index, node, inputs, pump, number)
        return await self._timed(index, node, inputs, pump, number)

    async def _timed(
        self, index: int, node: PlanNode, inputs: dict[str, Any], pump: Pump | None, number: int
    ) -> dict[str, Any]:
        policy = node.policy
        timeout = policy.timeout if policy is not None else None
        if policy is None or (timeout is None and not policy.retry):
            return await self._attempt(index, node, inputs, pump, number)
        if pump is None and node.role is Role.NODE:
            coroutine = self._attempt(index, node, inputs, pump, number)
            return await try_apart(coroutine, timeout, lambda: self._left(node))
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._attempt(index, node, inputs, pump, number)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded(f"it did not end within {timeout:g} s") from None

    def _left(self, node: PlanNode) -> None:
        """A node whose time is over goes on all the same: nothing of it is used any more."""
        place = f"run {self._scope.run_id}, node {node.id}"
        self._scope.log.warning("%s ignores that its time is over and may still be running", place)
        self._scope.instances.pop(node.number, None)

    async def _attempt(
        self, index: int, node: PlanNode, inputs: dict[str, Any], pump: Pump | None, number: int
    ) -> dict[str, Any]:
        if node.loop is not None:

            async def put(key: str, item: Any) -> None:
                if pump is not None and key in pump.streams:
                    await pump.put(key, item)

            is_outermost = self._iteration is None
            diary = Diary(self._feed, node, self._signatures[index], keeps=is_outermost)
            before = self._scope.loops.get(node.id) if is_outermost and number == 1 else None
            return await run_loop(
                node,
                node.loop,
                inputs,
                self._scope,
                self._execution.child,
                put,
                diary=diary,
                tainted=lambda: self._taint(index),
                before=before,
            )
        instance = node.instance or self._instance(node)
        assert node.node_type is not None
        call = None
        if node.node_type.definition.traits.wants_call:
            scope = self._scope
            call = NodeCall(run_id=scope.run_id, node_id=node.id, call=scope.call, iteration=self._iteration)
        if pump is not None:
            if instance.items is not None and len(pump.streams) == 1:
                await pump.move_items(instance.items(inputs, call))
            else:
                await pump.move_parts(instance.stream(inputs, call))
            return {}
        outputs: object = await instance.run(inputs, call)
        if not isinstance(outputs, dict):
            raise PluginFailure(f"it returned {type(outputs).__name__}, expected a dict with its outputs")
        return outputs

    def _instance(self, node: PlanNode) -> NodeInstance:
        """Return the instance of a node that has state, or could not be opened when the plan was made."""
        instance = self._scope.instances.get(node.number)
        if instance is None:
            assert node.kind is not None
            instance = self._scope.instances[node.number] = node.kind.runner.open(node.config)
        return instance

    # --- small parts ------------------------------------------------------------------------------

    def _tell_whole(self, node: PlanNode) -> None:
        """Tell of the streams that go out by the interface and did not come as such: an earlier run's, a list."""
        results = self._execution.results
        for item in node.inputs:
            for feed in item.feeds:
                value = (results[feed.source] or {}).get(feed.key) if feed.collects else None
                if isinstance(value, list):
                    self._feed.yields.whole(item.key, value if feed.convert is None else map(feed.convert, value))

    def _taint(self, index: int) -> None:
        """See to it that what a node gave, and what follows from it, does not stand for them another time."""
        self._scope.is_tainted = True
        waiting = [index]
        seen: set[int] = set()
        while waiting:
            index = waiting.pop()
            if index not in seen:
                seen.add(index)
                self._signatures[index] = PARTIAL
                waiting.extend(self._level.followers[index])
                waiting.extend(self._level.early.get(index, ()))

    def _skip(self, index: int, fate: Fate) -> None:
        self.gatherer.fates[index] = fate
        self.gatherer.leave_streams(index)
        node = self._level.nodes[index]
        if node.number >= 0:
            self._feed.take(node.number, State.SKIPPED)

    def _record(
        self, node: PlanNode, began: float, state: State, outputs: dict[str, Any], signature: bytes | None = None
    ) -> None:
        ended = time.perf_counter()
        self._feed.take(node.number, state, owned(outputs), began=began, ended=ended, signature=signature)


def _again(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs for one more try; lists that are read as streams begin anew."""
    return {key: value.again() if isinstance(value, Listed) else _own(value) for key, value in inputs.items()}


def _own(value: Any) -> Any:
    """Return a copy of a list or object, which a try that failed may have changed."""
    if isinstance(value, list | dict):
        try:
            return copy.deepcopy(value)
        except Exception:  # a foreign object's own copying may fail in any way
            return value
    return value


def _default(policy: NodePolicy, key: str, slot: SlotDefinition) -> Any:
    """Return what an output of a node that failed gives instead."""
    if key not in policy.defaults:
        return [] if slot.is_stream else empty_value(slot.data_flow_type)
    value = copy.deepcopy(policy.defaults[key])
    try:
        return value if value is None or slot.is_stream else coerce(slot, value)
    except ValueError:  # the check of the workflow has warned of it
        return value


def _as_failure(error: BaseException, node: PlanNode) -> BaseException:
    """Return an error as what it is for the node: what would end a task or the program is a failure like others."""
    failure = error
    if isinstance(error, asyncio.CancelledError):
        failure = PluginFailure("it was cancelled by its own code")
    elif isinstance(error, SystemExit | KeyboardInterrupt):
        name = node.type.partition(":")[2]
        failure = PluginFailure(f"node {name} tried to end the program ({describe(error)})")
    if failure is not error:
        failure.__cause__ = error
    return failure


def _code(error: BaseException) -> str | None:
    info = getattr(error, "info", None)
    return info.code if isinstance(info, ErrorInfo) else None
