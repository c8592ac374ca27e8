"""Says to a child which numbers of its values and objects the host has, and has no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Notes:
    """Collects numbers and says them soon, those of one kind together; on any thread, since anything may drop what
    they stand for."""

    def __init__(self, tell: Callable[[str, list[int]], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[str, list[int]] = {}

    def say(self, what: str, number: int) -> None:
        """Say that a value is `held` or `dropped`, an object `forgotten`, or `released`: it has no more to do."""
        waiting = self._waiting.setdefault(what, [])
        waiting.append(number)
        if len(waiting) == 1 and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._say, what)

    def _say(self, what: str) -> None:
        self._tell(what, self._waiting.pop(what))
