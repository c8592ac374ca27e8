"""Carries out one level of a plan: in the order of dependencies, with few tasks.

A task per node would cost more than most nodes do. Workers drain a list of what is ready and await each node
natively; a node that suspends stays in the task that began it, so that `asyncio.timeout`, `TaskGroup` and
cancellation inside of it are right, and holds up that worker alone. A worker that begins a node arms one callback of
the event loop: if that fires, somebody is suspended (or gives way), so what happened is passed on, and while
something is ready 4, 16, 64 … further workers are started.

What a node needs beyond calling it (streams, loops, policies, interface) is in `steps.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from typing import Any

from tavern_engine.cache.cache import owned
from tavern_engine.compile.plan import Level
from tavern_engine.run.gather import Gatherer
from tavern_engine.run.scope import Scope
from tavern_engine.run.selection import Selection
from tavern_engine.run.steps import Steps
from tavern_host.contracts.errors import ErrorInfo

SLICE = 0.001
"""Seconds that a worker goes on without letting the event loop do something else. What nodes give in so short a time
is passed on while it is in the processor's caches: with 3 ms, a node of a large run costs 10 % more."""

GRACE = 1.0
"""Seconds that a cancelled node has to end; after that the run no longer waits for it."""

_NUMBERS = frozenset((int, bool, type(None)))
"""What is shown and kept as it is."""
_KNOWN = _NUMBERS | {str, float, bytes, dict, list}
"""What a function returns that nobody needs to await."""


def _may_be_awaited(result: Any) -> bool:
    return result.__class__ not in _KNOWN and hasattr(result, "__await__")


