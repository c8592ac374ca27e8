"""Patches over HTTP; each route hands over to the service and shapes its answer."""

from __future__ import annotations

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.assistant import ASSISTANT, PatchProposal, PatchResult, PatchUndo
from tavern_host.contracts.errors import InvalidInput


async def propose(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches/check`: what a patch would do; nothing is saved."""
    asked = request.read(PatchProposal)
    result = await context.services.get(ASSISTANT).propose_patch(
        asked.operations,
        kind=asked.kind,
        id=asked.id,
        document=asked.document,
        revision=asked.revision,
        call=request.call,
    )
    return HttpResponse(data=result.to_json())


async def apply(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches`: the document with the patch applied, or 409 with what is wrong."""
    asked = request.read(PatchProposal)
    if asked.id is None or asked.document is not None:
        raise InvalidInput("a patch is applied to a document that is named by its `id`")
    result = await context.services.get(ASSISTANT).apply_patch(
        asked.operations, asked.id, kind=asked.kind, revision=asked.revision, reason=asked.reason, call=request.call
    )
    return _answer(result)


async def undo(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches/undo`: the document as it was before a patch."""
    asked = request.read(PatchUndo)
    result = await context.services.get(ASSISTANT).undo_patch(
        asked.id, asked.revision, asked.to, kind=asked.kind, call=request.call
    )
    return _answer(result)


def _answer(result: PatchResult) -> HttpResponse:
    headers = {"ETag": f'"{result.revision}"'} if result.applied else {}
    return HttpResponse(status=200 if result.applied else 409, data=result.to_json(), headers=headers)
