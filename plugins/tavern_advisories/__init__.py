"""The command `tavern advisories`, and the event `ADVISORY` of a server."""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, PluginContext, hookimpl


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the command `advisories`."""
    return [
        CommandInfo(
            name="advisories",
            help="Compare the packages of the host, of plugins and of scripts with a database of advisories (OSV).",
            handler="tavern_advisories.commands:advisories",
            parameters=[
                CommandParameter(name="--database", help="A file, folder or address, by default that of the settings.")
            ],
        )
    ]


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Compare regularly, in a host that serves."""
    if context.serving:
        context.tasks.spawn(_compare(context), name="compare what is installed with advisories")


async def _compare(context: PluginContext) -> None:
    from tavern_advisories.regular import compare_regularly  # imports what only a server needs

    await compare_regularly(context)
