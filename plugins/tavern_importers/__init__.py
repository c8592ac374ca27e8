"""The service `importManager` with its command and its routes: which files of other programs there are importers for,
which of them a file is of, and the hook by which plugins add kinds. What a file means is its importer's business.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host import CommandGroup, CommandInfo, CommandParameter, RouteInfo, ServiceInfo, hookimpl
from tavern_importers.api.importers import ImporterInfo

_KINDS = {"answer": "api.importers:ImportKind[]"}
_IMPORT = {"query": "ImportQuery", "answer": "api.importers:ImportResult"}
_PARTS = {"answer": "api.projects:ProjectPart[]", "access": "operate"}
_ARCHIVE = {"query": "ProjectQuery", "answer": "api.projects:ProjectArchive", "access": "operate"}
_ROUTES = (
    ("GET", "/api/import-kinds", "list_kinds", "The kinds of files that can be imported.", _KINDS),
    ("POST", "/api/imports", "import_file", "Import a file of another program: its content is the body.", _IMPORT),
    ("GET", "/api/project-parts", "list_parts", "What the folder of the project holds.", _PARTS),
    ("GET", "/api/project-archive", "archive", "The project as one file, without secrets.", _ARCHIVE),
)
_TAKE: dict[str, Any] = {"handler": "tavern_importers.project:take", "access": "operate"}
_OF_PROJECT: dict[str, JsonValue] = {
    "type": "object",
    "required": ["format", "files"],
    "properties": {"format": {"const": "tavern-project"}},
}
_OF_PROJECT_FILE: dict[str, JsonValue] = {
    "type": ["object", "null"],
    "properties": {"name": {}, "description": {}, "settings": {"type": "object"}},
    "additionalProperties": False,
}
_PARAMETERS = (
    CommandParameter(name="file", type="path", help="The file; of a plugin of another program, its folder."),
    CommandParameter(name="--as", help="What it is, where its marks do not say it; see --kinds."),
    CommandParameter(name="--name", help="What it is to be called, where its own name is not it."),
    CommandParameter(name="--only", multiple=True, help="Of several things, take these alone; * and ? are patterns."),
    CommandParameter(name="--host", multiple=True, help="A host that programs in it may ask to reach."),
    CommandParameter(name="--replace", type="flag", help="Of a project, replace files that are here already."),
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
def tavern_register_importers() -> list[ImporterInfo]:
    """Import projects of this host."""
    return [
        ImporterInfo(name="project", title="project of this host", marks=_OF_PROJECT, **_TAKE),
        ImporterInfo(
            name="project-folder",
            title="folder of a project of this host",
            marks=_OF_PROJECT_FILE,
            forms=["yaml"],
            entries=["tavern.yaml"],
            **_TAKE,
        ),
    ]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern import` and `tavern export`."""
    return [
        CommandInfo(
            name="import",
            help="Import a file of another program: a workflow, tools, MCP servers, a character, a conversation.",
            examples=("tavern import workflow.json --dry-run",),
            handler="tavern_importers.commands:import_file",
            group=CommandGroup(section="build"),
            parameters=[*_PARAMETERS],
        ),
        CommandInfo(
            name="export",
            help="Write the project, or some of its folders, as one file to hand on, without secrets.",
            examples=("tavern export project.json --part workflows --part agents",),
            handler="tavern_importers.commands:export_project",
            group=CommandGroup(section="build"),
            parameters=[
                CommandParameter(name="file", type="path", required=True, help="The new file."),
                CommandParameter(name="--part", multiple=True, help="A folder of the project; all if left out."),
            ],
        ),
    ]
