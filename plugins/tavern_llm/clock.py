"""The time by which models are retried and budgets are counted: one place, so that a test can let an hour pass."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """The time of this machine."""

    def monotonic(self) -> float:
        """Return seconds that never jump back."""
        return time.monotonic()

    def time(self) -> float:
        """Return the seconds since 1970, UTC."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        await asyncio.sleep(seconds)


CLOCK = Clock()
