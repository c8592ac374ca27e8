"""The commands `tavern mcp list | show | add | approve | serve`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import cast

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured
from tavern_mcp.api.servers import MCP_SERVERS, McpServer
from tavern_mcp.declarations import read_server
from tavern_mcp.entry import servers_of
from tavern_mcp.fetched import packaged
from tavern_mcp.importing import keep
from tavern_mcp.offers import offer_of, unmatched
from tavern_mcp.service import MISSING, is_installed

_NOTHING = "Nothing is offered: name tools in extensions.tavern-mcp.offer."
_COLUMNS = ["Server", "From", "Status", "Tools", "What it is", "Problem"]


async def list_servers(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`mcp list`."""
    servers = await context.services.get(MCP_SERVERS).servers()
    if servers and not is_installed():
        yield CommandOutput(kind="progress", text=MISSING)
    rows = [
        [one.name, one.source, one.status, str(len(one.tools)), "; ".join(one.shown), one.problem] for one in servers
    ]
    yield CommandOutput(kind="table", columns=_COLUMNS, rows=rows)
    yield CommandOutput(kind="result", data=[one.to_json() for one in servers])


async def show(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`mcp show NAME`."""
    name = str(arguments["name"])
    servers = await servers_of(context)
    problem = await servers.connect(name)
    found = next((one for one in await servers.servers() if one.name == name), None)
    if found is None:
        yield CommandOutput(kind="failure", text=problem, exit_code=2)
        return
    for output in _shown(found):
        yield output
    if found.status != "unapproved":
        for text in servers.seen(name):
            yield CommandOutput(kind="text", text=text)
    yield CommandOutput(kind="result", data=found.to_json())


async def approve(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`mcp approve NAME`."""
    servers = await servers_of(context)
    name = str(arguments["name"])
    call = operator_call(context.project.id)
    found = await context.services.get(MCP_SERVERS).approve(name, call=call)
    for output in _shown(found):
        yield output
    problem = await servers.connect(name)
    yield CommandOutput(kind="text", text=f"{name} is approved. {problem}".strip())
    yield CommandOutput(kind="result", data=found.to_json())


async def add(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`mcp add NAME`."""
    name, servers = str(arguments["name"]), await servers_of(context)
    if any(one.name == name for one in await servers.servers()):
        raise Conflict(f"there is an MCP server {name} already; extensions.tavern-mcp names it")
    server = _server(arguments)
    if isinstance(declared := read_server(name, "operator", server, context, is_imported=True), str):
        raise InvalidInput(f"the MCP server {name} cannot be set up so: {declared}")
    await keep({name: server}, context, operator_call(context.project.id))
    found = next(one for one in await servers.servers() if one.name == name)
    if not arguments["approve"]:
        for output in _shown(found):
            yield output
        yield CommandOutput(kind="text", text=f"Let it be started: tavern mcp approve {name}")
        yield CommandOutput(kind="result", data=found.to_json())
        return
    async for output in approve(arguments, context):
        yield output


def _server(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a server as arguments of the command say it. Raises `InvalidInput`."""
    words = [str(word) for word in cast("list[JsonValue]", arguments["words"])]
    server: dict[str, JsonValue] = {key: arguments[key] for key in ("npm", "pypi", "url") if arguments[key]}
    if not server:
        if not words:
            raise InvalidInput("say what it is: --npm or --pypi with a package, --url with an address, or its program")
        server = packaged(words[0], words[1:]) or {"command": words[0], "args": cast("JsonValue", words[1:])}
    elif words:
        server["args"] = cast("JsonValue", words)
    for option, key in (("env", "env"), ("header", "headers")):
        pairs = [str(one).partition("=") for one in cast("list[JsonValue]", arguments[option])]
        if wrong := next((first for first, mark, _ in pairs if not mark), None):
            raise InvalidInput(f"--{option} {wrong}: expected NAME=VALUE")
        server |= {key: {first: value for first, _, value in pairs}} if pairs else {}
    for option, key in (("read", "read"), ("write", "write"), ("host", "hosts")):
        server |= {key: arguments[option]} if arguments[option] else {}
    return server


async def serve(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`mcp serve`."""
    if not is_installed():
        raise Misconfigured(MISSING)
    import anyio
    from mcp.server.stdio import stdio_server

    from tavern_mcp.offering import make_server

    for text in await unmatched(context) if offer_of(context) else [_NOTHING]:
        yield CommandOutput(kind="progress", text=text)
    call = operator_call(context.project.id)
    server = make_server(context, lambda _: call)
    # sys.stdout is what is shown to a person here
    stdin = anyio.wrap_file(os.fdopen(os.dup(0), encoding="utf-8", errors="replace"))
    stdout = anyio.wrap_file(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    async with stdio_server(stdin, stdout) as (read, write):
        await server.run(read, write, server.create_initialization_options())
    yield CommandOutput(kind="progress", text="The client has left.")


def _shown(server: McpServer) -> list[CommandOutput]:
    lines = [f"{server.name}, set up by the {server.source}: {server.status}", *(f"  {line}" for line in server.shown)]
    lines += [f"  {server.problem}"] if server.problem else []
    lines += [f"  {tool.id}" + (f": {tool.changed} changed" if tool.changed else "") for tool in server.tools]
    return [CommandOutput(kind="text", text=line) for line in lines]
