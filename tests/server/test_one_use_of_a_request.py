"""What a plugin of the host calls of itself while it answers a request is part of the call that is in flight."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin

from tavern_host import TOOL_MANAGER, Host
from tavern_host.testing.http import served
from tavern_tools.api.toolcalls import ToolCallRequest

CODE = """
from tavern_host import hookimpl

COUNT, SEEN = [], []

@hookimpl
async def tavern_before_tool_call(request):
    SEEN.extend(count() for count in COUNT)
"""
CLOCK = "system:get_current_time"


@pytest.mark.asyncio
async def test_a_request_and_what_it_calls_in_its_own_plugin_are_one_use(tmp_path: Path) -> None:
    hooks = {"hooks": ["hook:server:tool:before-call"]}
    folder = write_plugin(tmp_path / "acme_counter", {"__init__.py": CODE}, permissions=hooks)
    async with Host(tmp_path / "project", plugins=[folder], trust=["acme-counter"]) as host, served(host) as client:
        module, before = sys.modules["tavern_plugins.acme_counter"], host.in_flight()
        module.COUNT.append(host.in_flight)
        answer = await client.post("/api/tools/execute", json={"toolId": CLOCK, "arguments": {}})
        assert (await answer.json())["results"][0]["status"] == "done"
        await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id=CLOCK))
        # the request, or the call without one, and the hook of the plugin
        seen = [count - before for count in module.SEEN]
        assert seen == [2, 2]
        assert host.in_flight() == before
