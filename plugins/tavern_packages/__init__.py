"""The commands `tavern plugins install`, `upgrade`, `uninstall`, `search` and `index`, and the routes of most.

What they install is found by the host itself, as `contracts.packages` describes it; here it is only changed. The
module `host_commands` has those that decide about any plugin.
"""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, RouteInfo, hookimpl
from tavern_host.contracts.commands import examples_of

_BUILD = CommandParameter(
    name="--build", type="flag", help="Let what is no wheel be built, which runs its code before anybody reviews it."
)
_OUTSIDE = CommandParameter(
    name="--outside-index", type="flag", help="Take it from where pip does, not from the index."
)
_ONE = "packages:Package"
_GRANT = CommandParameter(name="--grant", type="flag", help="Grant what it asks for at once.")


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands that change which plugins are installed."""
    what = "A name, perhaps with versions (`acme>=2`), the address of a wheel, or a path."
    return [
        _command("install", "Install a plugin for the host alone.", _named("what", what), _GRANT, _BUILD, _OUTSIDE),
        _command(
            "upgrade",
            "Put another version of a plugin in the place of the one that is installed.",
            _named("name", "The plugin's name."),
            CommandParameter(name="what", help=f"{what} By default the newest version."),
            _GRANT,
            _BUILD,
            _OUTSIDE,
        ),
        _command(
            "rollback", "Use the version before an upgrade again, with its grant.", _named("name", "The plugin's name.")
        ),
        _command(
            "uninstall",
            "Remove an installed plugin; its data stay.",
            _named("name", "The plugin's name."),
            CommandParameter(name="--purge", type="flag", help="Remove its data in this project too."),
        ),
        _command(
            "index",
            "Print the entries of wheels in an index, or write them into one.",
            CommandParameter(name="wheels", help="The wheels.", type="path", required=True, multiple=True),
            CommandParameter(name="--into", help="The index that they are written into, made if need be.", type="path"),
            CommandParameter(
                name="--url",
                help="The address of the folder that the wheels will be in; without it, an index names their paths.",
            ),
        ),
        _command(
            "search", "Search the index of plugins.", CommandParameter(name="word", help="In a name or a summary.")
        ),
    ]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of what is installed and of the index."""
    change = {"answer": "packages:PackageChange", "access": "operate"}
    asked = {**change, "body": "packages:PackageRequest"}
    found = {"query": "IndexQuery", "answer": "PluginIndex", "access": "operate"}
    rows = (
        ("GET", "/api/packages", "list_packages", "What is installed for the host alone.", {"answer": f"{_ONE}[]"}),
        ("GET", "/api/packages/index", "search_index", "Search the operator's index of plugins.", found),
        ("POST", "/api/packages", "install", "Install a plugin for the host alone.", asked),
        ("POST", "/api/packages/{name}/upgrade", "upgrade", "Install another version of a plugin.", asked),
        ("POST", "/api/packages/{name}/rollback", "rollback", "Use the version before an upgrade again.", change),
        ("DELETE", "/api/packages/{name}", "uninstall", "Remove an installed plugin; its data stay.", change),
    )
    return [RouteInfo.of_module("tavern_packages.web", *row) for row in rows]


_EXAMPLES = """
tavern plugins install acme
tavern plugins install dist/acme-0.1.0-py3-none-any.whl --grant
tavern plugins upgrade acme
tavern plugins rollback acme
tavern plugins uninstall acme
tavern plugins search weather
tavern plugins index dist/acme-0.1.0-py3-none-any.whl --into index.json
"""


def _command(name: str, help: str, *parameters: CommandParameter) -> CommandInfo:
    module = "indexing" if name == "index" else "commands"
    about = {"handler": f"tavern_packages.{module}:{name}", "examples": examples_of(f"plugins {name}", _EXAMPLES)}
    return CommandInfo(name=f"plugins {name}", help=help, **about, standalone=True, parameters=[*parameters])


def _named(name: str, help: str) -> CommandParameter:
    return CommandParameter(name=name, help=help, required=True)
