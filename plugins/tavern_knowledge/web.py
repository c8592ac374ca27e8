"""The HTTP routes of knowledge bases; each hands over to the service and shapes its answer."""

from __future__ import annotations

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.wire import Model
from tavern_knowledge.api.answers import ReplaceQuery, RevisionQuery
from tavern_knowledge.api.knowledge import (
    KNOWLEDGE_BASE,
    ActivationRequest,
    BaseHeader,
    ExportFormat,
    KnowledgeBase,
    KnowledgeEntry,
)


class SearchBody(Model):
    """The body of `POST /api/knowledge-search`."""

    query: str = Field(max_length=10_000)
    bases: list[str] | None = None
    tags: list[str] = Field(default_factory=list)
    entry_types: list[str] = Field(default_factory=list)
    limit: int = Field(default=5, ge=1, le=1000)


class EntriesBody(Model):
    """The body of `POST /api/knowledge/{base}/entries`."""

    entries: list[KnowledgeEntry]


class ExportQuery(Model):
    """The query of `GET /api/knowledge/{base}/export`."""

    format: ExportFormat = "world_info"


class PageQuery(Model):
    """The query of `GET /api/knowledge/{base}/entries`."""

    limit: int = Field(default=100, ge=1, le=1000)
    offset: int = Field(default=0, ge=0)


async def list_bases(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the bases."""
    return HttpResponse(data=[base.to_json() for base in await _kb(context).bases(call=request.call)])


async def search(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the entries that fit best."""
    body = read_model(SearchBody, request.json_body(), "the body is not {query, bases?, tags?, entryTypes?, limit?}")
    found = await _kb(context).search(
        body.query, bases=body.bases, tags=body.tags, entry_types=body.entry_types, limit=body.limit, call=request.call
    )
    return HttpResponse(data=[hit.to_json() for hit in found])


async def activate(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the entries that a conversation brings into a prompt, and why."""
    body = read_model(ActivationRequest, request.json_body(), "the body is not {messages, bases?, seed?, budget? …}")
    return HttpResponse(data=(await _kb(context).activate(body, call=request.call)).to_json())


async def get_base(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a base without its entries."""
    return HttpResponse(data=(await _kb(context).header(_base(request), call=request.call)).to_json())


async def save_base(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make a base, or change what is said of it."""
    body = request.json_body()
    named = {**body, "kb_id": _base(request)} if isinstance(body, dict) else body
    header = read_model(BaseHeader, named, "the body is no base")
    return HttpResponse(data=(await _kb(context).save_base(header, call=request.call)).to_json())


async def delete_base(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Remove a base with its file."""
    return HttpResponse(data={"deleted": await _kb(context).delete_base(_base(request), call=request.call)})


async def import_base(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make a base of the document that is the body; `?replace=true` replaces one that is there."""
    replace = request.read_query(ReplaceQuery).replace
    report = await _kb(context).import_base(_base(request), request.body, replace=replace, call=request.call)
    return HttpResponse(data=report.to_json())


async def export_base(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a base as a document: `?format=`; the header `X-Unsupported` names what it cannot hold."""
    asked = request.read_query(ExportQuery)
    made = await _kb(context).export_base(_base(request), format=asked.format, call=request.call)
    headers = {"X-Unsupported": ", ".join(made.unsupported)} if made.unsupported else {}
    return HttpResponse(body=made.content, content_type=made.media_type, headers=headers)


async def list_entries(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with entries of a base: `?limit=&offset=`."""
    asked = request.read_query(PageQuery)
    page = await _kb(context).list_entries(_base(request), limit=asked.limit, offset=asked.offset, call=request.call)
    return HttpResponse(data=page.to_json())


async def put_entries(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Write entries, all or none."""
    body = read_model(EntriesBody, request.json_body(), "the body is not {entries: […]}")
    written = await _kb(context).put(_base(request), body.entries, call=request.call)
    return HttpResponse(data=[one.to_json() for one in written])


async def get_entry(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with an entry and its revision."""
    entry = request.parameters["entry"]
    return HttpResponse(data=(await _kb(context).get(_base(request), entry, call=request.call)).to_json())


async def put_entry(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Write an entry; with `?revision=` only where it is still of that one."""
    body = request.json_body()
    named = {**body, "id": request.parameters["entry"]} if isinstance(body, dict) else body
    entry = read_model(KnowledgeEntry, named, "the body is no entry")
    revision = request.read_query(RevisionQuery).revision
    (written,) = await _kb(context).put(_base(request), [entry], revision=revision, call=request.call)
    return HttpResponse(data=written.to_json())


async def delete_entry(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Remove an entry."""
    count = await _kb(context).delete(_base(request), [request.parameters["entry"]], call=request.call)
    return HttpResponse(data={"deleted": count > 0})


def _kb(context: PluginContext) -> KnowledgeBase:
    return context.services.get(KNOWLEDGE_BASE)


def _base(request: HttpRequest) -> str:
    return request.parameters["base"]
