"""Carries out decisions one at a time, each to its end whatever becomes of who asked for it.

What is decided is not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from tavern_host.runtime.in_flight import set_requester

T = TypeVar("T")


class Decisions:
    """The decisions of one host, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._under_way: dict[asyncio.Task[Any], set[asyncio.Task[Any]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def carry_out(self, decide: Callable[[], Awaitable[T]]) -> T:
        """Return what `decide()` returns, called in a task of its own when its turn comes.

        Cancelling the caller does not stop it. One that is asked for within another, by a hook that is called for
        that, has its turn at once: nobody could wait for it else.
        """
        asking = asyncio.current_task()
        within = self._under_way.get(asking) if asking is not None else None

        async def carried_out() -> T:
            set_requester(asking)
            async with self.alone() if within is None else self._counted():
                return await decide()

        task = asyncio.create_task(carried_out(), name="a decision")
        for tasks in (self._tasks, within):
            if tasks is not None:
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        task.add_done_callback(_take_note)
        return await asyncio.shield(task)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Let nothing be decided while the block runs in this task, but what is asked for within it."""
        async with self._turn, self._counted():
            yield

    @contextlib.asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._under_way[task] = set()
        try:
            yield
        finally:
            try:
                await self.settled()
            finally:
                del self._under_way[task]

    async def settled(self) -> None:
        """Wait for what was asked for within the decision of this task, where the hook that did so has given up."""
        task = asyncio.current_task()
        while task is not None and (inner := self._under_way.get(task)):
            await asyncio.wait(inner)


def _take_note(task: asyncio.Task[Any]) -> None:
    """Look at a task's exception, so that none is told as never looked at where the caller has gone."""
    if not task.cancelled():
        task.exception()
