"""Schedules one level of a plan: in topological order by in-degrees, with a ready queue and few tasks.

A task per node would cost more than most nodes do. Workers drain the ready queue and await each node natively; a node
that suspends stays in the task that began it, so that `asyncio.timeout`, `TaskGroup` and cancellation inside of it
work, and blocks that worker alone. A worker that begins a node arms one callback of the event loop: if that fires, a
worker is suspended (or has yielded), so the events so far are passed on, and while nodes are ready 4, 16, 64 … further
workers are started.

What a node needs beyond calling it (streams, loops, policies, interface) is in `node_executor.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tavern_engine.compile.node_kinds import Invocation
from tavern_engine.compile.plan import Level
from tavern_engine.run.event_batch import Completions
from tavern_engine.run.json_values import carried_outputs
from tavern_engine.run.node_executor import NodeExecutor
from tavern_engine.run.scope import RUNNING_REMOTELY, Scope
from tavern_engine.run.selection import Selection
from tavern_host.contracts.errors import ErrorInfo, OutputError
from tavern_host.contracts.wire import LIMIT

if TYPE_CHECKING:
    from tavern_engine.run.remote_nodes import RemoteNodes

SLICE = 0.001
"""Seconds of a worker's time slice, after which it yields to the event loop. Outputs of so short a time are passed on
while they are in the processor's caches: with 3 ms, a node of a large run costs 10 % more."""

GRACE = 1.0
"""Seconds that a cancelled node has to end; after that the run no longer waits for it."""

_NUMBERS = frozenset((int, bool, type(None)))
"""Types whose values are shown and cached as they are."""
_KNOWN = _NUMBERS | {str, float, bytes, dict, list}
"""Types of results that are not awaitable."""


def _may_be_awaited(result: Any) -> bool:
    return result.__class__ not in _KNOWN and hasattr(result, "__await__")


