"""Who may run: the higher priority first, else first come, first served; a limited number at a time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Turn = asyncio.Future[bool]
"""Done with True when the turn has come, with False when it was given up before."""


class Turns:
    """Hands out turns; `limit` is asked each time, so that a changed setting holds from then on."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._waiting: list[tuple[int, int, Turn]] = []
        self._came = itertools.count()
        self._running = 0

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return sum(not turn.done() for _, _, turn in self._waiting)

    @property
    def free(self) -> int:
        """How many could have a turn at once."""
        return max(0, self._limit() - self._running)

    def enter(self, priority: int = 0) -> Turn:
        """Stand in line."""
        turn: Turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-priority, next(self._came), turn))
        self._next()
        return turn

    def leave(self, turn: Turn) -> None:
        """Give a turn back, or leave the line."""
        if turn.done() and not turn.cancelled() and turn.result():
            self._running -= 1
        elif not turn.done():
            turn.cancel()
        self._next()

    @asynccontextmanager
    async def turn(self, priority: int = 0) -> AsyncIterator[None]:
        """Stand in line, and have the turn within the `async with`."""
        turn = self.enter(priority)
        try:
            await turn
            yield
        finally:
            self.leave(turn)

    def _next(self) -> None:
        while self._waiting and (self._waiting[0][2].done() or self._running < max(1, self._limit())):
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._running += 1
                turn.set_result(True)
