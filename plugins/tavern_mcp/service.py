"""The provider of `tavern-mcp.servers`: the servers that are set up, each with its connection. What needs the SDK is
imported when a server is reached first."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import (
    Forbidden,
    Misconfigured,
    NotFound,
    PluginFailure,
    ServiceUnavailable,
    TavernError,
)
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.services import gives_new
from tavern_host.contracts.tools import ToolDefinition
from tavern_mcp import State
from tavern_mcp.api.servers import McpServer, McpServers, McpTool
from tavern_mcp.approvals import Approvals, Approved
from tavern_mcp.declarations import Declared, read_servers
from tavern_mcp.definitions import answer_tool, definitions_of, differences, out_of_reach, tool_id
from tavern_mcp.offers import offer_of
from tavern_tools.api.toolcalls import ToolOutput

if TYPE_CHECKING:
    from tavern_mcp.connection import Connection

MISSING = "the package mcp is not installed: pip install 'tavern-host[mcp]'"
CHANGED = "TOOLS_CHANGED"

_PATIENCE = 7.0
"""Seconds for which servers are waited for: fewer than the host gives the hook, which else would give no tools."""


def is_installed() -> bool:
    """Return whether the SDK is there."""
    return find_spec("mcp") is not None


class Servers(McpServers):
    """The servers of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._approvals = Approvals(context.operator_dir)
        self._connections: dict[str, Connection] = {}
        self._revision = -1
        self._declared: dict[str, Declared] = {}
        self._problems: dict[str, str] = {}
        context.own(State).servers = self

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    async def servers(self) -> list[McpServer]:
        """Return the servers by name."""
        declared = await self._known()
        found = [await self._shown(one) for one in declared.values()]
        layers = self._context.settings.layers("servers")
        for name, problem in self._problems.items():
            source: Literal["operator", "project"] = "project" if name in layers.get("project", {}) else "operator"
            found.append(McpServer(name=name, source=source, status="failed", problem=problem))
        return sorted(found, key=lambda one: one.name)

    async def offer(self) -> list[str]:
        """Return the patterns of what is offered to clients."""
        return offer_of(self._context)

    @gives_new
    async def call_tool(
        self, server: str, tool: str, arguments: dict[str, JsonValue], *, call: CallContext | None = None
    ) -> ToolOutput:
        """Call a tool; see the interface."""
        connection = await self._connection(server)
        await connection.client()  # what changed while nobody was connected is known then
        approved = self._approvals.of(server)
        if tool not in approved.tools:
            raise NotFound(f"the MCP server {server} has no tool {tool!r:.200}{did_you_mean(tool, approved.tools)}")
        if changes := approved.changes(tool):
            hint = f"look at it with `tavern mcp show {server}`, then `tavern mcp approve {server}`"
            raise Forbidden(f"{tool_id(server, tool)} is not called: {changes} changed since it was approved; {hint}")
        result = await connection.asked(
            lambda client, progress: client.call_tool(tool, arguments, progress_callback=progress), _by(call)
        )
        output = await self._output(server, result.content, result.structured_content)
        if result.is_error:
            said = "\n".join(part.text or "" for part in output.content if part.type == "text")[:4000]
            raise PluginFailure(said or f"{tool_id(server, tool)} failed and does not say why")
        return output

    @gives_new
    async def ask(
        self,
        server: str,
        what: Literal["resources", "resource", "prompts", "prompt"],
        arguments: dict[str, JsonValue],
        *,
        call: CallContext | None = None,
    ) -> ToolOutput:
        """List and read what a server has; see the interface."""
        connection = await self._connection(server)
        if what == "resource":
            read = await connection.asked(lambda client, _: client.read_resource(str(arguments["uri"])), _by(call))
            return await self._output(server, read.contents, None)
        if what == "prompt":
            name, values = str(arguments["name"]), arguments.get("arguments")
            texts = {key: str(one) for key, one in values.items()} if isinstance(values, dict) else {}
            filled = await connection.asked(lambda client, _: client.get_prompt(name, texts), _by(call))
            return await self._output(server, [message.content for message in filled.messages], None)
        from tavern_mcp.resources import all_of

        fields = ("uri", "name", "title", "description", "mimeType", "size", "arguments")

        async def listed(client: Any, _: object) -> list[JsonValue]:
            pages = await all_of(client.list_resources if what == "resources" else client.list_prompts, what)
            found = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in pages]
            return [{key: one[key] for key in fields if key in one} for one in found]

        return ToolOutput(structured=await connection.asked(listed, _by(call)))

    async def answered(self, arguments: dict[str, JsonValue], *, call: CallContext | None = None) -> ToolOutput:
        """Return a person's answer; see the interface."""
        return ToolOutput(structured=arguments.get("answer"))

    async def approve(self, name: str, *, call: CallContext | None = None) -> McpServer:
        """Approve a server as it is now; see the interface."""
        declared = await self._get(name)
        digest = await asyncio.to_thread(declared.digest)

        def approved(before: Approved) -> Approved:
            same = before if before.digest == digest else Approved(digest=digest)
            return same.model_copy(update={"tools": same.seen or same.tools})

        details: dict[str, JsonValue] = {"digest": digest, "shown": [*declared.shown()]}
        await self._context.services.get(AUDIT).record("mcp.approved", subject=name, details=details, call=call)
        self._approvals.change(name, approved)
        self._changed()
        return await self._shown(declared)

    # --- for this plugin --------------------------------------------------------------------------

    async def definitions(self) -> list[ToolDefinition]:
        """Return the tools of the servers that may be used. A server that nobody has seen yet is connected first; one
        that takes long is waited for once, so that it costs each command only its own tools."""
        declared = await self._known()
        if is_installed() and not self._context.serving:  # else they are connected at the start
            names = [name for name in await self._unseen() if not await self._is_slow(declared[name])]
            connecting = self._context.tasks.spawn(self._connect(names), name="connect MCP servers")
            await asyncio.wait([connecting], timeout=_PATIENCE)
            for name in names if not connecting.done() else ():
                if not self._connections[name].is_open:
                    self._approvals.change(name, lambda before: before.model_copy(update={"slow": True}))
        found: list[ToolDefinition] = [answer_tool()]
        for one in await self.servers():
            is_usable = one.name in declared and one.status != "unapproved"
            made = [*definitions_of(declared[one.name], self._approvals.of(one.name))] if is_usable else []
            if not made:
                why = one.problem or ("it has no tools" if one.status == "connected" else "it is not connected yet")
                if is_usable and not one.problem and await self._is_slow(declared[one.name]):
                    why = f"it did not answer in time; `tavern mcp show {one.name}` waits longer"
                found.append(missing := out_of_reach(one.name, why))
                if one.problem and one.name not in self._connections:  # else that is in the log
                    self._report(str(missing.unavailable))
            for definition in made:
                if isinstance(definition, str):
                    self._report(definition)
                else:
                    found.append(definition)
        return found

    async def connect_all(self, *, new: bool = False) -> None:
        """Connect the servers that may be used; with `new`, those of which nobody knows yet what they offer."""
        await self._connect(await self._unseen() if new else await self._usable())

    async def _connect(self, names: list[str]) -> None:
        await asyncio.gather(*(self.connect(name) for name in names))

    async def _usable(self) -> list[str]:
        return [one.name for one in (await self._known()).values() if await self._is_approved(one)]

    async def _unseen(self) -> list[str]:
        """Return the servers that may be used and of which nobody knows yet what they offer."""
        return [name for name in await self._usable() if not self._approvals.of(name).seen]

    async def connect(self, name: str) -> str:
        """Connect a server, and return why that was not possible, or an empty text."""
        try:
            await (await self._connection(name)).client()
        except TavernError as error:
            return error.message
        return ""

    def seen(self, name: str) -> list[str]:
        """Return in words what is other about tools of a server than was approved, as the server says it now."""
        return differences(self._approvals.of(name))

    async def prompt(self, server: str, name: str, call: CallContext) -> str:
        """Return the text of a prompt without arguments. Raises `ServiceUnavailable` where it is not given in time."""
        seconds = (await self._get(server)).server.seconds
        try:
            async with asyncio.timeout(seconds):  # which a tool has by itself
                output = await self.ask(server, "prompt", {"name": name}, call=call)
        except TimeoutError:
            raise ServiceUnavailable(f"the MCP server {server} did not answer within {seconds:g} s") from None
        return "\n".join(part.text or "" for part in output.content if part.type == "text")

    async def _known(self) -> dict[str, Declared]:
        if (revision := self._context.settings.revision) != self._revision:
            self._declared, self._problems = read_servers(self._context)
            self._revision = revision
            old = [name for name, one in self._connections.items() if one.declared != self._declared.get(name)]
            for name in old:
                await self._connections.pop(name).close()
        return self._declared

    async def _get(self, name: str) -> Declared:
        declared = await self._known()
        if name not in declared:
            if name in self._problems:
                raise Misconfigured(f"the MCP server {name} cannot be used: {self._problems[name]}")
            raise NotFound(f"there is no MCP server {name!r:.100}{did_you_mean(name, declared)}")
        return declared[name]

    async def _connection(self, name: str) -> Connection:
        declared = await self._get(name)
        if name not in self._connections:
            if not is_installed():
                raise Misconfigured(MISSING)
            await asyncio.to_thread(import_module, "tavern_mcp.connection")  # the SDK takes a second or two
            from tavern_mcp.connection import Connection

            self._connections[name] = Connection(self._context, declared, self._approvals, self._changed)
        return self._connections[name]

    async def _is_slow(self, one: Declared) -> bool:
        """Return whether the server, as it is set up now, is not waited for."""
        known = self._approvals.of(one.name)
        return known.slow and known.digest == await asyncio.to_thread(one.digest)

    async def _is_approved(self, one: Declared) -> bool:
        return not one.is_to_be_approved or self._approvals.of(one.name).digest == await asyncio.to_thread(one.digest)

    async def _shown(self, declared: Declared) -> McpServer:
        approved = self._approvals.of(declared.name)
        connection = self._connections.get(declared.name)
        problem = connection.problem if connection is not None else "" if is_installed() else MISSING
        status: Literal["unapproved", "idle", "connected", "failed"] = "failed" if problem else "idle"
        if not await self._is_approved(declared):
            status, problem = "unapproved", f"it is not approved as it is now: tavern mcp approve {declared.name}"
        elif connection is not None and connection.is_open:
            status, problem = "connected", ""
        tools = [
            McpTool(name=name, id=tool_id(declared.name, name), changed=approved.changes(name))
            for name in approved.tools
            if name in approved.seen
        ]
        return McpServer(
            name=declared.name,
            source=declared.source,
            status=status,
            shown=declared.shown(),
            problem=problem,
            tools=tools,
        )

    async def _output(self, server: str, content: list[Any], structured: Any) -> ToolOutput:
        from tavern_mcp.results import output_of

        about = content, structured, self._context.project, server
        if all(one.type == "text" for one in content if hasattr(one, "type")):
            return output_of(*about)
        return await asyncio.to_thread(output_of, *about)

    def _changed(self) -> None:
        self._context.events.publish(CHANGED, {})

    def _report(self, message: str) -> None:
        self._context.hooks.report(self._context.plugin, message, hint="tavern mcp list says more")


def _by(call: CallContext | None) -> CallContext:
    return call or system_call()
