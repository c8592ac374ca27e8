"""The routes of the project's files, under `/api/files`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from tavern_host.context import PluginContext
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.wire import Model
from tavern_tools.api.projectfiles import PROJECT_FILES


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
