"""Rows of the host's own commands, and of all commands that are known without a host: they import nothing of what
carries the commands out."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.plugins.grants import SWITCHES, SwitchStore
from tavern_host.projects import Folders, find_project
from tavern_host.runtime.installed import first_party, first_party_modules, installed_plugins


def _command(name: str, help: str, handler: str, *parameters: CommandParameter) -> CommandInfo:
    about = CommandGroup(help=_PLUGINS if name.startswith("plugins ") else "", section=_SECTIONS.get(name, "plugins"))
    asks = name in ("plugins list", "plugins show")
    shown, given = examples_of(name, _EXAMPLES), [*parameters]
    return CommandInfo(
        name=name,
        help=help,
        handler=f"{_HANDLERS}:{handler}",
        group=about,
        parameters=given,
        at_server=asks,
        examples=shown,
    )


_EXAMPLES = """
tavern serve --port 9000
tavern serve --address 0.0.0.0 --name inn.example --tls-cert cert.pem --tls-key key.pem
tavern token --renew
tavern init my-project
tavern plugins list --check
tavern plugins show acme
"""
_PLUGINS = "See, install, review and isolate plugins; make one."
_SECTIONS: dict[str, Literal["start", "people"]] = {"serve": "start", "init": "start", "token": "people"}


_HANDLERS = "tavern_host.cli.host_commands"
_ALL = (
    _command(
        "serve",
        "Run the host and its web page on this machine.",
        "serve",
        CommandParameter(name="--port", type="integer", default=8188, help="Port; 0 takes any free one."),
        CommandParameter(name="--address", default="127.0.0.1", help="Where it listens; 0.0.0.0 is on all interfaces."),
        CommandParameter(
            name="--name", multiple=True, help="What clients call it, such as inn.example or inn.example:9000."
        ),
        CommandParameter(name="--tls-cert", type="path", help="A certificate with its chain (PEM)."),
        CommandParameter(name="--tls-key", type="path", help="The key of the certificate (PEM)."),
        CommandParameter(name="--base-path", default="", help="What its paths begin with, such as /tavern."),
        CommandParameter(name="--trusted-proxy", multiple=True, help="The address or network of a proxy before it."),
        CommandParameter(name="--also", type="path", multiple=True, help="Another project to serve beside it."),
        CommandParameter(
            name="--drain", type="number", default=10, help="Seconds that work in flight has to end when it stops."
        ),
        CommandParameter(name="--log-format", default="text", help="What the log's lines are: text or json."),
        CommandParameter(
            name="--log-level", multiple=True, help="DEBUG, INFO, WARNING or ERROR; of one plugin NAME=LEVEL."
        ),
    ),
    _command(
        "token",
        "Show the token with which the operator enters the page of `tavern serve`.",
        "token",
        CommandParameter(name="--renew", type="flag", help="Make another one; sessions with this one end."),
    ),
    _command(
        "init",
        "Make a project in a folder, with a sample that runs.",
        "init",
        CommandParameter(name="folder", help="The folder, made if need be.", required=True),
        CommandParameter(name="--empty", type="flag", help="Leave the sample out."),
    ),
    _command(
        "plugins list",
        "List all plugins; imports none of them.",
        "list_plugins",
        CommandParameter(name="--check", type="flag", help="Load them, and say what is wrong with their code."),
    ),
    _command(
        "plugins show",
        "Show a plugin and what it asks for.",
        "show_plugin",
        CommandParameter(name="name", help="The plugin's name.", required=True),
    ),
)
HOST_COMMANDS: dict[str, CommandInfo] = {info.name: info for info in _ALL}


def host_commands() -> dict[str, CommandInfo]:
    """Return the host's own commands, and what first-party plugins have in a module `host_commands`: as `COMMANDS`
    those that are run as the host's own are, whatever becomes of plugins."""
    found = dict(HOST_COMMANDS)
    for module in first_party_modules("host_commands"):
        found |= {info.name: info for info in module.COMMANDS}
    return found


def known_commands(options: Mapping[str, Any]) -> list[CommandInfo] | None:
    """Return all commands of the host that the options of `tavern` ask for, where these are its own and those of all
    first-party plugins. None where only a host can say: another plugin may have some, or one was left out, or disabled.
    """
    try:
        folders = Folders.of_user()
        project = find_project(options["project"], folders).project
        switches = SwitchStore(folders.project_state(project) / SWITCHES).load()
        if options["dev"] or options["no_plugin"] or switches.disabled or folders.operator_file().disabled:
            return None
        if not options["no_plugins"] and (any(project.plugins.glob("*/")) or not _first_party_alone(folders)):
            return None
        offers = [getattr(import_module(package), "tavern_register_commands", None) for package, _ in first_party()]
        return [*host_commands().values(), *(info for offer in offers if offer is not None for info in offer())]
    except Exception:  # the host says what is wrong, and with which plugin
        return None


def _first_party_alone(folders: Folders) -> bool:
    return all(one.first_party for one in installed_plugins(folders.packages))
