"""Tells clients that other tools are offered than before. Knows nothing of the tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ServerEvent

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError

_EVERY = 1.0


class Changes:
    """Who listens. While somebody does, `look` is called every second, since files of tools and workflows are
    changed by other processes, too; what finds a change publishes it."""

    def __init__(self, context: PluginContext, look: Callable[[], Awaitable[object]]) -> None:
        self._context = context
        self._look = look
        self._listeners: dict[object, Callable[[ServerEvent], None]] = {}
        self._told: set[int] = set()
        self._looking: asyncio.Task[None] | None = None

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Call a listener at each change, until what is returned is called."""
        key = object()
        self._listeners[key] = listener
        if self._looking is None or self._looking.done():
            self._looking = self._context.tasks.spawn(self._look_again(), name="look what MCP clients are offered")

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    async def publish(self, event: ServerEvent) -> None:
        """Call all listeners."""
        for listener in list(self._listeners.values()):
            listener(event)

    async def tell(self, ctx: ServerRequestContext, params: object) -> None:
        """Tell a client of before 2026, which does not ask for it, for as long as it is connected."""
        who = ctx.session.client_params  # one object for each connection
        if who is None or id(who) in self._told:
            return
        self._told.add(id(who))
        news = asyncio.Event()
        end = self.subscribe(lambda _: news.set())
        try:
            while await news.wait():
                news.clear()
                await ctx.session.send_tool_list_changed()
        finally:
            end()
            self._told.discard(id(who))

    async def _look_again(self) -> None:
        while self._listeners:
            await asyncio.sleep(_EVERY)
            with contextlib.suppress(TavernError):
                await self._look()
