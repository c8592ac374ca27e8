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
import contextvars
import time
from collections import deque
from typing import Any

from tavern_engine.cache.cache import owned
from tavern_engine.compile.plan import Level
from tavern_engine.run.event_batch import Completions
from tavern_engine.run.inputs import InputResolver
from tavern_engine.run.node_executor import NodeExecutor
from tavern_engine.run.scope import Scope
from tavern_engine.run.selection import Selection
from tavern_host.contracts.errors import ErrorInfo

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
        self._scope = scope
        self._events = scope.events
        self._completed = Completions()
        self._opened: set[int] = set()
        self._is_top = iteration is None
        self.error: ErrorInfo | None = None
        self.results: list[dict[str, Any] | None] = [None] * len(level.nodes)
        for index, outputs in selection.known.items():
            self.results[index] = outputs
        self._executor = NodeExecutor(self, level, written, self._signatures, selection.runs, scope, iteration)
        self._workers: dict[asyncio.Task[Any], Worker] = {}
        self._fresh: list[Worker] = []
        self._armed: asyncio.Handle | None = None
        self._burst = 1
        self._yielding = 0
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._finished: asyncio.Future[None] = self._loop.create_future()

    @property
    def stragglers(self) -> int:
        """How many nodes still run; after `run`, those that ignored their cancellation."""
        return len(self._busy())

    @property
    def resolver(self) -> InputResolver:
        """Resolves the inputs of this level."""
        return self._executor.resolver

    async def run(self) -> None:
        """Run all nodes, or until `stop`; cancelling stops too."""
        try:
            if self._remaining and not self.stopping:
                self._start(1)
                await self._finished
        finally:
            self.stop()
            if busy := self._busy():
                await asyncio.wait(busy, timeout=GRACE)
                if not self._is_top and self.stragglers:  # the owner of the top level says so itself
                    what = "a node in a loop ignores being cancelled and may still be running"
                    self._scope.log.warning("run %s: %s", self._scope.run_id, what)
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
        if self._finished.done():
            if not task.cancelled():
                task.exception()
            return
        if task.cancelled():  # by something that a node left behind, between two nodes
            self._start(1 if self._ready else 0)
        elif (error := task.exception()) is not None:
            self._finished.set_exception(error)

    async def _work(self) -> None:
        """Execute nodes until the ready queue is empty. The cost per node is spent here: all that it needs is local."""
        task = asyncio.current_task()
        assert task is not None
        worker = self._workers[task]
        level, ready, in_degree, results, written = (
            self._level,
            self._ready,
            self._in_degree,
            self.results,
            self._written,
        )
        invocations, sources, followers, early = level.invocations, level.sources, level.followers, level.early
        numbers, signatures, own = level.numbers, self._signatures, level.written
        take_next, add_ready, completed = ready.popleft, ready.append, self._completed
        done_numbers, done_began, done_ended = completed.numbers, completed.began, completed.ended
        done_outputs, done_signatures, unchecked = completed.outputs, completed.signatures, completed.unchecked
        clock, copy_context, cancelling = time.perf_counter, contextvars.copy_context, task.cancelling
        clean = copy_context()
        began = clock()
        slice_end = began + SLICE
        done = 0  # nodes executed and not yet counted; counted when the ready queue is empty
        while ready:
            index = take_next()
            worker.index = index
            if not worker.is_fresh:
                self._mark_fresh(worker)
            invocation = invocations[index]
            arguments: Any
            outputs: dict[str, Any] | None
            if invocation is not None:
                joins, call, function, output, is_async, shared_key = invocation
                values = written[index]
                is_in_order = shared_key is not None and values is own[index]
                try:
                    if not is_in_order:
                        inputs = values.copy()
                        for (key, given), source in zip(joins, sources[index], strict=True):
                            inputs[key] = results[source][given]  # type: ignore[index]  # None is what is caught
                    elif joins:
                        arguments = []
                        for source in sources[index]:
                            arguments.append(results[source][shared_key])  # type: ignore[index]
                        if values:
                            arguments += values.values()
                    else:
                        arguments = values.values()
                except (KeyError, TypeError):
                    invocation = None  # a node before it gave no value
                else:
                    try:
                        if function is None:
                            outputs = await call(inputs, None)
                            is_plain = outputs.__class__ is dict and _NUMBERS.issuperset(map(type, outputs.values()))
                        else:
                            result = function(*arguments) if is_in_order else function(**inputs)
                            is_plain = not is_async and result.__class__ in _NUMBERS
                            if not is_plain and (is_async or _may_be_awaited(result)):
                                result = await result
                                is_plain = result.__class__ in _NUMBERS
                            outputs = {output: result}
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # a node that calls sys.exit must not end the host
                        if self.stopping:
                            raise
                        outputs = self._executor.failed(index, began, error)
                        ended = clock()
                    else:
                        if self.stopping:
                            return
                        ended = clock()
                        if is_plain or outputs.__class__ is dict:
                            if is_plain:
                                done_outputs.append(outputs)
                            else:  # a follower may change them
                                unchecked.append(len(done_numbers))
                                done_outputs.append(owned(outputs))
                            done_numbers.append(numbers[index])
                            done_began.append(began)
                            done_ended.append(ended)
                            done_signatures.append(signatures[index])
                        else:
                            outputs = self._executor.unusual(index, began, outputs)
            if invocation is None:
                outputs = await self._executor.take(index, began)
                ended = clock()
                if self.stopping:
                    return
            results[index] = outputs
            for follower in followers[index]:
                count = in_degree[follower] - 1
                in_degree[follower] = count
                if not count:
                    add_ready(follower)
            if early and index in early:
                self._release_early(index)
            done += 1
            if not ready:
                self._remaining -= done
                done = 0
                if not self._remaining:
                    break
            try:
                is_dirty = cancelling() or copy_context() != clean
            except Exception:  # a value whose comparison fails is another value
                is_dirty = True
            if is_dirty:  # the next node must not see what this one did to its task
                self._start(1 if ready else 0)
                break
            began = ended
            if began >= slice_end:
                worker.index = -1
                await self._yield_to_loop()
                if self.stopping:
                    return
                began = clock()
                slice_end = began + SLICE
        worker.index = -1
        self._remaining -= done
        self._arm()  # so that events are passed on also when no other worker does
        if not self._remaining and not self._finished.done():
            self._finished.set_result(None)

    def open_streams(self, index: int, streams: dict[str, Any]) -> None:
        """Set the streams of a node as its results, and release their readers."""
        self.results[index] = dict(streams)
        if index in self._level.early:
            self._release_early(index)

    def report_completed(self) -> None:
        """Pass the completions so far on to the event batch."""
        if self._completed.numbers:
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
        if self._armed is None:
            self._armed = self._loop.call_soon(self._paused)

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
            if busy:
                self._events.executing(busy)
            if self._remaining or self._is_top:  # a loop passes its quick iterations on together
                self.report_completed()
                self._events.flush()
        except Exception as error:  # else the run would never end
            if not self._finished.done():
                self._finished.set_exception(error)
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