class Worker:
    """A task that executes nodes, one after another. `index` is the current one, -1 between two."""

    __slots__ = ("index", "is_fresh", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.index = -1
        self.is_fresh = False


class Scheduler:
    """One pass over a level; made and run on one event loop. `written[i]` are the values of node `i`.

    `results[i]` are the outputs of node `i`, once it has some; a stream as such. `error` is the first failure of a node
    whose policy fails the run.
    """

    def __init__(
        self,
        level: Level,
        written: list[dict[str, Any]],
        signatures: list[bytes | None] | None,
        selection: Selection,
        scope: Scope,
        *,
        iteration: int | None = None,
    ) -> None:
        self._level = level
        self._written = written
        self._signatures: list[bytes | None] = list(signatures) if signatures else [None] * len(level.nodes)
        self._in_degree = selection.waiting_for
        self._remaining = selection.count
        self._ready: deque[int] = deque(selection.ready)
        self.scope = scope
        self._events = scope.events
        self._completed = Completions()
        self._opened: set[int] = set()
        self._is_top = iteration is None
        self.error: ErrorInfo | None = None
        self.results: list[dict[str, Any] | None] = [None] * len(level.nodes)
        for index, outputs in selection.known.items():
            self.results[index] = outputs
        self.executor = NodeExecutor(self, level, written, self._signatures, selection.runs, scope, iteration)
        self._invocations = level.invocations
        self._remote: RemoteNodes | None = None
        if scope.cluster is not None:
            from tavern_engine.run.remote_nodes import RemoteNodes

            remote = RemoteNodes(self, level, written, self._in_degree, scope.cluster)
            if remote.placed:
                self._remote = self.executor.remote = remote
                self._invocations = [None if i in remote.placed else how for i, how in enumerate(level.invocations)]
        self._workers: dict[asyncio.Task[Any], Worker] = {}
        self._fresh: list[Worker] = []
        self._armed: asyncio.Handle | None = None
        self._burst = 1
        self._yielding = 0
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._finished: asyncio.Future[None] = self._loop.create_future()

    @property
    def stragglers(self) -> int:
        """How many nodes still run; after `run`, those that ignored their cancellation."""
        return len(self._busy())

    async def run(self) -> None:
        """Run all nodes, or until `stop`; cancelling stops too."""
        try:
            if self._remaining and not self.stopping:
                self._start(1)
                await self._finished
        finally:
            self.stop()
            if self._remote is not None:
                await self._remote.close(self.scope.call)
            if busy := self._busy():
                await asyncio.wait(busy, timeout=GRACE)
                if not self._is_top and self.stragglers:  # the owner of the top level says so itself
                    what = "a node in a loop ignores being cancelled and may still be running"
                    self.scope.log.warning("run %s: %s", self.scope.run_id, what)
            self.report_completed()
            if self._is_top:
                self._events.flush()

    def stop(self) -> None:
        """Cancel the running nodes at once, and begin no others."""
        if self.stopping:
            return
        self.stopping = True
        if self._armed is not None:
            self._armed.cancel()
        for worker in self._workers:
            worker.cancel()
        if self._remote is not None:
            self._remote.stop()
        if not self._finished.done():
            self._finished.set_result(None)

    # --- workers ----------------------------------------------------------------------------------

    def _busy(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are executing a node; the others end by themselves."""
        return [task for task, worker in self._workers.items() if worker.index >= 0]

    def _start(self, count: int) -> None:
        for _ in range(count):
            task = self._loop.create_task(self._work(), context=self._context.copy())
            self._workers[task] = Worker(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._workers[task]
        try:
            error = task.exception()
        except asyncio.CancelledError:  # taken from the task, since it has the frames that hold the task
            error = None
        if self._finished.done():
            return
        if task.cancelled():  # by something that a node left behind, between two nodes
            self._start(1 if self._ready else 0)
        elif error is not None:
            self.fail(error)

    async def _work(self) -> None:
        """Execute nodes in time slices, until the ready queue is empty."""
        task = asyncio.current_task()
        assert task is not None
        worker = self._workers[task]
        clean = copy_context()
        while self._ready:
            is_clean = await self._execute_slice(worker, clean, perf_counter() + SLICE)
            if self.stopping:
                return
            worker.index = -1
            if not is_clean:  # the next node must not see what this one did to its task
                self._start(1 if self._ready else 0)
                break
            if self._ready:
                await self._yield_to_loop()
                if self.stopping:
                    return
        self.proceed()

    async def _execute_slice(self, worker: Worker, clean: Context, slice_end: float) -> bool:
        """Execute nodes for a time slice; return False where one changed the context of its task, or cancelled it.

        The cost per node is spent here: all that it needs is local, and what is rare is called.
        """
        level, ready, in_degree, results = self._level, self._ready, self._in_degree, self.results
        invocations, sources, followers, early = self._invocations, level.sources, level.followers, level.early
        numbers, own, written, signatures = level.numbers, level.written, self._written, self._signatures
        completed, cancelling, began = self._completed.rows, worker.task.cancelling, perf_counter()
        while ready and began < slice_end:
            worker.index = index = ready.popleft()
            if not worker.is_fresh:
                self._mark_fresh(worker)
            arguments: Any = None
            if (invocation := invocations[index]) is not None:
                joins, _, function, output, is_async, shared_key = invocation
                values = written[index]
                if shared_key is not None and values is own[index]:
                    try:
                        arguments = [] if joins else values.values()
                        if joins:
                            for source in sources[index]:
                                arguments.append(results[source][shared_key])  # type: ignore[index]  # it is caught
                            if values:
                                arguments += values.values()
                    except (KeyError, TypeError):
                        arguments = None  # a node before it gave no value
            if arguments is None:
                outputs = await self._take(index, began)
            else:
                try:
                    result = function(*arguments)  # type: ignore[misc]  # there is one where arguments are in order
                    if is_async or (result.__class__ not in _KNOWN and hasattr(result, "__await__")):
                        result = await result
                    outputs = {output: result}
                    if result.__class__ is bytes:
                        result = outputs[output] = await self.scope.blobs.kept(result)
                except BaseException as error:  # a node that calls sys.exit must not end the host
                    outputs, arguments = self._failed(index, began, error), None
            ended = perf_counter()
            if self.stopping:
                return True
            if arguments is not None:
                if result.__class__ in _NUMBERS and (result is None or -LIMIT <= result < LIMIT):
                    completed += (numbers[index], began, ended, outputs, signatures[index])
                else:
                    outputs = self._complete(index, began, ended, outputs)
            began = ended
            if outputs is RUNNING_REMOTELY:  # its outputs are set when its result comes
                continue
            results[index] = outputs
            for follower in followers[index]:
                in_degree[follower] = count = in_degree[follower] - 1
                if not count:
                    ready.append(follower)
            if index in early:
                self._release_early(index)
            self._remaining -= 1
            try:
                if cancelling() or copy_context() != clean:
                    return False
            except Exception:  # a value whose comparison fails is another value
                return False
        return True

    async def _take(self, index: int, began: float) -> dict[str, Any] | None:
        """Execute a node that takes its inputs by their names, or that needs more than a call; return its outputs."""
        invocation = self._invocations[index]
        inputs = None if invocation is None else self._inputs_by_name(index, invocation)
        if invocation is None or inputs is None:
            return await self.executor.take(index, began)
        try:
            if invocation.function is None:
                outputs = await invocation.call(inputs, None)
            else:
                result = invocation.function(**inputs)
                if invocation.is_async or _may_be_awaited(result):
                    result = await result
                outputs = {invocation.output: result}
            if outputs.__class__ is dict and bytes in map(type, outputs.values()):
                await self.scope.blobs.keep(outputs)
        except BaseException as error:
            return self._failed(index, began, error)
        if self.stopping or outputs.__class__ is not dict:
            return self.executor.unusual(index, began, outputs)
        return self._complete(index, began, perf_counter(), outputs)

    def _inputs_by_name(self, index: int, invocation: Invocation) -> dict[str, Any] | None:
        """Return the inputs of a node, or None where a node before it gave no value."""
        inputs = self._written[index].copy()
        try:
            for (key, handle), source in zip(invocation.joins, self._level.sources[index], strict=True):
                inputs[key] = self.results[source][handle]  # type: ignore[index]  # None is what is caught
        except (KeyError, TypeError):
            return None
        return inputs

    def _complete(self, index: int, began: float, ended: float, outputs: Any) -> dict[str, Any] | None:
        """Record the outputs of a node, a copy where a follower may change them; return them, or what stands in for
        outputs that cannot be carried."""
        try:
            carried = carried_outputs(outputs)
        except OutputError as error:
            return self._failed(index, began, error)
        row = (self._level.numbers[index], began, ended, self._events.taken(carried), self._signatures[index])
        self._completed.add_unchecked(row)
        return carried

    def _failed(self, index: int, began: float, error: BaseException) -> dict[str, Any] | None:
        """Return the outputs of a node that failed, if any. Raises the error where the run was stopped."""
        if self.stopping or isinstance(error, GeneratorExit):
            raise error
        return self.executor.failed(index, began, error)

    def make_ready(self, index: int) -> None:
        """Put a node into the ready queue; `proceed` is to be called when there are no more."""
        self._ready.append(index)

    def set_outputs(self, index: int, outputs: dict[str, Any] | None) -> None:
        """Set the outputs of a node that ran elsewhere, and release the nodes that wait for it; see `make_ready`."""
        self.results[index] = outputs
        for follower in self._level.followers[index]:
            self._in_degree[follower] -= 1
            if not self._in_degree[follower] and not (self._remote is not None and self._remote.holds(follower)):
                self._ready.append(follower)
        self._remaining -= 1

    def proceed(self) -> None:
        """Run the nodes that have become ready, or end."""
        self._arm()
        if not self._remaining and not self._finished.done():
            self._finished.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End with an error of the engine."""
        if not self._finished.done():
            self._finished.set_exception(error)

    def open_streams(self, index: int, streams: dict[str, Any]) -> None:
        """Set the streams of a node as its results, and release their readers."""
        self.results[index] = dict(streams)
        if index in self._level.early:
            self._release_early(index)

    def report_completed(self) -> None:
        """Pass the completions so far on to the event batch."""
        if self._completed.rows:
            self._events.add_completed(self._completed)

    def _release_early(self, index: int) -> None:
        """Decrement the in-degrees of those that read the streams of a node, when it begins; once."""
        if index in self._opened:
            return
        self._opened.add(index)
        in_degree = self._in_degree
        for follower in self._level.early[index]:
            in_degree[follower] -= 1
            if not in_degree[follower]:
                self._ready.append(follower)
        self._arm()

    def child(
        self, level: Level, written: list[dict[str, Any]], selection: Selection, scope: Scope, iteration: int
    ) -> Scheduler:
        """Return the scheduler of a level within this one: one iteration of a loop."""
        return Scheduler(level, written, None, selection, scope, iteration=iteration)

    def _arm(self) -> None:
        """Schedule the callback that starts other workers while the calling one is suspended."""
        if self._armed is None and not self.stopping:
            self._armed = self._loop.call_soon(self._paused)

    def _mark_fresh(self, worker: Worker) -> None:
        worker.is_fresh = True
        self._fresh.append(worker)
        self._arm()

    def _paused(self) -> None:
        """Called by the event loop: some workers are suspended, or have yielded."""
        self._armed = None
        fresh, self._fresh = self._fresh, []
        numbers, busy = self._level.numbers, []
        for worker in fresh:
            worker.is_fresh = False
            if worker.index >= 0 and numbers[worker.index] >= 0:
                busy.append(numbers[worker.index])
        try:
            if busy or self._remaining or self._is_top:  # a loop passes its quick iterations on together
                self.report_completed()
                self._events.flush()
            if busy:
                self._events.executing(busy)
        except Exception as error:  # else the run would never end
            self.fail(error)
            return
        if self.stopping or not self._ready:
            self._burst = 1
        elif not self._yielding:
            self._burst *= 4
            self._start(min(self._burst, len(self._ready)))
            self._arm()

    async def _yield_to_loop(self) -> None:
        """Let the event loop run once. No other worker is started for that."""
        self._yielding += 1
        try:
            await asyncio.sleep(0)
            await self._events.wait_for_journal()
        finally:
            self._yielding -= 1
