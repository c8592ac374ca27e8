"""Who may run: first come, first served, a limited number at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Turn = asyncio.Future[bool]
"""Done with True when the turn has come, with False when it was given up before."""


class Turns:
    """Hands out turns; `limit` is asked each time, so that a changed setting holds from then on."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._waiting: deque[Turn] = deque()
        self._running = 0

    def enter(self) -> Turn:
        """Stand in line."""
        turn: Turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._next()
        return turn

    def leave(self, turn: Turn) -> None:
        """Give a turn back, or leave the line."""
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.done() and not turn.cancelled() and turn.result():
            self._running -= 1
        self._next()

    def _next(self) -> None:
        while self._waiting and self._running < max(1, self._limit()):
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(True)
