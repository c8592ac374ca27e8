"""Interpreters that were started beforehand, each in its own sandbox and for one script: a small script of Python then
costs less than starting Python. Whatever none of them can run is started as ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

from tavern_host import clock
from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.api.scripts import SandboxLaunch, SandboxOutput, ScriptBackend
from tavern_scripts.workers.warm_interpreter import LaunchShape, WarmInterpreter, shape_of

MAX_SIZE = 16
"""How many interpreters wait at most."""

_START = 20.0
"""How many seconds an interpreter may take until it waits."""

_REST = 30.0
"""How many seconds pass after one could not be started."""

_HABIT = 3
"""After how many scripts of another shape in a row the pool turns to that."""

_AFTERWARDS = 0.02
"""How many seconds pass after a script, which its result needs to get to its caller."""


class WarmPool:
    """Waiting interpreters; of each backend and shape only the latest. Nothing is started before there was a script."""

    def __init__(
        self,
        make_folder: Callable[[], Path],
        log: logging.Logger,
        *,
        size: Callable[[], int],
        idle: Callable[[], float],
    ) -> None:
        """`make_folder` returns a new folder that others may look into; `size` says how many interpreters are to wait,
        `idle` for how many seconds at most."""
        self._make_folder = make_folder
        self._log = log
        self._size = size
        self._idle = idle
        self._waiting: list[WarmInterpreter] = []
        self._spent: list[WarmInterpreter] = []
        self._kind: tuple[ScriptBackend, LaunchShape] | None = None
        self._others = 0
        self._last = 0.0
        self._resting_until = 0.0
        self._changed = asyncio.Event()
        self._filling: asyncio.Task[None] | None = None
        self._is_closed = False
        self.used = 0
        """How many scripts found an interpreter that waited."""

    @property
    def shape(self) -> LaunchShape | None:
        """What the interpreters that wait can run."""
        return self._kind[1] if self._kind is not None else None

    @property
    def waiting(self) -> int:
        """How many interpreters wait now."""
        return sum(warm.is_usable for warm in self._waiting)

    async def run(
        self, backend: ScriptBackend, launch: SandboxLaunch, stdin: AsyncIterator[bytes]
    ) -> AsyncGenerator[SandboxOutput, None]:
        """Run a program as `backend.run(launch, stdin)` does."""
        warm = await self._take(backend, launch)
        try:
            if warm is not None:
                async with contextlib.aclosing(self._use(warm, launch, stdin)) as outputs:
                    async for output in outputs:
                        yield output
                if warm.has_run:
                    return
            async with contextlib.aclosing(backend.run(launch, stdin)) as outputs:  # type: ignore[type-var]
                async for output in outputs:
                    yield output
        finally:
            self._changed.set()

    async def close(self) -> None:
        """End all interpreters that wait."""
        self._is_closed = True
        filling, self._filling = self._filling, None
        if filling is not None:
            filling.cancel()
            await asyncio.wait({filling})
        gone, self._waiting, self._spent = [*self._waiting, *self._spent], [], []
        await asyncio.gather(*(warm.close() for warm in gone))

    async def _use(
        self, warm: WarmInterpreter, launch: SandboxLaunch, stdin: AsyncIterator[bytes]
    ) -> AsyncGenerator[SandboxOutput, None]:
        """Run a script in an interpreter that waited, and end that; its folder may go a little later."""
        try:
            async with contextlib.aclosing(warm.run(launch, stdin)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            if warm.has_run and not self._is_closed:
                self.used += 1
                self._spent.append(warm)
            else:
                await to_the_end(warm.close())

    async def _take(self, backend: ScriptBackend, launch: SandboxLaunch) -> WarmInterpreter | None:
        """Return an interpreter for a launch, if one waits, and see to it that the next ones find one."""
        size = self._wanted()
        shape = shape_of(launch) if size else None
        if shape is None or self._is_closed:
            return None
        self._last = clock.monotonic()
        self._turn_to(backend, shape)
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._fill(), name="keep interpreters warm")
        self._changed.set()
        if self._kind != (backend, shape):
            return None
        while self._waiting:
            warm = self._waiting.pop(0)
            if warm.is_usable and warm.kind == self._kind:
                return warm
            await warm.close()
        return None

    def _turn_to(self, backend: ScriptBackend, shape: LaunchShape) -> None:
        if self._kind == (backend, shape):
            self._others = 0
            return
        self._others += 1
        if self._kind is None or self._others >= _HABIT:
            self._kind, self._others = (backend, shape), 0

    def _wanted(self) -> int:
        return max(0, min(self._size(), MAX_SIZE))

    async def _fill(self) -> None:
        """Keep as many interpreters waiting as are wanted, until no script came for as long as one may wait."""
        while (idle := self._idle()) + self._last > clock.monotonic():
            await self._throw_away(idle)
            resting = self._resting_until - clock.monotonic()
            is_missing = len(self._waiting) < self._wanted()
            if is_missing and resting <= 0:
                await self._start()
                continue
            pause = [idle, *(warm.since + idle - clock.monotonic() for warm in self._waiting)]
            await self._change(min([*pause, resting] if is_missing else pause))
        await self._throw_away(0)

    async def _change(self, seconds: float) -> None:
        """Wait until a script begins or ends, for so many seconds at most."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.01, seconds)):
                await self._changed.wait()
                await asyncio.sleep(_AFTERWARDS)

    async def _throw_away(self, idle: float) -> None:
        """End those that ended, waited too long, are of another kind or too many."""
        oldest = clock.monotonic() - idle
        good = [warm for warm in self._waiting if warm.is_usable and warm.since > oldest and warm.kind == self._kind]
        kept = good[: self._wanted()]
        gone = [*self._spent, *(warm for warm in self._waiting if warm not in kept)]
        self._waiting, self._spent = kept, []
        await asyncio.gather(*(warm.close() for warm in gone))

    async def _start(self) -> None:
        assert self._kind is not None
        backend, shape = self._kind
        warm: WarmInterpreter | None = None
        try:
            warm = WarmInterpreter(backend, shape, await asyncio.to_thread(self._make_folder))
            async with asyncio.timeout(_START):
                why = await warm.wait()
        except (OSError, TimeoutError) as error:
            why = str(error) or "it took too long"
        except BaseException:
            if warm is not None:
                await warm.close()
            raise
        if why or warm is None:
            self._resting_until = clock.monotonic() + _REST
            self._log.warning("no interpreter could be started beforehand, scripts start as ever: %s", why)
            if warm is not None:
                await warm.close()
            return
        self._waiting.append(warm)
