"""Carries out the nodes that need more than a call: those of the interface, streams, loops, nodes with state or a
policy, and all that did not go well. When which node has its turn is decided in `execution.py`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from tavern_engine.account import State
from tavern_engine.gather import Fate, Gatherer
from tavern_engine.loops import Body, run_loop
from tavern_engine.plan import VALUE, Level, PlanNode, Role
from tavern_engine.pumps import Pump
from tavern_engine.scope import Scope
from tavern_engine.streams import Stream, StreamBroken
from tavern_engine.wireform import error_form
from tavern_host.contracts.dataflow import empty_value
from tavern_host.contracts.errors import DeadlineExceeded, ErrorInfo, PluginFailure, describe
from tavern_host.contracts.nodes import NodeCall, NodeInstance
from tavern_host.contracts.workflows import ERROR_OUTPUT, NodePolicy

_PAUSE = 0.003
_NO_POLICY = NodePolicy()


class Runs(Protocol):
    """What steps need of the execution that they belong to."""

    results: list[dict[str, Any] | None]
    error: ErrorInfo | None
    stopping: bool

    def release_early(self, index: int) -> None:
        """Let those begin that read the streams of a node."""

    def child(self, level: Level, written: list[dict[str, Any]]) -> Body:
        """Return the execution of a level within this one."""


class Steps:
    """The steps of one execution. `runs[i]` says whether node `i` runs at all; None: all do."""

    def __init__(
        self,
        execution: Runs,
        level: Level,
        written: list[dict[str, Any]],
        signatures: list[bytes | None],
        runs: bytearray | None,
        scope: Scope,
        *,
        is_top: bool,
    ) -> None:
        self._execution = execution
        self._level = level
        self._signatures = signatures
        self._runs = runs
        self._scope = scope
        self._feed = scope.feed
        self._interface = scope.interface if is_top else {}
        self._opened: set[int] = set()
        self.gatherer = Gatherer(level, written, execution.results)

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

    def failed(self, index: int, began: float, error: BaseException, attempts: int = 1) -> dict[str, Any] | None:
        """Take down that a node failed, and do what its policy says; return the outputs that stand in, if any."""
        if self._execution.stopping:
            return None
        node = self._level.nodes[index]
        fates = self.gatherer.fates
        if isinstance(error, StreamBroken):  # the source's failure is told with the source
            self._skip(index, Fate.FAILED)
            return None
        if isinstance(error, asyncio.CancelledError):
            cause, error = error, PluginFailure("it was cancelled by its own code")
            error.__cause__ = cause
        if isinstance(error, SystemExit | KeyboardInterrupt):
            what = f"node {node.type.partition(':')[2]} tried to end the program ({describe(error)})"
            cause, error = error, PluginFailure(what)
            error.__cause__ = cause
        info = error_form(error, node.plugin)
        if info.code == PluginFailure.code:
            place = f"run {self._scope.run_id}, node {node.id} ({node.type} of {node.plugin})"
            self._scope.log.warning("%s: %s", place, info.message, exc_info=error.__cause__ or error)
        policy = node.policy or _NO_POLICY
        outputs: dict[str, Any] | None = None
        if policy.on_error == "fail":
            fates[index] = Fate.FAILED
            if self._execution.error is None:
                about = {**info.details, "node": node.id}
                message = f"node {node.id} ({node.label}): {info.message}"
                self._execution.error = info.model_copy(update={"message": message, "details": about})
        elif policy.on_error == "skip_branch":
            fates[index] = Fate.DEAD
        elif policy.on_error == "route":
            fates[index] = Fate.ROUTED
            outputs = {ERROR_OUTPUT: info.to_json()}
        else:
            outputs = {
                key: policy.defaults.get(key, [] if slot.is_stream else empty_value(slot.data_flow_type))
                for key, slot in node.outputs.items()
            }
        if node.number >= 0:
            if attempts > 1:
                self._feed.account.attempts[node.number] = attempts
            self._feed.records.extend((node.number, began, time.perf_counter(), State.FAILED, outputs, None, info))
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
        while True:
            pump: Pump | None = None
            try:
                if node.node_type is not None and node.node_type.definition.traits.streams:
                    pump = self._open(index, node)
                given = dict(inputs) if policy.retry else inputs
                outputs = await self._limited(index, node, given, pump)
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:  # a node that calls sys.exit must not end the host
                if self._execution.stopping:
                    self._end_streams(index, "the run was stopped")
                    raise
                may_retry = attempt <= policy.retry and not (pump is not None and pump.has_begun)
                if may_retry and not isinstance(error, StreamBroken):
                    attempt += 1
                    await asyncio.sleep(delay)
                    delay *= 2
                    continue
                self.gatherer.leave_streams(index)
                result = self.failed(index, began, error, attempt)
                self._end_streams(index, error_form(error).message)
                return result
            self.gatherer.leave_streams(index)
            if attempt > 1:
                self._feed.account.attempts[node.number] = attempt
            return outputs if self._settled(index, node, outputs, pump, began) else None

    def _settled(self, index: int, node: PlanNode, outputs: dict[str, Any], pump: Pump | None, began: float) -> bool:
        """Take down what a node gave."""
        if self._execution.stopping:
            return False
        signature = self._signatures[index]
        if pump is not None:
            pump.end()
            self._record(node, began, State.DONE, pump.outputs(), signature if pump.is_whole else None)
            for key in pump.streams:
                self._feed.ended(node.number, key)
            self._end_interface(index)
        else:
            streams = self._execution.results[index]
            self._record(node, began, State.DONE, outputs, None if node.role is Role.LOOP and streams else signature)
            if streams:  # a loop's
                self._end_streams(index, None)
                outputs.update({key: value for key, value in streams.items() if key not in outputs})
        return True

    async def _limited(self, index: int, node: PlanNode, inputs: dict[str, Any], pump: Pump | None) -> dict[str, Any]:
        timeout = node.policy.timeout if node.policy is not None else None
        if timeout is None:
            return await self._attempt(index, node, inputs, pump)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._attempt(index, node, inputs, pump)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded(f"it did not end within {timeout:g} s") from None

    async def _attempt(self, index: int, node: PlanNode, inputs: dict[str, Any], pump: Pump | None) -> dict[str, Any]:
        if node.loop is not None:
            return await run_loop(
                node, node.loop, inputs, self._scope, self._execution.child, self._loop_streams(index, node)
            )
        instance = node.instance or self._instance(node)
        assert node.node_type is not None
        call = None
        if node.node_type.definition.traits.wants_call:
            call = NodeCall(run_id=self._scope.run_id, node_id=node.id, call=self._scope.call)
        if pump is not None:
            await pump.drain(instance.stream(inputs, call), _PAUSE)
            return {**pump.streams, **pump.batch}
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

    # --- streams ----------------------------------------------------------------------------------

    def _open(self, index: int, node: PlanNode) -> Pump:
        """Open the streams of a node, and let those begin that read them."""
        keys = [key for key, slot in node.outputs.items() if slot.is_stream]
        streams = {key: self._stream(index, key) for key in keys}
        needs_end = any(self._runs is None or self._runs[f] for f in self._level.followers[index])
        pump = Pump(streams, self._teller(index, node.number), may_stop=not needs_end)
        self._execution.results[index] = dict(streams)
        if index in self._level.early:
            self._execution.release_early(index)
        return pump

    def _stream(self, index: int, key: str) -> Stream:
        readers = self._level.streams.get(index, {}).get(key, [])
        runs, fates = self._runs, self.gatherer.fates
        bounds = [
            None if (runs is not None and not runs[reader]) or fates[reader] else is_unbounded
            for reader, is_unbounded in readers
        ]
        keeps_all = bool(self._level.followers[index])
        return Stream(bounds, keeps_all=keeps_all)

    def _teller(self, index: int, number: int) -> Callable[[str, Any], None]:
        """Return what is told of each item of a node's streams."""
        feed, interface = self._feed, self._interface
        if not any(source == index for source, _ in interface):
            return lambda key, item: feed.yields.append((number, key, item))

        def tell(key: str, item: Any) -> None:
            feed.yields.append((number, key, item))
            for output, convert in interface.get((index, key), ()):
                feed.yields.append((-1, output, item if convert is None else convert(item)))

        return tell

    def _loop_streams(self, index: int, node: PlanNode) -> Callable[[str, Any], Any]:
        """Open the streams of a loop that somebody reads; return what takes its items."""
        read = self._level.streams.get(index, {})
        streams = {key: self._stream(index, key) for key in read}
        pump = Pump(streams, self._teller(index, node.number), may_stop=False)
        if streams:
            self._execution.results[index] = dict(streams)
            if index in self._level.early:
                self._execution.release_early(index)

        async def put(key: str, item: Any) -> None:
            if key in streams:
                await pump.put(key, item)

        return put

    def _end_streams(self, index: int, error: str | None) -> None:
        for stream in (self._execution.results[index] or {}).values():
            if isinstance(stream, Stream) and not stream.is_ended:
                stream.on_deserted = None
                stream.end(error)
        if error is None:
            self._end_interface(index)

    def _end_interface(self, index: int) -> None:
        for (source, _), outputs in self._interface.items():
            if source == index:
                for output, _ in outputs:
                    self._feed.ended(-1, output)

    # --- small parts ------------------------------------------------------------------------------

    def _skip(self, index: int, fate: Fate) -> None:
        self.gatherer.fates[index] = fate
        self.gatherer.leave_streams(index)
        node = self._level.nodes[index]
        if node.number >= 0:
            now = time.perf_counter()
            self._feed.records.extend((node.number, now, now, State.SKIPPED, None, None, None))

    def _record(
        self, node: PlanNode, began: float, state: State, outputs: dict[str, Any], signature: bytes | None = None
    ) -> None:
        self._feed.records.extend((node.number, began, time.perf_counter(), state, outputs, signature, None))
