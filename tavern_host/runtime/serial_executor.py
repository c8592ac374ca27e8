"""Runs operations one at a time, each to its end even where its caller is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from tavern_host.runtime.in_flight import set_requester
from tavern_host.runtime.threads import retrieve_exception

T = TypeVar("T")


class SerialExecutor:
    """The operations of one host, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._nested: dict[asyncio.Task[Any], set[asyncio.Task[Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `operation()`, called in a task of its own when its turn comes.

        Cancelling the caller does not stop it. An operation that is asked for within another one, by a hook that it
        calls, runs at once: the hook could not wait for it otherwise.
        """
        asking = asyncio.current_task()
        nested = self._nested.get(asking) if asking is not None else None

        async def run() -> T:
            set_requester(asking)
            async with self.exclusive() if nested is None else self._tracked():
                return await operation()

        task = asyncio.create_task(run(), name="serial operation")
        for tasks in (self._tasks, nested):
            if tasks is not None:
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        task.add_done_callback(retrieve_exception)
        return await asyncio.shield(task)

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Run the block as an operation in this task."""
        async with self._lock, self._tracked():
            yield

    @contextlib.asynccontextmanager
    async def _tracked(self) -> AsyncIterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._nested[task] = set()
        try:
            yield
        finally:
            try:
                await self.nested_done()
            finally:
                del self._nested[task]

    async def nested_done(self) -> None:
        """Wait for the operations asked for within that of this task, where the hook that asked no longer waits."""
        task = asyncio.current_task()
        while task is not None and (nested := self._nested.get(task)):
            await asyncio.wait(nested)
