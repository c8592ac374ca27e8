"""An MCP server of the SDK alone, with one function: what a call of a tool takes at least."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from mcp.server.mcpserver import MCPServer

server = MCPServer("floor")


@server.tool()
def now(zone: str) -> str:
    """Return the time in a zone."""
    return datetime.now(ZoneInfo(zone)).isoformat()


if __name__ == "__main__":
    server.run()
