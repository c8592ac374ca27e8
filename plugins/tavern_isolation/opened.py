"""What is opened in a child before it is used there, once, however many ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tavern_host.contracts.errors import PluginEnded
from tavern_isolation.link import Link
from tavern_isolation.supervisor import Supervisor


class Opened:
    """Something of a plugin in its child, and again in one that took the place of another. With `holds` it keeps what
    cannot be built again: it is opened once, and a child that has it is not ended for having nothing to do."""

    def __init__(self, what: str, child: Supervisor, open: Callable[[Link], Awaitable[object]]) -> None:
        self._what = what
        self._child = child
        self._open = open
        self._opening = asyncio.Lock()
        self._generation = 0
        self._is_kept = False
        self.holds = False

    async def link(self) -> Link:
        """Return the link to a child in which it is open. Raises what opening raises, and `PluginEnded` for what was
        lost with its child."""
        child = self._child
        link = await child.link()
        if self._generation == child.generation:
            return link
        async with self._opening:
            link = await child.link()
            generation = child.generation
            if self._generation != generation:
                if self._generation and self.holds:
                    message = f"{self._what}: the process of {child.plugin} ended, and with it what this kept"
                    raise PluginEnded(message, plugin=child.plugin)
                await self._open(link)
                self._generation = generation
                if self.holds:
                    self._is_kept = True
                    child.kept += 1
        return link

    @property
    def is_open(self) -> bool:
        """Whether it is open in a child that is there."""
        return self._child.has(self._generation)

    def let_go(self) -> None:
        """Keep nothing any more."""
        if self._is_kept:
            self._is_kept = False
            self._child.kept -= 1
