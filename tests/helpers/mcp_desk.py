"""A host with MCP servers, one of them ours with behaviours; projects and settings for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import TavernError
from tavern_host.projects import Folders
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager

SERVERS, OFFER = "extensions.tavern-mcp.servers", "extensions.tavern-mcp.offer"
ALLOWED = "extensions.tavern-scripts.allowedHosts"
SERVER = Path(__file__).parent.parent / "mcp" / "misbehaving_server.py"
AGENT = CallContext(principal=Principal(kind="agent", id="scout"))


def odd(**more: Any) -> dict[str, Any]:
    """Return how our server is set up."""
    return {"command": sys.executable, "args": [str(SERVER)], "read": [str(SERVER.parent)], "seconds": 20, **more}


class Desk:
    """A host, and what is asked of it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tools: ToolManager = host.services.get(TOOL_MANAGER)

    async def call(self, tool_id: str, call: CallContext | None = None, **arguments: Any) -> ToolResult:
        """Call a tool, as the operator or within `call`, which may call all."""
        scope = None if call is None else ToolScope(allowed=["*"])
        return await self.tools.call(ToolCallRequest(tool_id=tool_id, arguments=arguments), scope=scope, call=call)

    async def connect(self, name: str) -> str:
        """Connect a server, which installs it first; return why that was not possible."""
        from tavern_mcp.entry import servers_of

        try:
            return await (await servers_of(self.host._manager.active["tavern-mcp"].context)).connect(name)
        except TavernError as error:
            return error.message

    def problems(self) -> list[str]:
        """Return the problems reported against the plugin."""
        return [problem.message for problem in self.host.plugin("tavern-mcp").problems]


def make_project(place: Path, operator: dict[str, Any], project: dict[str, Any] | None = None) -> Folders:
    """Write a project at `place/project` and the operator's settings; return the operator's folders."""
    root = place / "project"
    (root / "tools").mkdir(parents=True)
    (root / "tavern.yaml").write_text(json.dumps({"settings": project or {}}))
    for tool_id, more in (("text:loud", {}), ("text:asked", {"requiresApproval": True})):
        tool = {"id": tool_id, "implementation": {"type": "node", "nodeType": "core:UpperCase"}, **more}
        (root / "tools" / f"{tool_id.partition(':')[2]}.tool.json").write_text(json.dumps(tool))
    folders = Folders(place / "config", place / "state", place / "data")
    folders.config.mkdir()
    (folders.config / "host.yaml").write_text(json.dumps({"settings": operator}))
    return folders