class Worker:
    """A task that carries out nodes, one after another. `index` is the one it is at, -1 between two."""

    __slots__ = ("index", "is_fresh", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.index = -1
        self.is_fresh = False


class Execution:
    """One pass over a level; made and run on one event loop. `written[i]` are the values of node `i`.

    `results[i]` are the outputs of node `i`, once there are some; of a stream, the stream. `error` is the first
    failure of a node whose policy lets the whole fail with it.
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
        self._left = selection.waiting_for
        self._remaining = selection.count
        self._ready: deque[int] = deque(selection.ready)
        self._scope = scope
        self._feed = scope.feed
        self._is_top = iteration is None
        self.error: ErrorInfo | None = None
        self.results: list[dict[str, Any] | None] = [None] * len(level.nodes)
        for index, outputs in selection.known.items():
            self.results[index] = outputs
        self._steps = Steps(self, level, written, self._signatures, selection.runs, scope, iteration)
        self._workers: dict[asyncio.Task[Any], Worker] = {}
        self._fresh: list[Worker] = []
        self._armed: asyncio.Handle | None = None
        self._burst = 1
        self._giving_way = 0
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._finished: asyncio.Future[None] = self._loop.create_future()

    @property
    def stragglers(self) -> int:
        """How many nodes still run; after `run`, those that ignored their cancellation."""
        return len(self._busy())

    @property
    def gatherer(self) -> Gatherer:
        """What gathers values of this level."""
        return self._steps.gatherer

    async def run(self) -> None:
        """Carry everything out, or go on until `stop`; cancelling stops too."""
        try:
            if self._remaining and not self.stopping:
                self._start(1)
                await self._finished
        finally:
            self.stop()
            if busy := self._busy():
                await asyncio.wait(busy, timeout=GRACE)
                if not self._is_top and self.stragglers:  # of the top level its owner tells
                    what = "a node in a loop ignores being cancelled and may still be running"
                    self._scope.log.warning("run %s: %s", self._scope.run_id, what)
            if self._is_top:
                self._feed.flush()

    def stop(self) -> None:
        """Cancel whatever runs, at once; nothing further is begun."""
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
        """Return the tasks that are in the middle of a node; the others end by themselves."""
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
        if task.cancelled():  # by what a node left behind, between two nodes
            self._start(1 if self._ready else 0)
        elif (error := task.exception()) is not None:
            self._finished.set_exception(error)

    async def _work(self) -> None:
        """Carry out what is ready until nothing is. What each node costs is spent here: all that it needs is local."""
        task = asyncio.current_task()
        assert task is not None
        worker = self._workers[task]
        level, ready, left, results, written = self._level, self._ready, self._left, self.results, self._written
        simple, sources, followers, early = level.simple, level.sources, level.followers, level.early
        numbers, signatures, own = level.numbers, self._signatures, level.written
        take_next, add_ready, taken = ready.popleft, ready.append, self._feed.done
        done_numbers, done_began, done_ended = taken.numbers, taken.began, taken.ended
        done_outputs, done_signatures, closer = taken.outputs, taken.signatures, taken.closer
        clock, copy_context, cancelling = time.perf_counter, contextvars.copy_context, task.cancelling
        clean = copy_context()
        began = clock()
        slice_end = began + SLICE
        done = 0  # what this worker carried out and has not counted yet; counted when nothing is ready
        while ready:
            index = take_next()
            worker.index = index
            if not worker.is_fresh:
                self._freshen(worker)
            way = simple[index]
            arguments: Any
            outputs: dict[str, Any] | None
            if way is not None:
                joins, call, function, output, is_async, brought = way
                values = written[index]
                is_in_order = brought is not None and values is own[index]
                try:
                    if not is_in_order:
                        inputs = values.copy()
                        for (key, given), source in zip(joins, sources[index], strict=True):
                            inputs[key] = results[source][given]  # type: ignore[index]  # None is what is caught
                    elif joins:
                        arguments = []
                        for source in sources[index]:
                            arguments.append(results[source][brought])  # type: ignore[index]
                        if values:
                            arguments += values.values()
                    else:
                        arguments = values.values()
                except (KeyError, TypeError):
                    way = None  # something before it gave no value
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
                        outputs = self._steps.failed(index, began, error)
                        ended = clock()
                    else:
                        if self.stopping:
                            return
                        ended = clock()
                        if is_plain or outputs.__class__ is dict:
                            if is_plain:
                                done_outputs.append(outputs)
                            else:  # a node that is given them may change them
                                closer.append(len(done_numbers))
                                done_outputs.append(owned(outputs))
                            done_numbers.append(numbers[index])
                            done_began.append(began)
                            done_ended.append(ended)
                            done_signatures.append(signatures[index])
                        else:
                            outputs = self._steps.odd(index, began, outputs)
            if way is None:
                outputs = await self._steps.take(index, began)
                ended = clock()
                if self.stopping:
                    return
            results[index] = outputs
            for follower in followers[index]:
                count = left[follower] - 1
                left[follower] = count
                if not count:
                    add_ready(follower)
            if early and index in early:
                self.release_early(index)
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
            if is_dirty:  # what the node did to its task must not reach the next one
                self._start(1 if ready else 0)
                break
            began = ended
            if began >= slice_end:
                worker.index = -1
                await self._give_way()
                if self.stopping:
                    return
                began = clock()
                slice_end = began + SLICE
        worker.index = -1
        self._remaining -= done
        self.hold_up()  # what happened is passed on, also when nothing else does for long
        if not self._remaining and not self._finished.done():
            self._finished.set_result(None)

    def release_early(self, index: int) -> None:
        """Count a node as begun for those that read its streams; once."""
        if self._steps.was_opened(index):
            return
        left = self._left
        for follower in self._level.early[index]:
            left[follower] -= 1
            if not left[follower]:
                self._ready.append(follower)
        self.hold_up()

    def child(
        self, level: Level, written: list[dict[str, Any]], selection: Selection, scope: Scope, iteration: int
    ) -> Execution:
        """Return the execution of a level within this one: one iteration of a loop."""
        return Execution(level, written, None, selection, scope, iteration=iteration)

    def hold_up(self) -> None:
        """See to it that other workers go on while the one that calls this is suspended."""
        if self._armed is None and not self.stopping:
            self._armed = self._loop.call_soon(self._paused)

    def _freshen(self, worker: Worker) -> None:
        worker.is_fresh = True
        self._fresh.append(worker)
        if self._armed is None:
            self._armed = self._loop.call_soon(self._paused)

    def _paused(self) -> None:
        """The loop came to run this: some workers are suspended, or give way."""
        self._armed = None
        fresh, self._fresh = self._fresh, []
        numbers, busy = self._level.numbers, []
        for worker in fresh:
            worker.is_fresh = False
            if worker.index >= 0 and numbers[worker.index] >= 0:
                busy.append(numbers[worker.index])
        try:
            if busy:
                self._feed.executing(busy)
            if self._remaining or self._is_top:  # quick iterations of a loop are passed on together, by the loop
                self._feed.flush()
        except Exception as error:  # else the run would wait for ever
            if not self._finished.done():
                self._finished.set_exception(error)
            return
        if self.stopping or not self._ready:
            self._burst = 1
        elif not self._giving_way:
            self._burst *= 4
            self._start(min(self._burst, len(self._ready)))
            self.hold_up()

    async def _give_way(self) -> None:
        """Let the event loop run once. That this worker pauses is no reason to start others."""
        self._giving_way += 1
        try:
            await asyncio.sleep(0)
            if self._feed.journal is not None:
                await self._feed.keep_up()
        finally:
            self._giving_way -= 1
