"""What the host's own plugins provide is imported and made when it is first used, so that a start is short."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tavern_host import Host
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER

NOW = ToolCallRequest(tool_id="system:get_current_time")


async def test_a_service_is_made_when_first_used(project: Path) -> None:
    async with Host(project) as host:
        manager = host.services.get(TOOL_MANAGER)
        for _ in range(2):  # not made yet, and made
            await host.disable("tavern-tools")
            with pytest.raises(ServiceUnavailable, match="no plugin provides the service toolManager any more"):
                await manager.call(NOW)
            assert host.owned("tavern-tools") == {}
            await host.enable("tavern-tools")
            assert (await manager.call(NOW)).status == "done"


async def test_a_stream_is_opened_with_its_service(project: Path) -> None:
    async def chunks() -> AsyncIterator[str]:
        for character in "Good evening.":
            yield character

    async with Host(project) as host:
        tools = host.services.get(TOOL_MANAGER)
        events = [event async for event in tools.parse_stream(chunks())]
        assert "".join(event.text for event in events) == "Good evening."
        assert len(events) > 1
        with pytest.raises(InvalidInput, match="the argument chunks must be an async iterator, found list"):
            await anext(aiter(tools.parse_stream(["a"])))
