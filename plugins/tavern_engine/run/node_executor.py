"""Executes the nodes that need more than a call: interface nodes, streams, loops, nodes with state or a policy; and
handles failures. The order of execution is decided in `scheduler.py`."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from tavern_engine.cache.cache import copied
from tavern_engine.compile.plan import VALUE, Level, PlanNode, Role
from tavern_engine.run.attempts import run_attempt
from tavern_engine.run.event_batch import PARTIAL
from tavern_engine.run.inputs import InputResolver, Outcome
from tavern_engine.run.json_values import carried_outputs, error_form, large
from tavern_engine.run.loop_log import LoopLog
from tavern_engine.run.loops import Body, run_loop
from tavern_engine.run.node_table import State
from tavern_engine.run.scope import RUNNING_REMOTELY, Scope
from tavern_engine.run.selection import Selection
from tavern_engine.run.stream_writer import StreamOpener, StreamWriter
from tavern_engine.run.streams import ListStream, StreamBroken
from tavern_host.contracts.blobs import BINARY
from tavern_host.contracts.errors import DeadlineExceeded, ErrorInfo, OutputError, PluginFailure, describe
from tavern_host.contracts.nodes import NodeCall, NodeInstance, SlotDefinition
from tavern_host.contracts.workflows import NodePolicy
from tavern_workflows.api.dataflow import coerce, empty_value
from tavern_workflows.api.workflows import ERROR_OUTPUT

if TYPE_CHECKING:
    from tavern_engine.run.remote_nodes import RemoteNodes

_NO_POLICY = NodePolicy()


class Scheduling(Protocol):
    """What a node executor needs of its scheduler."""

    results: list[dict[str, Any] | None]
    error: ErrorInfo | None
    stopping: bool

    def open_streams(self, index: int, streams: dict[str, Any]) -> None:
        """Set the streams of a node as its results, and release their readers."""

    def report_completed(self) -> None:
        """Pass the completions so far on to the event batch."""

    def child(
        self, level: Level, written: list[dict[str, Any]], selection: Selection, scope: Scope, iteration: int
    ) -> Body:
        """Return the scheduler of a level within this one."""


class NodeExecutor:
    """The executor of one scheduler. `runs[i]` says whether node `i` runs at all; None: all do. In a loop it is one
    `iteration` of it."""

    def __init__(
        self,
        scheduler: Scheduling,
        level: Level,
        written: list[dict[str, Any]],
        signatures: list[bytes | None],
        runs: bytearray | None,
        scope: Scope,
        iteration: int | None,
    ) -> None:
        # The scheduler owns this; a cycle would wait for the garbage collector.
        self._scheduler: Scheduling = weakref.proxy(scheduler)
        self._level = level
        self._signatures = signatures
        self._runs = runs
        self._scope = scope
        self._events = scope.events
        self._iteration = iteration
        self.remote: RemoteNodes | None = None
        self._interface = scope.interface
        self.resolver = InputResolver(level, written, scheduler.results)
        self._streams = StreamOpener(level, runs, self.resolver.outcomes, scope.events.stream_messages, scope.interface)

    async def take(self, index: int, began: float) -> dict[str, Any] | None:
        """Execute a node and record its result; return its outputs, or None where it has none."""
        node = self._level.nodes[index]
        try:
            inputs, outcome = self.resolver.inputs(index, node)
        except Exception as error:
            self.resolver.leave_streams(index)
            return self.failed(index, began, error)
        if outcome is not Outcome.OK:
            self._skip(index, outcome)
            return None
        if node.role is Role.RELAY:
            return {VALUE: inputs[VALUE]} if VALUE in inputs else {}
        if self.remote is not None and index in self.remote.placed and await self.remote.add(index, inputs):
            return RUNNING_REMOTELY
        if node.role is Role.NODE or node.role is Role.LOOP:
            return await self._run(index, node, inputs, began)
        if node.role is Role.OUTPUT and self._interface:
            await asyncio.sleep(0)  # a stream may have brought very many items: others get their turn in between
            self._pass_on()
            await asyncio.sleep(0)
            self._publish_reused(node)
        if node.number >= 0:
            state = State.BYPASSED if node.role is Role.BYPASSED else State.DONE
            shown = {} if node.role is Role.OUTPUT else inputs
            self._record(node, began, state, shown)
        return inputs

    def record_remote(self, index: int, began: float, outputs: dict[str, Any], kept: dict[str, int]) -> None:
        """Record the outputs of a node that was run elsewhere; of those that were `kept` there, how large they are."""
        node, signature = self._level.nodes[index], self._signatures[index]
        if kept:
            outputs = outputs | {key: large(BINARY, size) for key, size in kept.items()}
            signature = PARTIAL
        self._record(node, began, State.DONE, outputs, signature)

    def unusual(self, index: int, began: float, result: Any) -> dict[str, Any] | None:
        """Return the outputs of a result that is no plain dict, or came after the run was stopped."""
        if self._scheduler.stopping:
            return None
        if isinstance(result, dict):
            node = self._level.nodes[index]
            try:
                outputs = carried_outputs(dict(result))
            except OutputError as error:
                return self.failed(index, began, error)
            self._record(node, began, State.DONE, outputs, self._signatures[index])
            return outputs
        message = f"it returned {type(result).__name__}, expected a dict with its outputs"
        return self.failed(index, began, PluginFailure(message))

    def failed(self, index: int, began: float, error: BaseException) -> dict[str, Any] | None:
        """Record that a node failed, and apply its policy; return its default outputs, if any."""
        if self._scheduler.stopping:
            return None
        node = self._level.nodes[index]
        outcomes = self.resolver.outcomes
        if _code(error) == StreamBroken.code and (outcome := self.resolver.broken(index)) is not None:
            self._skip(index, outcome)  # the failure is reported for the source
            return None
        info = error_form(_as_failure(error, node), node.plugin)
        if info.code == PluginFailure.code:
            place = f"run {self._scope.run_id}, node {node.id} ({node.type} of {node.plugin})"
            self._scope.log.warning("%s: %s", place, info.message, exc_info=error.__cause__ or error)
        policy = node.policy or _NO_POLICY
        outputs: dict[str, Any] | None = None
        self._taint(index)
        if policy.on_error == "fail":
            outcomes[index] = Outcome.FAILED
            if self._scheduler.error is None:
                about = {**info.details, "node": node.id}
                place = f"node {node.id} ({node.label})" if node.number >= 0 else node.label or node.id
                message = f"{place}: {info.message}"
                self._scheduler.error = info.model_copy(update={"message": message, "details": about})
        elif policy.on_error == "skip_branch":
            outcomes[index] = Outcome.DEAD
        elif policy.on_error == "route":
            outcomes[index] = Outcome.ROUTED
            outputs = {ERROR_OUTPUT: info.to_json()}
        else:
            outputs = {key: _default(policy, key, slot) for key, slot in node.outputs.items()}
        if node.number >= 0:
            ended = time.perf_counter()
            self._scheduler.report_completed()
            self._events.add(node.number, State.FAILED, outputs, began=began, ended=ended, error=info)
        return outputs

    # --- running ----------------------------------------------------------------------------------

    async def _run(self, index: int, node: PlanNode, inputs: dict[str, Any], began: float) -> dict[str, Any] | None:
        """Run a node, with the retries that its policy allows."""
        policy = node.policy or _NO_POLICY
        attempt, delay = 1, policy.retry_delay
        self._events.table.set_attempts(node.number, 1)  # the iteration before may have had more
        writer = self._streams.open(index, node)
        if writer is not None:
            self.resolver.streams[index] = writer.streams
            self._scheduler.open_streams(index, writer.streams)
        while True:
            try:
                fresh = _fresh_inputs(inputs) if policy.retry else inputs
                outputs = await self._limited(index, node, fresh, writer, attempt)
                if node.loop is None:
                    outputs = carried_outputs(outputs)
                await self._scope.blobs.keep(outputs)
            except GeneratorExit:
                raise
            except BaseException as error:  # a node that calls sys.exit must not end the host
                if self._scheduler.stopping:
                    if writer is not None:
                        self._streams.end(writer, "the run was stopped")
                    raise
                has_begun = (writer is not None and writer.has_begun) or self.resolver.has_read(index)
                if attempt <= policy.retry and not has_begun and _code(error) != StreamBroken.code:
                    attempt += 1
                    self.retried(node, attempt, delay, error)
                    await asyncio.sleep(delay)
                    delay *= 2
                    continue
                return await self._broken_off(index, node, writer, began, error)
            self.resolver.leave_streams(index)
            return self._completed(index, node, outputs, writer, began)

    def retried(self, node: PlanNode, attempt: int, delay: float, error: BaseException) -> None:
        """Record that a node failed and is retried."""
        self._events.table.set_attempts(node.number, attempt)
        place, again = f"run {self._scope.run_id}, node {node.id}", f"attempt {attempt} comes in {delay:g} s"
        self._scope.log.warning("%s: %s; %s", place, error_form(error).message, again)

    def _completed(
        self, index: int, node: PlanNode, outputs: dict[str, Any], writer: StreamWriter | None, began: float
    ) -> dict[str, Any] | None:
        """Record the outputs of a node, and return them."""
        if self._scheduler.stopping:
            return None
        if self.resolver.broken(index) is not None:  # it completed without the rest of a stream
            self._taint(index)
        signature = self._signatures[index]
        state = State.BYPASSED if node.loop is not None and node.loop.is_bypassed else State.DONE
        if writer is None:
            self._record(node, began, state, outputs, signature)
            return outputs
        self._streams.end(writer)
        if node.role is Role.LOOP:  # its outputs have all items
            self._record(node, began, state, outputs, signature)
        else:
            self._record(node, began, State.DONE, outputs | writer.outputs(), signature if writer.is_whole else PARTIAL)
        return {**outputs, **writer.batch, **writer.streams}

    async def _broken_off(
        self, index: int, node: PlanNode, writer: StreamWriter | None, began: float, error: BaseException
    ) -> dict[str, Any] | None:
        """Record that a node failed, and end its streams; return its default outputs, if any."""
        self.resolver.leave_streams(index)
        policy = node.policy or _NO_POLICY
        is_own = _code(error) != StreamBroken.code or self.resolver.broken(index) is None
        if is_own and policy.on_error == "default" and writer is not None and not writer.has_begun:
            self._taint(index)
            for key in writer.streams:
                value = _default(policy, key, node.outputs[key])
                for item in value if isinstance(value, list) else [value]:
                    await writer.put(key, item)
            self._streams.end(writer)
            writer = None
        outputs = self.failed(index, began, error)  # only now: while it waits for its readers it runs
        if writer is not None:
            self._streams.end(writer, error_form(error).message)
        return outputs

    async def _limited(
        self, index: int, node: PlanNode, inputs: dict[str, Any], writer: StreamWriter | None, number: int
    ) -> dict[str, Any]:
        """Make one attempt, by its number, within the limits of processes and time."""
        if node.node_type is not None and node.node_type.definition.traits.placement == "process":
            async with self._scope.processes.slot():
                return await self._timed(index, node, inputs, writer, number)
        return await self._timed(index, node, inputs, writer, number)

    async def _timed(
        self, index: int, node: PlanNode, inputs: dict[str, Any], writer: StreamWriter | None, number: int
    ) -> dict[str, Any]:
        policy = node.policy
        timeout = policy.timeout if policy is not None else None
        if policy is None or (timeout is None and not policy.retry):
            return await self._attempt(index, node, inputs, writer, number)
        if writer is None and node.role is Role.NODE:
            coroutine = self._attempt(index, node, inputs, writer, number)
            return await run_attempt(coroutine, timeout, lambda: self._abandoned(node))
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._attempt(index, node, inputs, writer, number)
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded(f"it did not end within {timeout:g} s") from None

    def _abandoned(self, node: PlanNode) -> None:
        """A node ignores its timeout: nothing of it is used any more."""
        place = f"run {self._scope.run_id}, node {node.id}"
        self._scope.log.warning("%s ignores that its time is over and may still be running", place)
        self._scope.instances.pop(node.number, None)

    async def _attempt(
        self, index: int, node: PlanNode, inputs: dict[str, Any], writer: StreamWriter | None, number: int
    ) -> dict[str, Any]:
        if node.loop is not None:

            async def put(key: str, item: Any) -> None:
                if writer is not None and key in writer.streams:
                    await writer.put(key, item)

            self._pass_on()  # what feeds nodes inside is done before they are
            is_outermost = self._iteration is None
            log = LoopLog(self._events, node, self._signatures[index], is_resumable=is_outermost)
            before = self._scope.loops.get(node.id) if is_outermost and number == 1 else None
            return await run_loop(
                node.loop,
                inputs,
                self._scope,
                self._scheduler.child,
                put,
                log=log,
                tainted=lambda: self._taint(index),
                before=before,
            )
        instance = node.instance or self._instance(node)
        assert node.node_type is not None
        call = report = None
        if node.node_type.definition.traits.wants_call:
            scope = self._scope
            call = NodeCall(run_id=scope.run_id, node_id=node.id, call=scope.call, iteration=self._iteration)
            report = scope.events.reports.of(node.number)
        if writer is not None:
            if instance.items is not None and len(writer.streams) == 1:
                await writer.write_items(instance.items(inputs, call, report))
            else:
                await writer.write_parts(instance.stream(inputs, call, report))
            return {}
        outputs: object = await instance.run(inputs, call, report)
        if not isinstance(outputs, dict):
            raise PluginFailure(f"it returned {type(outputs).__name__}, expected a dict with its outputs")
        return outputs

    def _instance(self, node: PlanNode) -> NodeInstance:
        """Return the instance of a node that has state, or could not be opened at compile time."""
        instance = self._scope.instances.get(node.number)
        if instance is None:
            assert node.kind is not None
            instance = self._scope.instances[node.number] = node.kind.runner.open(node.config)
        return instance

    # --- small parts ------------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """Publish the completions so far."""
        self._scheduler.report_completed()
        self._events.flush()

    def _publish_reused(self, node: PlanNode) -> None:
        """Publish interface streams that are complete already: those of an earlier run, and lists."""
        results = self._scheduler.results
        for item in node.inputs:
            for edge in item.edges:
                value = (results[edge.source] or {}).get(edge.key) if edge.collects else None
                if isinstance(value, list):
                    self._events.stream_messages.whole(
                        item.key, value if edge.convert is None else map(edge.convert, value)
                    )

    def _taint(self, index: int) -> None:
        """Invalidate the signatures of a node and all that follow it: their outputs are not reused."""
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

    def _skip(self, index: int, outcome: Outcome) -> None:
        self.resolver.outcomes[index] = outcome
        self.resolver.leave_streams(index)
        node = self._level.nodes[index]
        if node.number >= 0:
            self._scheduler.report_completed()
            self._events.add(node.number, State.SKIPPED)

    def _record(
        self, node: PlanNode, began: float, state: State, outputs: dict[str, Any], signature: bytes | None = None
    ) -> None:
        ended = time.perf_counter()
        self._scheduler.report_completed()
        self._events.add(node.number, state, self._events.taken(outputs), began=began, ended=ended, signature=signature)


def _fresh_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs for a retry; lists that are read as streams start over."""
    return {key: value.restarted() if isinstance(value, ListStream) else copied(value) for key, value in inputs.items()}


def _default(policy: NodePolicy, key: str, slot: SlotDefinition) -> Any:
    """Return the default of an output of a failed node."""
    if key not in policy.defaults:
        return [] if slot.is_stream else empty_value(slot.data_flow_type)
    value = copied(policy.defaults[key])
    try:
        return value if value is None or slot.is_stream else coerce(slot, value)
    except ValueError:  # the check of the workflow has warned of it
        return value


def _as_failure(error: BaseException, node: PlanNode) -> BaseException:
    """Return an error as a failure of the node, also one that would end a task or the program."""
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
