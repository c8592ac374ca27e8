"""The routes of the project's files, under `/api/files`."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from tavern_host.context import PluginContext
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.http import HttpRequest, HttpResponse, RouteInfo
from tavern_host.contracts.projectfiles import PROJECT_FILES
from tavern_host.contracts.wire import Model

_FILE = "/api/files/{path}"
_ROUTES = (
    ("GET", "/api/files", "index", "The files and folders in a folder of the project's files."),
    ("GET", _FILE, "show", "Stream a file, or ranges of it."),
    ("PUT", _FILE, "save", "Write a file: a text, or a Blob that `POST /api/blobs` has taken as a stream."),
    ("DELETE", _FILE, "delete", "Delete a file or an empty folder."),
)
_TYPES: dict[str, dict[str, Any]] = {
    "index": {"query": "FilesQuery", "answer": "projectfiles:FileListing"},
    "show": {"content_type": "*/*"},
    "save": {"body": "FileBody", "answer": "projectfiles:FileWritten"},
    "delete": {"answer": "projectfiles:FileDeleted"},
}
"""What goes in and out of the routes, by function."""


class FilesQuery(Model):
    """Which folder; with `recursive` what is in its folders too. `pattern` picks by name, or with a `/` by path."""

    path: str = ""
    recursive: bool = False
    pattern: str | None = None
    limit: int = Field(default=500, ge=1, le=5000)


class FileBody(Model):
    """The content of a file: a text, or a Blob. Without `overwrite` a file that is there stays (409)."""

    content: str | None = None
    blob: Blob | None = None
    overwrite: bool = True

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.content is None) == (self.blob is None):
            raise ValueError("give either content or blob")
        return self


def file_routes() -> list[RouteInfo]:
    """Return the routes of files."""
    return [RouteInfo.of_module("tavern_tools.web.file_routes", *route, _TYPES[route[2]]) for route in _ROUTES]


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/files`: what is in a folder."""
    asked = request.read_query(FilesQuery)
    listing = await context.services.get(PROJECT_FILES).list_files(
        asked.path, recursive=asked.recursive, pattern=asked.pattern, limit=asked.limit, call=request.call
    )
    return HttpResponse(data=listing.to_json())


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/files/{path}`: the file as a stream."""
    files = context.services.get(PROJECT_FILES)
    return HttpResponse(blob=await files.read_blob(request.parameters["path"], call=request.call))


async def save(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PUT /api/files/{path}`: the file as it is then."""
    body, path, files = request.read(FileBody), request.parameters["path"], context.services.get(PROJECT_FILES)
    if body.blob is not None:
        written = await files.write_blob(path, body.blob, overwrite=body.overwrite, call=request.call)
    else:
        written = await files.write_file(path, body.content or "", overwrite=body.overwrite, call=request.call)
    return HttpResponse(data=written.to_json())


async def delete(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/files/{path}`: what was deleted."""
    deleted = await context.services.get(PROJECT_FILES).delete_file(request.parameters["path"], call=request.call)
    return HttpResponse(data=deleted.to_json())
