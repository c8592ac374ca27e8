"""The tools that the script of a run may call, and the channel by which it calls them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_scripts.api.code_mode import CODE_TOOL
from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.policy.planner import Plan
from tavern_scripts.tool_calls.channel import CallChannel
from tavern_tools.api.tools import TOOL_MANAGER


class ToolCalls:
    """The channels of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._calling: dict[str, int] = {}

    async def channel(self, plan: Plan, call: CallContext, stack: AsyncExitStack) -> CallChannel | None:
        """Return the channel of a run, closed with the stack; None where its script is given no tools.

        A caller without the right to call tools is given none, and neither is what a third-party plugin passed on: that
        plugin may not have the right. Raises `InvalidInput` for a script that cannot be given tools.
        """
        asked, most = plan.request.tools, plan.policy.most_calls
        if not asked or most == 0 or call.via is not None or not self._context.services.has(TOOL_MANAGER.name):
            return None
        if plan.request.session is not None:
            raise InvalidInput("no tools are given in a session; leave tools out")
        manager = self._context.services.get(TOOL_MANAGER)
        try:
            found = await manager.callable_tools(call=call)
        except PermissionDenied:
            return None
        others = [tool for tool in found if tool.id != CODE_TOOL]
        tools = [tool for tool in others if any(fnmatchcase(tool.id, pattern) for pattern in asked)]
        channel = CallChannel(manager, call, tools, plan.limits, most)
        stack.push_async_callback(lambda: to_the_end(channel.close()))
        self._calling[call.trace_id] = self._calling.get(call.trace_id, 0) + 1
        stack.callback(self._calls_no_more, call.trace_id)
        return channel

    @contextlib.asynccontextmanager
    async def turn(self, call: CallContext, turns: asyncio.Semaphore) -> AsyncIterator[None]:
        """Wait for the turn of a run. One that a script has run takes none: its script holds one, and waits."""
        if call.trace_id in self._calling:
            yield
            return
        async with turns:
            yield

    def _calls_no_more(self, trace_id: str) -> None:
        self._calling[trace_id] -= 1
        if not self._calling[trace_id]:
            del self._calling[trace_id]
