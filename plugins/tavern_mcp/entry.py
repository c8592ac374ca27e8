"""From the plugin's hooks to its service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable
from tavern_mcp import State
from tavern_mcp.api.servers import MCP_SERVERS
from tavern_mcp.approvals import Approvals
from tavern_mcp.declarations import read_servers
from tavern_mcp.offers import unmatched
from tavern_mcp.service import CHANGED, Servers
from tavern_tools.api.macros import MacroRequest, PromptMacroInfo

_AGAIN = 15.0


async def servers_of(context: PluginContext) -> Servers:
    """Return this plugin's own provider, made if necessary."""
    state = context.own(State)
    if state.servers is None:
        await context.services.get(MCP_SERVERS).servers()
    if state.servers is None:
        raise ServiceUnavailable("another plugin provides the MCP servers here")
    return state.servers


async def connect_all(context: PluginContext, changes: AsyncIterator[list[str]], changed: list[str]) -> None:
    """Connect all servers that may be used, and again when they are set up in another way; report what is to be offered
    and is not there. `changed` are the settings that changed before, since the start."""
    servers = await servers_of(context)
    await servers.connect_all()
    context.tasks.spawn(_try_again(servers), name="connect MCP servers that could not be reached")
    while True:
        if {"servers", "imported"} & {*changed}:
            context.events.publish(CHANGED, {})
        for message in await unmatched(context):
            context.hooks.report(context.plugin, message, hint="tavern tools list shows what there is")
        if not (changed := await anext(changes, [])):
            return
        if {"servers", "imported"} & {*changed}:
            await servers.connect_all()


async def _try_again(servers: Servers) -> None:
    """Connect those of which nobody knows yet what they offer, which nobody calls for that reason."""
    while True:
        await asyncio.sleep(_AGAIN)
        await servers.connect_all(new=True)


def known_prompts(context: PluginContext) -> list[PromptMacroInfo]:
    """Return the prompts without arguments that servers had when they were connected last."""
    declared, _ = read_servers(context)
    approvals = Approvals(context.operator_dir)
    try:
        known = {name: approvals.of(name) for name in declared}
    except ServiceUnavailable:
        return []
    return [
        PromptMacroInfo(
            name=f"mcp:{name}/{one['name']}",
            handler=prompt,
            description=f"A prompt of the MCP server {name}.",
        )
        for name, approved in known.items()
        for one in approved.prompts
        if not one["needs"]
    ]


async def prompt(request: MacroRequest, context: PluginContext) -> str:
    """Return the text of a prompt, in which no macros are filled in."""
    server, slash, name = request.name.removeprefix("mcp:").partition("/")
    if not slash:
        raise InvalidInput(f"{request.name} names no prompt")
    text = await (await servers_of(context)).prompt(server, name, request.call)
    return text.replace("{{{", "{ { {")
