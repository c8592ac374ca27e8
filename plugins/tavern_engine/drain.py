"""Carries out the parts of a graph in order of their dependencies, with few tasks: workers drain a list of
what is ready, and more of them are started only when one is held up. Knows nothing of nodes or values.

A task per node would cost more than most nodes do. A worker awaits each part natively; a part that
suspends stays in the task that began it, so that `asyncio.timeout`, `TaskGroup` and cancellation inside
of it are right, and holds up that worker alone. Before a worker begins a part while others are ready, it
arms one `call_soon` callback: if that fires and there is still something ready, the workers must be
suspended, and 2, 4, 8 … further ones are started.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

SLICE = 0.005
"""Seconds that a worker goes on without letting the event loop do something else."""

GRACE = 1.0
"""Seconds that a cancelled part has to end; after that the drain no longer waits for it."""


class Drain:
    """One pass over a graph, which must have no cycle; made and run on one event loop.

    `waiting_for[i]` is how many parts come before part `i`, `followers[i]` are those that wait for it.
    `execute(i)` carries a part out and returns whether it succeeded; it must not raise but for
    `CancelledError` after `stop`. `skip(i)` is told of each part that will not run since one before it
    did not succeed.
    """

    def __init__(
        self,
        waiting_for: Sequence[int],
        followers: Sequence[Sequence[int]],
        execute: Callable[[int], Awaitable[bool]],
        skip: Callable[[int], None],
    ) -> None:
        self._waiting_for = list(waiting_for)
        self._followers = followers
        self._execute = execute
        self._skip = skip
        self._ready = deque(i for i, count in enumerate(waiting_for) if count == 0)
        self._skipped = [False] * len(self._waiting_for)
        self._left = len(self._waiting_for)
        self._workers: set[asyncio.Task[None]] = set()
        self._armed: asyncio.Handle | None = None
        self._burst = 1
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._finished: asyncio.Future[None] = self._loop.create_future()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    @property
    def stragglers(self) -> frozenset[asyncio.Task[None]]:
        """The tasks that are still running; after `run`, those that ignored their cancellation."""
        return frozenset(self._workers)

    async def run(self) -> None:
        """Carry everything out, or go on until `stop`; cancelling stops too."""
        try:
            if self._left and not self._stopping:
                self._start(1)
                await self._finished
        finally:
            self.stop()
            if self._workers:
                await asyncio.wait(self._workers, timeout=GRACE)

    def stop(self) -> None:
        """Cancel whatever runs, at once; nothing further is begun."""
        if self._stopping:
            return
        self._stopping = True
        if self._armed is not None:
            self._armed.cancel()
        for worker in self._workers:
            worker.cancel()
        if not self._finished.done():
            self._finished.set_result(None)

    def _start(self, count: int) -> None:
        for _ in range(count):
            worker = self._loop.create_task(self._work(), context=self._context.copy())
            self._workers.add(worker)
            worker.add_done_callback(self._ended)

    def _ended(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if self._finished.done():
            return
        if worker.cancelled():  # by what a part left behind, between two parts
            self._start(1 if self._ready else 0)
        elif (error := worker.exception()) is not None:
            self._finished.set_exception(error)

    async def _work(self) -> None:
        """Carry out what is ready until nothing is."""
        task = asyncio.current_task()
        assert task is not None
        clean = contextvars.copy_context()
        slice_end = self._loop.time() + SLICE
        while self._ready and not self._stopping:
            part = self._ready.popleft()
            if self._ready and self._armed is None:
                self._armed = self._loop.call_soon(self._held_up)
            succeeded = await self._execute(part)
            if self._stopping:
                return
            self._settle(part, succeeded)
            if task.cancelling() or _differs(clean):
                # What the part did to its task must not reach the next one.
                self._start(1 if self._ready else 0)
                return
            if self._loop.time() >= slice_end:
                await self._give_way()
                slice_end = self._loop.time() + SLICE

    def _held_up(self) -> None:
        """The loop came to run this although something is ready: the workers are suspended."""
        self._armed = None
        if self._stopping or not self._ready:
            self._burst = 1
            return
        self._burst *= 2
        self._start(min(self._burst, len(self._ready)))

    async def _give_way(self) -> None:
        """Let the event loop run once. That this worker pauses is no reason to start others."""
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        await asyncio.sleep(0)

    def _settle(self, part: int, succeeded: bool) -> None:
        """Count a part as done, and release or skip what waited for it."""
        self._left -= 1
        settled = [(part, succeeded)]
        while settled:
            current, went_well = settled.pop()
            for follower in self._followers[current]:
                if not went_well and not self._skipped[follower]:
                    self._skipped[follower] = True
                    self._skip(follower)
                    self._left -= 1
                    settled.append((follower, False))
                self._waiting_for[follower] -= 1
                if not self._waiting_for[follower] and not self._skipped[follower]:
                    self._ready.append(follower)
        if not self._left and not self._finished.done():
            self._finished.set_result(None)


def _differs(clean: contextvars.Context) -> bool:
    """Return whether context variables were changed; cheap where they were not."""
    try:
        return contextvars.copy_context() != clean
    except Exception:  # a value whose comparison fails is another value
        return True
