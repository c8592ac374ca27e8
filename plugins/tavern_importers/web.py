"""The HTTP routes of imports; each hands over to the service."""

from __future__ import annotations

import asyncio

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.http import answer_with
from tavern_host.contracts.wire import Model
from tavern_importers.api.importers import IMPORT_MANAGER, ForeignFile, ImportOptions
from tavern_importers.project import exported, parts_of


class ImportQuery(Model):
    """The query of `POST /api/imports`: the file's name, and what is wanted. Patterns of `only`, and hosts, are
    separated by commas."""

    name: str = Field(min_length=1, max_length=300)
    kind: str | None = Field(default=None, max_length=100)
    called: str = Field(default="", max_length=200)
    only: str = Field(default="", max_length=4000)
    hosts: str = Field(default="", max_length=4000)
    replace: bool = False
    dry_run: bool = False


class ProjectQuery(Model):
    """The query of `GET /api/project-archive`: the wanted parts, separated by commas; all where none is named."""

    parts: str = Field(default="", max_length=4000)


async def list_kinds(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the kinds of files."""
    return HttpResponse(data=[one.to_json() for one in await context.services.get(IMPORT_MANAGER).kinds()])


async def import_file(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Import the file in the body."""
    query = request.read_query(ImportQuery)
    if not request.body:
        raise InvalidInput("the body is empty: it is to be the content of the file")
    wanted = {"only": _listed(query.only), "hosts": _listed(query.hosts), "name": query.called}
    options = ImportOptions(**wanted, replace=query.replace, dry_run=query.dry_run)
    file = ForeignFile(name=query.name, content=request.body)
    service = context.services.get(IMPORT_MANAGER)
    found = await service.import_file(file, kind=query.kind, options=options, call=request.call)
    return HttpResponse(data=found.to_json())


def _listed(text: str) -> list[str]:
    return [part for one in text.split(",") if (part := one.strip())]


async def list_parts(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the folders of the project, and how much is in them."""
    return HttpResponse(data=[one.to_json() for one in await asyncio.to_thread(parts_of, context.project)])


async def archive(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the project as one file."""
    found = await exported(context, _listed(request.read_query(ProjectQuery).parts), request.call)
    return await answer_with(found.to_json, is_large=True)
