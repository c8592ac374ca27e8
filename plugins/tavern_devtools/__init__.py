"""First-party plugin `tavern-devtools`: writes the files of a new plugin, and checks one before it is installed."""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, hookimpl


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """The commands `tavern plugins new` and `tavern plugins check`."""
    return [
        CommandInfo(
            name="plugins new",
            help="Write the files of a new plugin.",
            handler="tavern_devtools.commands:new",
            standalone=True,
            parameters=[
                CommandParameter(name="name", help="The plugin's name, such as my-plugin.", required=True),
                CommandParameter(name="--folder", help="Where to write it; by default a folder of its name."),
                CommandParameter(name="--minimal", type="flag", help="A hook and a test, and nothing else."),
                CommandParameter(
                    name="--ui", help="A front end instead: vue, which is built, or plain, which is served as it is."
                ),
            ],
        ),
        CommandInfo(
            name="plugins check",
            help="Say what the host would say of a plugin, before it is installed.",
            handler="tavern_devtools.commands:check",
            standalone=True,
            parameters=[
                CommandParameter(
                    name="path", type="path", help="A plugin's folder, its project's folder, or a wheel.", required=True
                ),
                CommandParameter(name="--no-import", type="flag", help="Read the manifest alone."),
            ],
        ),
    ]
