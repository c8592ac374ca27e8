"""A project to write tools into, and hosts on it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tavern_host import Host
from tavern_host.contracts.toolcalls import ToolCallRequest, ToolResult
from tavern_host.contracts.tools import TOOL_MANAGER, ToolDefinition, ToolManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

PLUGINS = Path(__file__).parent / "plugins"


class Bench:
    """A running host with its tool manager, and a project to write into."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.root = host.project.root
        self.tools: ToolManager = host.services.get(TOOL_MANAGER)

    def write_tool(self, tool_id: str, implementation: dict[str, Any], **more: Any) -> Path:
        path = self.root / "tools" / f"{tool_id.replace(':', '-')}.tool.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"id": tool_id, "implementation": implementation, **more}), "utf-8")
        return path

    def write_info(self, tool_id: str, **more: Any) -> Path:
        """Write a tool that tells what the host knows of a plugin."""
        parameters = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        method = {"type": "service", "service": "plugins", "method": "get"}
        return self.write_tool(tool_id, **{"implementation": method, "parameters": parameters, **more})

    def write_workflow(self, workflow_id: str, **document: Any) -> Path:
        path = self.root / "workflows" / f"{workflow_id}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"nodes": [], "edges": [], **document}), "utf-8")
        return path

    async def listed(self) -> list[ToolDefinition]:
        """Return the tools of the project and of the test plugins, without those that the host ships."""
        tools = await self.tools.list_tools()
        return [tool for tool in tools if tool.plugin is None or tool.plugin.startswith("acme-")]

    async def ids(self) -> list[str]:
        return [tool.id for tool in await self.listed()]

    async def call(self, tool_id: str, **arguments: Any) -> ToolResult:
        return await self.tools.call(ToolCallRequest(tool_id=tool_id, arguments=arguments))


@pytest.fixture
def open_host(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Bench]]:
    """Return a function that opens a host on a project with these test plugins, trusted or not.

    Scripts cannot be run in it: what becomes of a tool whose service is absent is shown here.
    """

    @asynccontextmanager
    async def opened(*plugins: str, trusted: bool = True) -> AsyncIterator[Bench]:
        (tmp_path / "project").mkdir(exist_ok=True)
        trust = [name.replace("_", "-") for name in plugins if trusted]
        folders, without = [PLUGINS / p for p in plugins], ["tavern-scripts"]
        async with Host(tmp_path / "project", plugins=folders, trust=trust, without=without) as host:
            assert {name: host.plugin(name).state for name in trust} == dict.fromkeys(trust, "started")
            yield Bench(host)

    return opened
