"""First-party plugin `tavern-devtools`: writes the files of a new plugin, checks one before it is
installed, and gives the JSON Schemas of files to editors."""

from __future__ import annotations

import asyncio

from tavern_host import CommandGroup, CommandInfo, CommandParameter, PluginContext, ServiceInfo, hookimpl
from tavern_host.contracts.plugins import all_started

_LATER = 2.0
"""Seconds after the start, in which the host can answer for the first time."""


_TRACE = CommandInfo(
    name="plugins trace",
    help="Follow which hooks, services, handlers, tools and events of a plugin there are, until Ctrl-C.",
    examples=("tavern plugins trace acme", "tavern plugins trace acme --for 60 --json"),
    handler="tavern_devtools.trace_command:trace",
    at_server=True,
    parameters=[
        CommandParameter(name="name", help="The plugin's name.", required=True),
        CommandParameter(name="--for", type="number", help="Seconds after which to end."),
    ],
)


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `pluginChecks`."""
    return [ServiceInfo(service="pluginChecks", handler="tavern_devtools.checks:Checks")]


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Check the plugins of a host that serves."""
    if context.serving:
        context.tasks.spawn(_follow(context), name="check plugins")


async def _follow(context: PluginContext) -> None:
    await asyncio.sleep(_LATER)
    await all_started(context.services)
    from tavern_devtools.checks import follow

    await follow(context)


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """The commands `tavern plugins new`, `check` and `trace`, and `tavern schema`."""
    return [
        CommandInfo(
            name="plugins new",
            help="Write the files of a new plugin, or add parts to one that is there.",
            examples=("tavern plugins new my-plugin", "tavern plugins new my-plugin --node --tool --ui vue"),
            handler="tavern_devtools.commands:new",
            standalone=True,
            parameters=[
                CommandParameter(name="name", help="The plugin's name, such as my-plugin.", required=True),
                CommandParameter(name="--folder", help="Where to write it; by default a folder of its name."),
                CommandParameter(name="--minimal", type="flag", help="A hook and a test, and nothing else."),
                CommandParameter(name="--node", type="flag", help="A node type."),
                CommandParameter(name="--tool", type="flag", help="A tool, made of a node."),
                CommandParameter(name="--hook", type="flag", help="A hook that sees runs of workflows."),
                CommandParameter(name="--service", type="flag", help="A service for other plugins."),
                CommandParameter(name="--override", type="flag", help="An override of one of the host's services."),
                CommandParameter(name="--agent", type="flag", help="An agent with its workflow."),
                CommandParameter(name="--knowledge", type="flag", help="A knowledge base."),
                CommandParameter(
                    name="--ui", help="A front end: vue, which is built, or vanilla, which is served as it is."
                ),
            ],
        ),
        CommandInfo(
            name="plugins check",
            help="Say what the host would say of a plugin, before it is installed.",
            examples=("tavern plugins check .", "tavern plugins check dist/my_plugin-0.1.0-py3-none-any.whl"),
            handler="tavern_devtools.commands:check",
            standalone=True,
            parameters=[
                CommandParameter(
                    name="path", type="path", help="A plugin's folder, its project's folder, or a wheel.", required=True
                ),
                CommandParameter(name="--no-import", type="flag", help="Read the files, and import no code."),
                CommandParameter(
                    name="--format",
                    help="text, lines for editors (file:line:column: level: message), or sarif for CI.",
                    default="text",
                ),
            ],
        ),
        _TRACE,
        CommandInfo(
            name="schema",
            help="Print the JSON Schema of a kind of file, for an editor, or write all of them.",
            examples=("tavern schema workflow",),
            handler="tavern_devtools.schema_command:show",
            standalone=True,
            group=CommandGroup(section="build"),
            parameters=[
                CommandParameter(name="kind", help="Which kind of file; without one they are listed."),
                CommandParameter(
                    name="--output", type="path", help="A folder to write all of them into, with a catalog."
                ),
            ],
        ),
    ]
