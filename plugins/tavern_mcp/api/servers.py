"""The service `tavern-mcp.servers`: the MCP servers that are set up, as data, and what is asked of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model
from tavern_tools.api.toolcalls import ToolOutput

MODEL = "model:"
"""What the names of language models begin with among the patterns of what is offered."""

_CALL = "Call tools of MCP servers, and read what they offer."


class McpTool(Model):
    """A tool of a server. `changed` says in words what is other than what was approved; then it cannot be called."""

    name: str
    id: str
    changed: str = ""


class McpServer(Model):
    """A server that is set up: `shown` is what would be run or reached, with the rights that it gets, in lines.

    `status`: `unapproved` (a project's, which the operator has not approved as it is now), `idle` (connected when it is
    needed), `connected`, or `failed`, with the reason as `problem`.
    """

    name: str
    source: Literal["operator", "project"]
    status: Literal["unapproved", "idle", "connected", "failed"]
    shown: list[str] = Field(default_factory=list)
    problem: str = ""
    tools: list[McpTool] = Field(default_factory=list)


class McpServers(ServiceInterface, name="tavern-mcp.servers", version=2):
    """Reaches the MCP servers that are set up. Each method raises `NotFound` for a server that is not, `Forbidden` for
    one that is not approved, `ServiceUnavailable` (retryable) where it cannot be reached or has died."""

    @reads
    async def servers(self) -> list[McpServer]:
        """Return the servers by name."""

    @reads(since=2)
    async def offer(self) -> list[str]:
        """Return the patterns of what the operator offers to clients, whatever protocol they speak: ids of tools, of
        which agents (`agent:ID`) and workflows (`workflow:ID`) are some, and `model:NAME` for language models."""

    @acts("tavern-mcp.servers:call", _CALL)
    async def call_tool(
        self, server: str, tool: str, arguments: dict[str, JsonValue], *, call: CallContext | None = None
    ) -> ToolOutput:
        """Call a tool. Raises `Forbidden` for one that changed since it was approved, `PluginFailure` if it fails."""

    @acts("tavern-mcp.servers:call", _CALL)
    async def ask(
        self,
        server: str,
        what: Literal["resources", "resource", "prompts", "prompt"],
        arguments: dict[str, JsonValue],
        *,
        call: CallContext | None = None,
    ) -> ToolOutput:
        """List resources, read one (`uri`), list prompts, or fill one in (`name`, `arguments`)."""

    @acts("tavern-mcp.servers:call", _CALL)
    async def answered(self, arguments: dict[str, JsonValue], *, call: CallContext | None = None) -> ToolOutput:
        """Return the `answer` among the arguments: what a person who approved this call says to a server."""

    @acts("tavern-mcp.servers:approve", "Approve MCP servers and changed tools of theirs.", level="override")
    async def approve(self, name: str, *, call: CallContext | None = None) -> McpServer:
        """Approve a server as it is set up now, with its tools as they were last seen."""


MCP_SERVERS = ServiceKey(McpServers)
