"""First-party plugin `tavern-demo`: the command `tavern demo` and the sample of a new project."""

from __future__ import annotations

from tavern_host import CommandGroup, CommandInfo, hookimpl


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """The command `tavern demo`."""
    return [
        CommandInfo(
            name="demo",
            help="Show what the host does, in a throw-away project, within seconds.",
            handler="tavern_demo.demo:demo",
            group=CommandGroup(section="start"),
            standalone=True,
        )
    ]
