"""Which channel of a model is asked next, and when: retries with back-off, fall-over; and how many requests wait.

Asks nobody itself. What channels were found to be is shared by all requests of a model.
"""

from __future__ import annotations

import asyncio
import random

from tavern_host import clock
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import LimitReached, Misconfigured, PluginFailure, TavernError

BUSY = frozenset({429, 503, 529})
"""The HTTP status codes of a server that will have time later: it is asked again until `retry_seconds` are over."""

REFUSED = frozenset({400, 413, 422})
"""Those that say that the request is wrong: no other channel is asked."""

ATTEMPTS = 3
"""How often a channel is asked that fails in any other way that may pass."""

FIRST_WAIT, LONGEST_WAIT = 1.0, 20.0
"""Seconds until the second attempt, doubled each time, and at most; each a quarter shorter or longer by chance."""

LAST_CHOICE_SECONDS = 60.0
"""How long a channel that failed is asked after the others."""

QUEUE_SECONDS = 5.0
"""After how many seconds a request may be sent again that found the queue full."""


class ChannelStates:
    """What is known of the channels of a model, in seconds of the clock: until when each one's server is busy, and
    until when others are preferred since it failed."""

    def __init__(self, count: int) -> None:
        self.busy_until, self.last_until = [0.0] * count, [0.0] * count


class Attempts:
    """The attempts of one request. `call` has its deadline."""

    def __init__(self, model: str, states: ChannelStates, retry_seconds: float, call: CallContext) -> None:
        self._model = model
        self._states = states
        self._call = call
        self._until = clock.monotonic() + retry_seconds
        self._may_retry = retry_seconds > 0
        count = len(states.busy_until)
        self._left = set(range(count))
        self._failures = [0] * count
        self._not_before = [0.0] * count
        self._error: TavernError | None = None

    async def next(self) -> int:
        """Wait for a channel and return its number.

        Raises the error of the last attempt where that would take too long, `LimitReached` before the first.
        """
        now, states = clock.monotonic(), self._states

        def preference(channel: int) -> tuple[bool, bool, float, int]:
            start = max(now, states.busy_until[channel], self._not_before[channel])
            return start > now, states.last_until[channel] > now, start, channel

        _, _, start, channel = min(map(preference, self._left))
        if start > now:
            remaining = self._call.remaining()
            if start > self._until or (remaining is not None and start - now >= remaining):
                raise self._error or LimitReached(
                    f"the servers of the model {self._model!r} are busy for another {start - now:.0f} s",
                    retry_after=start - now,
                )
            await asyncio.sleep(start - now)
        return channel

    def failed(self, channel: int, error: TavernError) -> None:
        """Take note of a failure. Raises it where there is nothing left to try."""
        info, states, now = error.info, self._states, clock.monotonic()
        status = info.details.get("status")
        may_pass = info.code in (PluginFailure.code, Misconfigured.code)
        if not may_pass or status in REFUSED or info.details.get("overflow"):
            raise error
        self._error = error
        self._failures[channel] += 1
        is_busy = info.retryable and status in BUSY
        if info.retryable:
            self._not_before[channel] = now + self._wait(channel, info.details.get("retry_after"))
        if is_busy:
            states.busy_until[channel] = self._not_before[channel]
        else:
            states.last_until[channel] = now + LAST_CHOICE_SECONDS
        if not (info.retryable and self._may_retry) or (not is_busy and self._failures[channel] >= ATTEMPTS):
            self._left.discard(channel)
        if not self._left:
            raise error

    def _wait(self, channel: int, asked: object) -> float:
        """Return for how many seconds a channel is left alone: as long as its server asked for, if that is a second."""
        if isinstance(asked, int | float) and asked >= FIRST_WAIT:
            return float(asked)
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (self._failures[channel] - 1))
        return wait * random.uniform(0.75, 1.25)


class Turns:
    """Lets so many requests be with a model at once, and as many wait as the queue holds."""

    def __init__(self, concurrency: int, queue: int) -> None:
        self._free = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._queue = queue
        self._waiting = 0

    async def enter(self, model: str) -> None:
        """Wait for a turn. Raises `LimitReached` where the queue is full."""
        if self._free.locked() and self._waiting >= self._queue:
            raise LimitReached(
                f"{self._concurrency} requests are with the model {model!r} and {self._waiting} wait, which is as many "
                "as may (concurrency and queue of the model)",
                retry_after=QUEUE_SECONDS,
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        """End a turn."""
        self._free.release()
