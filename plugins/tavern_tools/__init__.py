"""The first-party plugin `tavern-tools`: the `toolManager` service, its routes, commands and prompt macro."""

from __future__ import annotations

from tavern_host.authoring import hookimpl
from tavern_host.contracts.commands import CommandInfo, CommandParameter
from tavern_host.contracts.http import RouteInfo
from tavern_host.contracts.macros import PromptMacroInfo
from tavern_host.contracts.services import ServiceInfo, service_info
from tavern_host.contracts.tools import TOOL_MANAGER


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    from tavern_tools.manager import Tools

    return [service_info(TOOL_MANAGER, Tools)]


@hookimpl
def tavern_register_prompt_macros() -> list[PromptMacroInfo]:
    return [
        PromptMacroInfo(
            name="system:available_tools",
            handler="tavern_tools.macros:available_tools",
            description="The tools that the agent may call, and how it asks for a call.",
        )
    ]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    return [
        RouteInfo(method="GET", path="/api/tools", handler="tavern_tools.web:index", summary="All tools."),
        RouteInfo(method="GET", path="/api/tools/{id}", handler="tavern_tools.web:show", summary="One tool."),
        RouteInfo(
            method="POST",
            path="/api/tools/execute",
            handler="tavern_tools.web:execute",
            summary='Carry out action text (`{"text"}`) or one call (`{"toolId", "arguments"}`).',
        ),
    ]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    tool = CommandParameter(name="id", help="The tool's id.", required=True)
    return [
        CommandInfo(name="tools list", help="List the tools.", handler="tavern_tools.commands:list_tools"),
        CommandInfo(
            name="tools show",
            help="Show one tool: what it does, its parameters, and where it comes from.",
            handler="tavern_tools.commands:show_tool",
            parameters=[tool],
        ),
        CommandInfo(
            name="tools call",
            help="Call a tool.",
            handler="tavern_tools.commands:call_tool",
            parameters=[
                tool,
                CommandParameter(
                    name="--arg",
                    help="An argument as NAME=VALUE; the value is converted to the parameter's type.",
                    multiple=True,
                ),
            ],
        ),
        CommandInfo(
            name="parse",
            help="Show the tool calls that action text asks for, without making them.",
            handler="tavern_tools.commands:parse",
            parameters=[CommandParameter(name="file", help="The file, or - for stdin.", type="path", required=True)],
        ),
    ]
