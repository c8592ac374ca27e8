"""The routes that edit the project's tool files. ETags are revisions, and a change of a file that is there must say
which one it is meant for."""

from __future__ import annotations

from urllib.parse import quote

from pydantic import Field, JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.wire import Model
from tavern_host.sdk.conditions import conditional, expected
from tavern_scripts.api.scripts import NamedLanguage
from tavern_tools.api.toolfiles import TOOL_FILES, ToolFile, ToolSource


class DeleteQuery(Model):
    """Whether the script goes too, unless another tool names it."""

    script: bool = False


class NamedSource(Model):
    """A tool file as it would be saved under a name."""

    name: str
    source: ToolSource


class TryBody(NamedSource):
    """A tool file as it would be saved, and the arguments of a call."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict)


class CodeBody(Model):
    """The code of a script, and the function in it that the tool is to call."""

    code: str
    language: NamedLanguage = "python"
    entry_point: str | None = None


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tool-files`."""
    return HttpResponse(data=[file.to_json() for file in await context.services.get(TOOL_FILES).list_files()])


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tool-files/{name}`."""
    return _answer(await context.services.get(TOOL_FILES).get(request.parameters["name"]))


async def save(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PUT /api/tool-files/{name}`."""
    name, source, files = request.parameters["name"], request.read(ToolSource), context.services.get(TOOL_FILES)
    try:
        before = (await files.get(name)).revision
    except NotFound:
        before = ""
    revision = expected(request, before, f"the tool file {name!r}")
    saved = await conditional(files.save(name, source, expected_revision=revision, call=request.call))
    return _answer(saved, status=200 if before else 201)


async def delete(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/tool-files/{name}`."""
    name, files = request.parameters["name"], context.services.get(TOOL_FILES)
    with_script = request.read_query(DeleteQuery).script
    revision = expected(request, (await files.get(name)).revision, f"the tool file {name!r}")
    await conditional(files.delete(name, with_script=with_script, expected_revision=revision, call=request.call))
    return HttpResponse(data={"success": True, "message": f"the tool file {name} is deleted"})


async def check(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/tool-check`."""
    body = request.read(NamedSource)
    return HttpResponse(data=(await context.services.get(TOOL_FILES).check(body.name, body.source)).to_json())


async def draft(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/tool-draft`."""
    body, files = request.read(CodeBody), context.services.get(TOOL_FILES)
    return HttpResponse(data=(await files.draft(body.code, body.language, entry_point=body.entry_point)).to_json())


async def try_out(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/tool-try`: a failed call is a result, not an HTTP error."""
    body, files = request.read(TryBody), context.services.get(TOOL_FILES)
    result = await files.try_out(body.name, body.source, body.arguments, call=request.call)
    return HttpResponse(data=result.to_json())


def _answer(file: ToolFile, *, status: int = 200) -> HttpResponse:
    headers = {"ETag": f'"{file.revision}"'}
    if status == 201:
        headers["Location"] = f"/api/tool-files/{quote(file.name, safe='')}"
    return HttpResponse(status=status, data=file.to_json(), headers=headers)
