"""The host's clock: what deadlines, leases, back-off, schedules and dates are read from.

Timers and time limits of asyncio follow the running loop. Whatever else asks for the time asks here and not `time` or
`datetime`, so that who holds this clock and the loop's time, as the tests do, holds all of it. How long something took
is measured with `time.perf_counter`: nothing is decided by that.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime


class Clock:
    """The time of this machine; a subclass gives another."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from an unknown moment on."""
        return time.monotonic()

    def time_ns(self) -> int:
        """Return the nanoseconds since 1970, UTC."""
        return time.time_ns()

    def awaits_thread(self) -> AbstractContextManager[None]:
        """Return the context of the loop's side while it awaits work on a thread that no executor of asyncio has: a
        held clock stands still meanwhile, since that work takes none of its time."""
        return _NOTHING


_NOTHING = nullcontext()
_clock = Clock()


def use(clock: Clock) -> Clock:
    """Let the host ask this clock from now on; return the one that it asked before."""
    global _clock
    before, _clock = _clock, clock
    return before


def monotonic() -> float:
    """Return seconds that never go back, from an unknown moment on."""
    return _clock.monotonic()


def seconds() -> float:
    """Return the seconds since 1970, UTC."""
    return _clock.time_ns() / 1e9


def microseconds() -> int:
    """Return the microseconds since 1970, UTC."""
    return _clock.time_ns() // 1000


def now() -> datetime:
    """Return the moment, in UTC."""
    return datetime.fromtimestamp(_clock.time_ns() // 1000 / 1e6, UTC)


def file_seconds() -> float:
    """Return the seconds since 1970 as the file system stamps files: those of this machine, whatever clock is used."""
    return time.time()


def awaits_thread() -> AbstractContextManager[None]:
    """Return the context of the loop's side while it awaits work on a thread; see `Clock.awaits_thread`."""
    return _clock.awaits_thread()
