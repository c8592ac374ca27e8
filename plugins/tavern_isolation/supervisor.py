"""Keeps the child of a plugin running: starts another when it ended, and gives up where that does not help."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import PluginEnded
from tavern_isolation.carriers import Carrier, Carry
from tavern_isolation.child_process import ChildProcess
from tavern_isolation.link import Link
from tavern_isolation.requests import Requests

DELAYS = (0.1, 5.0)
"""Seconds after the first and the second end within `PERIOD` before the child is started again; after the third it is
not."""
PERIOD = 300.0

IDLE = 600.0
"""Seconds after which a child is ended that nobody asks for anything, and that keeps nothing."""


class Supervisor:
    """One plugin's child. `carry` starts one, `begin` has it load the plugin; `generation` counts them. `changed` is
    called when there is another one, or none any more. `kept` counts what is in the child and cannot be built again:
    while there is any, a child is not ended for having nothing to do.

    What was open in a child is gone with it: holders of something in one compare the generation.
    """

    def __init__(
        self,
        context: PluginContext,
        requests: Requests,
        carry: Carry,
        begin: Callable[[ChildProcess], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._context = context
        self.plugin = context.plugin
        self._requests = requests
        self._carry = carry
        self._begin = begin
        self._changed = changed
        self._process: ChildProcess | None = None
        self._starting = asyncio.Lock()
        self._ends: list[float] = []
        self._is_stopped = False
        self._used = 0.0
        self._ending: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self.generation = 0
        self.kept = 0
        self.last_error = ""

    @property
    def is_lost(self) -> bool:
        """Whether the child has ended and none took its place yet."""
        return self._process is None or self._process.is_lost

    def has(self, generation: int) -> bool:
        """Whether the child of this generation is there still."""
        return generation == self.generation and not self.is_lost

    @property
    def carrier(self) -> Carrier | None:
        """What runs the child, if one runs now."""
        return None if self._process is None or self._process.is_lost else self._process.carrier

    async def link(self) -> Link:
        """Return the link to the child, or to another where it ended. Raises `PluginEnded` where that was in
        vain."""
        if self.is_lost:
            async with self._starting:
                if self.is_lost:
                    await self._restart()
        assert self._process is not None
        self._requests.catch_up()
        self._process.watch()
        self._used = asyncio.get_running_loop().time()
        return self._process.link

    async def _restart(self) -> None:
        if self._is_stopped:
            raise PluginEnded(f"the process of {self.plugin} was stopped", plugin=self.plugin)
        if self._process is not None:
            await self._process.is_over()
        loop = asyncio.get_running_loop()
        recent = [end for end in self._ends if loop.time() - end < PERIOD]
        if len(recent) > len(DELAYS):
            raise PluginEnded(self._given_up, plugin=self.plugin)
        if recent:
            await asyncio.sleep(recent[-1] + DELAYS[len(recent) - 1] - loop.time())
        try:
            await self.start()
        except Exception as error:
            self._note_end(f"it could not be started: {error}")
            raise PluginEnded(f"the process of {self.plugin} could not be started: {error}") from error
        if self.carrier is not None and recent:
            self._context.log.warning("it was started again, as process %d", self.carrier.pid)

    async def start(self) -> None:
        """Start a child. Raises what loading the plugin raises."""
        log = self._context.log
        process = await ChildProcess.start(self.plugin, self._carry, self._requests, log, self._note_end)
        self.generation += 1
        self._requests.link = process.link
        try:
            await self._begin(process)
        except BaseException:
            await process.stop()
            raise
        self._process = process
        self._look_later(IDLE)
        self._changed()

    def _look_later(self, seconds: float) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """End a child that has had nothing to do for long; the next call starts another."""
        process, loop = self._process, asyncio.get_running_loop()
        if process is None or process.is_lost or self._is_stopped:
            return
        idle = loop.time() - self._used
        if self.kept or not process.link.is_idle or idle < IDLE:
            self._look_later(max(IDLE - idle, IDLE / 10))
            return
        self._process = None
        self._context.log.info("its process %d had nothing to do and is ended", process.carrier.pid)
        self._ending = loop.create_task(self._end(process), name=f"{self.plugin}: end of its idle process")

    async def _end(self, process: ChildProcess) -> None:
        await process.stop()
        self._changed()

    @property
    def _given_up(self) -> str:
        return (
            f"the process of {self.plugin} ended {len(DELAYS) + 1} times within {PERIOD / 60:g} minutes and is not "
            f"started again; `tavern plugins reload {self.plugin}` starts it"
        )

    def _note_end(self, reason: str) -> None:
        self.last_error = reason
        self._changed()
        now = asyncio.get_running_loop().time()
        self._ends = [*(end for end in self._ends if now - end < PERIOD), now]
        if len(self._ends) > len(DELAYS):
            self._context.hooks.report(self.plugin, f"{self._given_up} ({reason})")

    async def stop(self) -> None:
        """End the child for good, after the plugin closed what it holds."""
        self._is_stopped = True
        self._requests.close()
        if self._idle is not None:
            self._idle.cancel()
        if self._ending is not None:
            await self._ending
        if self._process is not None:
            await self._end(self._process)

    def kill(self) -> None:
        """End the child at once."""
        self._is_stopped = True
        if self._process is not None:
            self._process.kill()
