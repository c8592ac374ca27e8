"""The Model Context Protocol in both directions: servers that are set up become tools, and tools of the project are
offered to clients. Nothing of the SDK is imported until a server is reached or a client comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tavern_host import (
    CommandGroup,
    CommandInfo,
    CommandParameter,
    PluginContext,
    RouteInfo,
    ServiceInfo,
    ToolDefinition,
    hookimpl,
)
from tavern_host.contracts.commands import examples_of
from tavern_importers.api.importers import ImporterInfo
from tavern_tools.api.macros import PromptMacroInfo

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from tavern_mcp.service import Servers


class State:
    """What the parts of this plugin share. `servers` is None until this plugin's own service is used, and `sessions`,
    those of clients over HTTP, until the first of them comes. `importing` is held while servers are imported."""

    def __init__(self, context: PluginContext) -> None:
        self.servers: Servers | None = None
        self.importing = asyncio.Lock()
        self.sessions: asyncio.Future[StreamableHTTPSessionManager] | None = None


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `tavern-mcp.servers`."""
    return [ServiceInfo(service="tavern-mcp.servers", handler="tavern_mcp.service:Servers")]


@hookimpl
async def tavern_discover_tools(context: PluginContext) -> list[ToolDefinition]:
    """Return the tools of the servers."""
    if not _has_servers(context):
        return []
    from tavern_mcp.entry import servers_of

    return await (await servers_of(context)).definitions()


@hookimpl
def tavern_register_prompt_macros(context: PluginContext) -> list[PromptMacroInfo]:
    """Return the prompts of the servers that need no arguments, as far as they are known."""
    if not _has_servers(context):
        return []
    from tavern_mcp.entry import known_prompts

    return known_prompts(context)


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the way for clients over HTTP."""
    json, events = "application/json", "text/event-stream"
    sums = {
        "POST": ("A message of an MCP client (streamable HTTP), answered as JSON or as events.", f"{json}, {events}"),
        "GET": ("What the server tells an MCP client by itself, as events.", events),
        "DELETE": ("End the session of an MCP client.", json),
    }
    return [
        RouteInfo(
            method=method,
            path="/mcp",
            handler="tavern_mcp.http:answer",
            summary=summary,
            content_type=types,
            accepts=method == "POST",
            error_type=json,
            access="create",
        )
        for method, (summary, types) in sums.items()
    ]


_ADDING = [
    CommandParameter(
        name="words",
        multiple=True,
        help="The program with its arguments, or those of the package's, after -- where options are among them.",
    ),
    CommandParameter(name="--npm", help="The package of npm whose program it is, such as @scope/name@1.2."),
    CommandParameter(name="--pypi", help="The package of PyPI whose program it is, such as name==1.2."),
    CommandParameter(name="--url", help="The address where it is reached."),
    CommandParameter(name="--env", multiple=True, help="A variable that it gets, as NAME=VALUE."),
    CommandParameter(name="--header", multiple=True, help="A header that is sent to the address, as NAME=VALUE."),
    CommandParameter(name="--read", type="path", multiple=True, help="A file or folder that it sees."),
    CommandParameter(name="--write", type="path", multiple=True, help="A file or folder that it may change."),
    CommandParameter(name="--host", multiple=True, help="A host that it reaches, of those that scripts may reach."),
    CommandParameter(name="--approve", type="flag", help="Approve and connect it at once."),
]
_EXAMPLES = """
tavern mcp add files --npm @modelcontextprotocol/server-filesystem --read notes
tavern mcp add search --url https://mcp.example.com/mcp --approve
tavern mcp approve files
tavern mcp show files
"""


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `mcp …`."""
    of, one = "tavern_mcp.commands", [CommandParameter(name="name", required=True, help="The server.")]
    rows: tuple[tuple[str, str, list[CommandParameter], str], ...] = (
        ("list", "list_servers", [], "Show the MCP servers that are set up, and how they stand."),
        ("show", "show", one, "Connect an MCP server that is approved, and show what it is given and what it offers."),
        ("add", "add", [*one, *_ADDING], "Set up an MCP server by its program, its package, or its address."),
        ("approve", "approve", one, "Approve a project's MCP server as it is set up now, and tools that have changed."),
        ("serve", "serve", [], "Offer tools of the project to an MCP client, over standard input and output."),
    )
    return [
        CommandInfo(
            name=f"mcp {name}",
            help=help,
            examples=examples_of(f"mcp {name}", _EXAMPLES),
            handler=f"{of}:{run}",
            group=CommandGroup(help="Use tools of MCP servers, and offer tools to MCP clients.", section="build"),
            at_server=name != "serve",
            parameters=flags,
        )
        for name, run, flags, help in rows
    ]


@hookimpl
def tavern_register_importers() -> list[ImporterInfo]:
    """Import the servers of other programs' configurations."""
    from tavern_mcp.importing import importers

    return importers()


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Connect the servers in a host that serves, so that their tools are known."""
    if context.serving:
        context.tasks.spawn(_connect(context), name="connect MCP servers")


async def _connect(context: PluginContext) -> None:
    """Wait until something is set up, and connect the servers."""
    changes, changed = context.settings.changes(), list[str]()
    while not (_has_servers(context) or _is_set(context, "offer")):
        if not (changed := await anext(changes, [])):  # the plugin is unloaded
            return
    from tavern_mcp.entry import connect_all

    await connect_all(context, changes, changed)


def _has_servers(context: PluginContext) -> bool:
    return _is_set(context, "servers") or _is_set(context, "imported")


def _is_set(context: PluginContext, key: str) -> bool:
    return bool(context.settings.layers(key).keys() - {"default"})
