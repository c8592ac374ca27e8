"""Starts, watches and ends one process of a plugin."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Self

from tavern_isolation import pace
from tavern_isolation.carriers import Carrier, Carry
from tavern_isolation.link import GRACE, Link
from tavern_isolation.log_text import for_log
from tavern_isolation.pace import Pace
from tavern_isolation.requests import Requests

PING_EVERY = 2.0
"""Seconds between two looks at whether a child that has work still answers."""
DEAF_AFTER = 8.0
"""Seconds after which a child that does not answer is ended: nothing that it does can be cancelled."""

EXIT_GRACE = 0.5
"""Seconds that a child whose link has ended may take to exit."""

_LINE = 10_000
"""Characters of a line of output that reach the log."""
_LAST_LINES = 5
_AT_ONCE = 200
"""Lines that are logged of what is read at a time."""


class ChildProcess:
    """A child, its link, and what it prints, which goes to the plugin's log."""

    def __init__(self, carrier: Carrier, plugin: str, log: logging.Logger, ended: Callable[[str], None]) -> None:
        self.carrier = carrier
        self._plugin = plugin
        self._log = log
        self._ended = ended
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = b""
        self._pace = Pace()
        self._running = asyncio.create_task(carrier.run(self._read), name=f"{plugin}: its process")
        self._ending: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.is_lost = False
        self.link: Link

    @classmethod
    async def start(
        cls, plugin: str, carry: Carry, requests: Requests, log: logging.Logger, ended: Callable[[str], None]
    ) -> Self:
        """Start a child for a plugin. `ended` is called with the reason in words when it ends by itself. Raises what
        `carry` raises."""
        ours, theirs = socket.socketpair()
        try:
            carrier = await carry(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        child = cls(carrier, plugin, log, ended)
        child.link = await Link.open(
            ours, f"the process of {plugin}", requests.serve, requests.notice, child._lost, Pace(pace.AT_ONCE)
        )
        return child

    # --- its end ---------------------------------------------------------------------------------------------

    def _lost(self, reason: str) -> None:
        """End what is left of a child whose link has ended."""
        self.is_lost = True
        self._ending = asyncio.create_task(self._say_why(reason), name=f"{self._plugin}: end of its process")

    async def _say_why(self, reason: str) -> None:
        # so that its own exit code is seen, where it exits
        await asyncio.wait([self._running], timeout=0 if self._is_stopping else EXIT_GRACE)
        self.kill()
        how = await self._running
        if self._rest:
            self._say(self._rest)
        if self._is_stopping:
            return
        last = f"; its last lines: {' | '.join(self._lines)}" if self._lines else ""
        self._log.error("%s (%s)%s", reason, how, last)
        self._ended(f"{reason}: {how}")

    async def is_over(self) -> None:
        """Wait until a lost child has ended, and that was said."""
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def stop(self) -> None:
        """Have the child close what it holds, and end it."""
        self._is_stopping = True
        if self._watching is not None:
            self._watching.cancel()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(GRACE):
                await self.link.call("stop", b"{}")
        await self.link.close()
        self.kill()
        await asyncio.wait([self._running])

    def kill(self) -> None:
        """End the child at once."""
        self.carrier.kill()

    # --- while it runs ---------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look whether the child answers, as long as it has work."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name=f"{self._plugin}: watch on its process")

    async def _watch(self) -> None:
        while not self.is_lost:
            await asyncio.sleep(PING_EVERY)
            if not self.link.in_flight:
                return
            try:
                async with asyncio.timeout(DEAF_AFTER):
                    await self.link.call("ping", b"{}")
            except TimeoutError:
                self._log.error("its process %d did not answer for %g s and is ended", self.carrier.pid, DEAF_AFTER)
                self.kill()
            except Exception:
                return  # it ended, which is said elsewhere

    def _read(self, data: bytes) -> float:
        """Log what was printed; return in how many seconds more is taken."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines[:_AT_ONCE]:
            self._say(line)
        if len(lines) > _AT_ONCE:
            self._log.warning("it prints faster than is logged: %d lines are left out", len(lines) - _AT_ONCE)
        return self._pace.take(pace.LINE * (1 + min(len(lines), _AT_ONCE)))

    def _say(self, line: bytes) -> None:
        text = for_log(line.decode(errors="replace").rstrip("\r")[:_LINE])
        self._lines.append(text)
        self._log.info("%s", text)
