"""A clock and an event loop whose time moves only when nothing else can happen, or when a test says so.

Where every task waits and nothing is ready, the loop's time jumps to its next timer: an hour takes no time, and no
deadline passes because a machine is busy. While a thread works for the loop, time stands still and the loop waits for
it, unless it takes so long that it may never end.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any

from tavern_host.clock import Clock

_LEAST, _FASTER, _MOST = 0.002, 1_000, 0.05
"""With sockets open, how many real seconds a jump takes at least, how much faster than real time it is, and how many it
takes at most: what was written to a socket of this process takes the kernel a moment to deliver."""

_ENDLESS = 10.0
"""After how many real seconds a thread that works for the loop may be waited for in vain."""


class HeldClock(Clock):
    """A clock that `advance` alone moves, but for a microsecond at each reading of the date: no two are alike."""

    def __init__(self) -> None:
        self._passed = 1_000_000.0
        self._date = time.time_ns()

    def monotonic(self) -> float:
        """Return the seconds that passed."""
        return self._passed

    def time_ns(self) -> int:
        """Return the date: that at which the clock was made, with what has passed since."""
        self._date += 1000
        return self._date

    def advance(self, seconds: float) -> None:
        """Let this time pass."""
        self._passed += seconds
        self._date += int(seconds * 1e9)

    def set_date(self, date: datetime) -> None:
        """Let it be another date, before anything is begun: no time passes."""
        self._date = int(date.timestamp() * 1e9)

    def awaits_thread(self) -> AbstractContextManager[None]:
        """Stand still meanwhile for the loop that awaits it."""
        loop = asyncio.get_running_loop()
        return loop.awaits_thread() if isinstance(loop, HeldLoop) else nullcontext()


class HeldLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a clock, which it advances to the next timer when nothing is ready."""

    def __init__(self, clock: HeldClock) -> None:
        super().__init__(_Selector(clock, self))
        self._held_clock = clock
        self.threads = 0
        """How many threads work for this loop."""

    def time(self) -> float:
        """Return the clock's time."""
        return self._held_clock.monotonic()

    @contextmanager
    def awaits_thread(self) -> Iterator[None]:
        """Let time stand still meanwhile."""
        self.threads += 1
        try:
            yield
        finally:
            self.threads -= 1

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do as any loop does; time stands still until the work is done."""
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.threads -= 1


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Waits for files as any selector does, but for no time: it advances the clock instead."""

    def __init__(self, clock: HeldClock, loop: HeldLoop) -> None:
        super().__init__()
        self._clock, self._loop = clock, loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)  # type: ignore[no-any-return]
        has_sockets = len(self.get_map()) > 1  # more than the one that wakes the loop
        patience = max(_LEAST, min(timeout / _FASTER, _MOST)) if has_sockets else 0.0
        if self._loop.threads:
            patience = _ENDLESS
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(patience)
        if not ready:
            self._clock.advance(timeout)
        return ready


class LoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes loops of held time while `held` is a clock, else those of the machine's time."""

    held: HeldClock | None = None

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a new loop."""
        return super().new_event_loop() if self.held is None else HeldLoop(self.held)
