"""How often and how many at a time tools may be called. Keeps counts in memory, and calls nothing."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from types import TracebackType

from tavern_host import clock
from tavern_host.contracts.calls import Principal
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.calls.call import Call
from tavern_tools.catalog.catalog import Tool
from tavern_tools.catalog.failures import ToolFailure

MAX_WINDOWS = 4096
"""How many windows are counted separately. Further principals share one."""
MAX_MOMENTS = 256
"""How many moments of a window are kept. Where more calls are allowed, those that are close together count as one
moment, the latest of them, so that never more than allowed are admitted."""

_SWEEP = 1.0
_Key = tuple[str, float, str, str]
_SHARED = ""


class Limits:
    """The rates and the turns of all tools."""

    def __init__(self) -> None:
        self._swept = -math.inf
        self._windows: dict[_Key, _Window] = {}
        self._lines: dict[str, _Line] = {}

    def check(self, call: Call) -> None:
        """Count a call. Raises `ToolFailure` where its tool was called as often as it may be."""
        wait = self.admit(call.tool, call.context.principal)
        if wait is None:
            return
        definition = call.tool.definition
        rate = definition.rate_limit
        allowed = f" {rate.calls} times in {rate.seconds:g} s" if rate is not None else ""
        message = f"{definition.id} may be called{allowed} only; try again in {wait:.1f} s"
        raise ToolFailure(ToolErrorType.RATE_LIMITED, message, retryAfter=round(wait, 3))

    def admit(self, tool: Tool, principal: Principal) -> float | None:
        """Count a call and return None, or return in how many seconds it may be tried again."""
        rate = tool.definition.rate_limit
        if rate is None:
            return None
        now = clock.monotonic()
        window = self._window((tool.definition.id, rate.seconds, principal.kind, principal.id), now)
        return window.admit(now, rate.calls)

    def turn(self, tool: Tool) -> AbstractAsyncContextManager[None]:
        """Return a context that waits for the turn of a tool with a limit, first come first served, and holds it.

        A call that a tool makes of itself while it has its turn does not wait for another: it would wait for ever.
        """
        line = self._lines.get(tool.definition.id)
        if line is None:
            line = self._lines[tool.definition.id] = _Line()
        line.allow(max(1, tool.definition.concurrency or 1))
        return _Turn(line)

    def _window(self, key: _Key, now: float) -> _Window:
        shared = (key[0], key[1], _SHARED, _SHARED)
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= MAX_WINDOWS:
                self._forget_old(now)
            key = shared if len(self._windows) >= MAX_WINDOWS or self._is_live(shared, now) else key
            window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(key[1])
        return window

    def _is_live(self, key: _Key, now: float) -> bool:
        """Return whether calls are counted in a shared window still, which no principal leaves for an empty one."""
        window = self._windows.get(key)
        return window is not None and not window.is_over(now)

    def _forget_old(self, now: float) -> None:
        if now - self._swept < _SWEEP:
            return
        self._swept = now
        for key in [key for key, window in self._windows.items() if window.is_over(now)]:
            del self._windows[key]


class _Moment:
    """Calls that are close together: when the first and the last were, and how many."""

    __slots__ = ("calls", "first", "last")

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.calls = 1


class _Window:
    """The calls of the last seconds, oldest first."""

    __slots__ = ("_calls", "_moments", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._moments: deque[_Moment] = deque()
        self._calls = 0

    def admit(self, now: float, most: int) -> float | None:
        """Count a call, or return in how many seconds there is room for one."""
        moments = self._moments
        while moments and moments[0].last + self._seconds <= now:
            self._calls -= moments.popleft().calls
        if self._calls >= most:
            return self._wait(now, most)
        self._calls += 1
        if most > MAX_MOMENTS and moments and now - moments[-1].first < self._seconds / MAX_MOMENTS:
            moments[-1].last = now
            moments[-1].calls += 1
        else:
            moments.append(_Moment(now))
        return None

    def is_over(self, now: float) -> bool:
        """Return whether all of it is past."""
        return not self._moments or self._moments[-1].last + self._seconds <= now

    def _wait(self, now: float, most: int) -> float:
        """Return the seconds, in whole milliseconds, after which enough of the calls are past."""
        left = self._calls
        for moment in self._moments:
            left -= moment.calls
            if left < most:
                return max(0.001, math.ceil((moment.last + self._seconds - now) * 1000) / 1000)
        return max(0.001, self._seconds)


class _Line:
    """Who has a tool's turn, and who waits for it."""

    __slots__ = ("most", "taken", "waiting")

    def __init__(self) -> None:
        self.most = 1
        self.taken = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Return when it is the caller's turn."""
        if self.taken < self.most and not self.waiting:
            self.taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn already when it was cancelled
                self.leave()
            raise  # `leave` passes over a turn that is no longer awaited

    def leave(self) -> None:
        """Give the turn to the first that waits."""
        self.taken -= 1
        self._call()

    def allow(self, most: int) -> None:
        """Let so many have their turn at once."""
        if most != self.most:
            self.most = most
            self._call()

    def _call(self) -> None:
        while self.waiting and self.taken < self.most:
            turn = self.waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)


_held: ContextVar[tuple[_Turn, ...]] = ContextVar("turns that the call in progress has", default=())


class _Turn:
    """One turn in a line, for the `async with` block. Used once."""

    __slots__ = ("_has_it", "_is_nested", "_line")

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._has_it = self._is_nested = False

    async def __aenter__(self) -> None:
        held = _held.get()
        self._is_nested = any(turn._has_it and turn._line is self._line for turn in held)
        if not self._is_nested:
            await self._line.enter()
            self._has_it = True
            _held.set((*held, self))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_nested:
            self._has_it = False
            _held.set(tuple(turn for turn in _held.get() if turn is not self))
            self._line.leave()
