"""Sends the nodes of one level that are placed on a cluster there, with all that come after them, and takes their
results in order.

A node goes when it is ready; with it go those that wait for nothing but nodes that are away, so that a whole part of
a graph is sent at once and values between its nodes need not come to the host. What a node's result means is decided
here as for any other: retries, failures, what follows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Protocol

from tavern_engine.api.clusters import Handle, RemoteNode, RemoteResult
from tavern_engine.cache.cache import copied
from tavern_engine.compile.plan import Input, Level, PlanNode
from tavern_engine.run.remote_descriptions import Descriptions, RemoteValue, may_go, may_repeat
from tavern_engine.run.scope import Cluster, Scope
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext, new_id
from tavern_host.contracts.errors import TavernError, error_of
from tavern_host.contracts.wire import wire_value
from tavern_host.storage.values import decode_loose

AT_ONCE = 200
"""How many nodes are sent in one step of the event loop."""


class Executing(Protocol):
    """What is needed of the node executor."""

    def failed(self, index: int, began: float, error: BaseException) -> dict[str, Any] | None:
        """Record that a node failed, and apply its policy; return its default outputs, if any."""

    def retried(self, node: PlanNode, attempt: int, delay: float, error: BaseException) -> None:
        """Record that a node failed and is retried."""

    def record_remote(self, index: int, began: float, outputs: dict[str, Any], kept: dict[str, int]) -> None:
        """Record the outputs of a node that was run elsewhere."""


class Scheduling(Protocol):
    """What is needed of the scheduler of the level."""

    results: list[dict[str, Any] | None]
    stopping: bool

    @property
    def scope(self) -> Scope:
        """The run."""

    @property
    def executor(self) -> Executing:
        """What records and applies policies."""

    def report_completed(self) -> None:
        """Pass the completions so far on to the event batch."""

    def make_ready(self, index: int) -> None:
        """Put a node into the ready queue."""

    def set_outputs(self, index: int, outputs: dict[str, Any] | None) -> None:
        """Set the outputs of a node, and release the nodes that wait for it."""

    def proceed(self) -> None:
        """Run the nodes that have become ready, or end."""

    def fail(self, error: BaseException) -> None:
        """End with an error of the engine."""


class RemoteNodes:
    """The nodes of one level that are sent. `in_degree` is the scheduler's. Made and used on one event loop."""

    def __init__(
        self, scheduler: Scheduling, level: Level, written: list[dict[str, Any]], in_degree: list[int], cluster: Cluster
    ) -> None:
        self._scheduler = scheduler
        self._level = level
        self._written = written
        self._in_degree = in_degree
        self._service = cluster.service
        self._pass_id = new_id("pass")
        everything = range(len(level.nodes)) if cluster.takes_all else level.placed
        self.placed = {index for index in everything if may_go(level.nodes[index])}
        self._described = Descriptions(level, self.placed, self._pass_id)
        self._away: set[int] = set()
        self._unmet: dict[int, int] = {}
        """Of those that follow nodes that are away, for how many such they wait, counted as in-degrees are."""
        self._arrived: dict[int, RemoteResult] = {}
        self._joining: deque[int] = deque()
        self._ready: list[RemoteNode] = []
        self._tries: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: asyncio.Task[None] | None = None

    def holds(self, index: int) -> bool:
        """Return whether a node is away, so that it must not be run when it is ready."""
        return index in self._away

    async def add(self, index: int, inputs: dict[str, Any]) -> bool:
        """Send a ready node with these inputs; False where it has to run here, since they have no codec."""
        node = self._described.node(index, inputs)
        if node is None:
            return False
        if blobs := [blob for value in inputs.values() for blob in _blobs(value)]:
            contents = {blob.hash: await self._scheduler.scope.blobs.content(blob) for blob in blobs}
            node = node.model_copy(update={"blobs": contents})
        self._away.add(index)
        self._ready.append(node)
        if self._sending is None:
            self._sending = self._spawn(self._send())
        return True

    def stop(self) -> None:
        """Cancel what is away."""
        for task in self._tasks:
            task.cancel()

    async def close(self, call: CallContext) -> None:
        """Wait until what was cancelled has ended; give up the values that are still there."""
        self.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._tries:
            await self._service.release(self._pass_id, call=call)

    # --- sending ----------------------------------------------------------------------------------

    async def _send(self) -> None:
        await asyncio.sleep(0)  # those that become ready in the same step go together
        try:
            while self._ready or self._joining:
                nodes, self._ready = self._ready, []
                for node in nodes:
                    self._has_gone(node.number)
                while self._joining and len(nodes) < AT_ONCE:
                    nodes += self._joined(self._joining.popleft())
                for start in range(0, len(nodes), AT_ONCE):
                    self._spawn(self._run(nodes[start : start + AT_ONCE]))
                    await asyncio.sleep(0)
        finally:
            self._sending = None

    def _joined(self, index: int) -> list[RemoteNode]:
        """Return a node that goes before it is ready; none where it has to wait after all."""
        inputs = self._inputs_in_advance(index)
        node = self._described.node(index, inputs) if inputs is not None else None
        if node is None:
            self._away.discard(index)
            if not self._in_degree[index]:
                self._scheduler.make_ready(index)
            return []
        self._has_gone(index)
        return [node]

    def _has_gone(self, index: int) -> None:
        """Have those join that wait for nothing any more but nodes that are away."""
        for follower in self._level.followers[index]:
            count = self._unmet[follower] = self._unmet.get(follower, 0) + 1
            if count == self._in_degree[follower] and follower in self.placed and follower not in self._away:
                self._away.add(follower)
                self._joining.append(follower)

    def _has_left(self, index: int) -> None:
        self._away.discard(index)
        for follower in self._level.followers[index]:
            self._unmet[follower] -= 1

    def _inputs_in_advance(self, index: int) -> dict[str, Any] | None:
        """Return the inputs of a node, a `Handle` for each value that is not there yet; None where it must wait."""
        inputs: dict[str, Any] = copied(self._written[index])
        for item in self._level.nodes[index].inputs:
            values = [self._value_in_advance(item, place) for place in range(len(item.edges))]
            if None in values:
                return None
            if values:
                inputs[item.key] = [value for (value,) in values] if item.slot.multi else values[0][0]  # type: ignore[index, misc]
            elif item.key not in inputs:
                if item.slot.required or not item.slot.multi:
                    return None
                inputs[item.key] = []
        return inputs

    def _value_in_advance(self, item: Input, place: int) -> tuple[Any] | None:
        edge = item.edges[place]
        outputs = self._scheduler.results[edge.source]
        if outputs is not None:
            if edge.key not in outputs:
                return None
            value = outputs[edge.key]
            if _blobs(value):  # its content is read when the node is ready
                return None
            try:
                return (value if edge.convert is None else edge.convert(value),)
            except (OverflowError, ValueError):  # it is reported when the node is ready
                return None
        source = self._level.nodes[edge.source]
        if edge.is_branch or edge.collects or edge.source not in self._away or not may_repeat(source):
            return None
        source_slot = source.outputs.get(edge.key) if edge.convert is not None else None
        if edge.convert is not None and source_slot is None:
            return None
        at = place if item.slot.multi else None
        wanted = item.slot if source_slot is not None else None
        return (Handle(input=item.key, place=at, node=edge.source, key=edge.key, given=source_slot, wanted=wanted),)

    # --- results ----------------------------------------------------------------------------------

    async def _run(self, nodes: list[RemoteNode]) -> None:
        """Run a group to its end; whatever its provider does, each node of it ends."""
        left = {node.number for node in nodes}
        self._executing(left)
        table = self._scheduler.scope.events.table
        for node in nodes:
            table.set_attempts(self._level.numbers[node.number], self._tries.setdefault(node.number, 1))
        error: BaseException = TavernError("the cluster gave no result")
        batches = self._service.run(self._described.group(nodes), call=self._scheduler.scope.call)
        while True:
            try:
                results = await anext(batches, None)
            except (Exception, asyncio.CancelledError) as failure:
                if self._scheduler.stopping:
                    raise
                error = failure if isinstance(failure, Exception) else TavernError("the cluster cancelled it")
                break
            if results is None:
                break
            for result in (each for each in results if each.number in left):
                left.discard(result.number)
                await self._take(result)
            self._scheduler.proceed()
        for number in sorted(left, key=self._level.ranks.__getitem__):
            await self._take(RemoteResult(number=number), error)
        self._scheduler.proceed()

    async def _take(self, result: RemoteResult, error: BaseException | None = None) -> None:
        """Take a result; one that came before what it follows waits for that."""
        index = result.number
        if result.is_undone or result.is_misplaced:
            if result.is_misplaced:
                self.placed.discard(index)
            self._has_left(index)
            if not self._in_degree[index]:
                self._scheduler.make_ready(index)
            return
        if self._in_degree[index]:
            if error is None:
                self._arrived[index] = result
            else:  # what it follows has not ended either
                self._has_left(index)
            return
        waiting = deque([(result, error)])
        while waiting:
            result, error = waiting.popleft()
            await self._record(result, error)
            for follower in self._level.followers[result.number]:
                if not self._in_degree[follower] and follower in self._arrived:
                    waiting.append((self._arrived.pop(follower), None))

    async def _record(self, result: RemoteResult, error: BaseException | None) -> None:
        """Record the end of a node, and release the nodes that wait for it."""
        index, scheduler = result.number, self._scheduler
        if scheduler.stopping:
            return
        ended = perf_counter()
        began = ended - (result.work.seconds if result.work is not None else 0.0)
        node = self._level.nodes[index]
        if result.work is not None:
            scheduler.scope.events.table.remote[node.number] = result.work
        failure = error_of(result.error) if result.error is not None else error
        if failure is not None and result.trace:
            failure.add_note(result.trace)
        if failure is not None and self._retried(index, node, failure):
            return
        if failure is not None:
            outputs = scheduler.executor.failed(index, began, failure)
        else:
            encoded, outputs = result.outputs.encoded, dict[str, Any](result.outputs.binary)
            outputs |= {key: wire_value(decode_loose(value, [])) for key, value in encoded.items()}
            await scheduler.scope.blobs.keep(outputs)
            scheduler.executor.record_remote(index, began, outputs, result.kept)
            outputs |= {key: RemoteValue(index, key) for key in result.kept}
        self._has_left(index)
        scheduler.set_outputs(index, outputs)
        self._executing(follower for follower in self._level.followers[index] if follower in self._away)

    def _retried(self, index: int, node: PlanNode, error: BaseException) -> bool:
        """Send a node once more that failed, where its policy says so."""
        policy, tries = node.policy, self._tries[index]
        if policy is None or tries > policy.retry:
            return False
        delay = policy.retry_delay * 2 ** (tries - 1)
        self._tries[index] = tries + 1
        self._scheduler.executor.retried(node, tries + 1, delay, error)
        self._has_left(index)
        self._spawn(self._retry(index, delay))
        return True

    async def _retry(self, index: int, delay: float) -> None:
        await asyncio.sleep(delay)
        self._scheduler.make_ready(index)
        self._scheduler.proceed()

    def _executing(self, indices: Iterable[int]) -> None:
        """Publish that nodes run which wait for nothing."""
        numbers = [self._level.numbers[index] for index in sorted(set(indices)) if not self._in_degree[index]]
        if numbers:
            self._scheduler.report_completed()
            self._scheduler.scope.events.flush()
            self._scheduler.scope.events.executing(numbers)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._scheduler.fail(error)


def _blobs(value: Any) -> list[Blob]:
    return [each for each in (value if isinstance(value, list) else [value]) if type(each) is Blob]
