"""The commands that decide about plugins, which are run whatever becomes of these; the host finds them by this module's
name.
"""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter
from tavern_host.contracts.commands import examples_of

_NAME = CommandParameter(name="name", help="The plugin's name.", required=True)
_ANY = CommandParameter(name="name", help="The plugin; all that changed, where none is named.")

_EXAMPLES = """
tavern plugins grant acme
tavern plugins revoke acme
tavern plugins enable acme
tavern plugins disable acme
tavern plugins isolate acme
tavern plugins isolate acme --undo
tavern plugins reload acme
"""


def _command(name: str, help: str, *parameters: CommandParameter) -> CommandInfo:
    about = {"handler": f"tavern_packages.decisions:{name}", "examples": examples_of(f"plugins {name}", _EXAMPLES)}
    return CommandInfo(name=f"plugins {name}", help=help, **about, parameters=[*(parameters or (_NAME,))])


COMMANDS = (
    _command("grant", "Grant a plugin what it asks for."),
    _command("revoke", "Take a plugin's grant back."),
    _command("enable", "Let a disabled plugin be loaded."),
    _command("disable", "Disable a plugin until it is enabled again."),
    _command(
        "isolate",
        "Run a plugin in a process and a sandbox of its own.",
        _NAME,
        CommandParameter(name="--undo", type="flag", help="Run it where its manifest and host.yaml say."),
        CommandParameter(
            name="--without-sandbox", type="flag", help="In a process that may do all that the host's user may."
        ),
    ),
    _command("reload", "Reload a plugin in a running host.", _ANY),
)
