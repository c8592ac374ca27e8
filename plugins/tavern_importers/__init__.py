"""The service `importManager` with its command and its routes: which files of other programs there are importers for,
which of them a file is of, and the hook by which plugins add kinds. What a file means is its importer's business.
"""

from __future__ import annotations

from tavern_host import CommandGroup, CommandInfo, CommandParameter, RouteInfo, ServiceInfo, hookimpl

_KINDS = {"answer": "api.importers:ImportKind[]"}
_IMPORT = {"query": "ImportQuery", "answer": "api.importers:ImportResult"}
_ROUTES = (
    ("GET", "/api/import-kinds", "list_kinds", "The kinds of files that can be imported.", _KINDS),
    ("POST", "/api/imports", "import_file", "Import a file of another program: its content is the body.", _IMPORT),
)
_PARAMETERS = (
    CommandParameter(name="file", type="path", help="The file; of a plugin of another program, its folder."),
    CommandParameter(name="--as", help="What it is, where its marks do not say it; see --kinds."),
    CommandParameter(name="--name", help="What it is to be called, where its own name is not it."),
    CommandParameter(name="--only", multiple=True, help="Of several things, take these alone; * and ? are patterns."),
    CommandParameter(name="--host", multiple=True, help="A host that programs in it may ask to reach."),
    CommandParameter(name="--dry-run", type="flag", help="Say what would come, and keep nothing."),
    CommandParameter(name="--kinds", type="flag", help="List the kinds of files that can be imported."),
)


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `importManager`."""
    return [ServiceInfo(service="importManager", handler="tavern_importers.service:Imports")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of imports."""
    return [RouteInfo.of_module("tavern_importers.web", *route) for route in _ROUTES]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the command `tavern import`."""
    return [
        CommandInfo(
            name="import",
            help="Import a file of another program: a workflow, tools, MCP servers, a character, a conversation.",
            examples=("tavern import workflow.json --dry-run",),
            handler="tavern_importers.commands:import_file",
            group=CommandGroup(section="build"),
            parameters=[*_PARAMETERS],
        )
    ]
